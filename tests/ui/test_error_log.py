"""Failed requests: a malformed one is the sender's fault, an error in this program is an error in the log."""

import logging

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from core.text.validation import validate_text
from ui.serving.middleware import ErrorLog


async def own(request: Request) -> Response:
    validate_text("text", "a secret \0", max_length=100)  # raises in this program
    return Response()


async def malformed(request: Request) -> Response:
    return Response(await request.json())  # starlette raises


@pytest.mark.parametrize(("path", "status", "level"), [("/own", 500, logging.ERROR), ("/malformed", 400, logging.INFO)])
def test_errors_of_the_program_are_logged_as_such_with_their_calls_and_without_what_was_sent(
    caplog: pytest.LogCaptureFixture, path: str, status: int, level: int
):
    routes = [Route("/own", own, methods=["POST"]), Route("/malformed", malformed, methods=["POST"])]
    client = TestClient(Starlette(routes=routes, middleware=[Middleware(ErrorLog)]), raise_server_exceptions=False)
    with caplog.at_level(logging.INFO, logger="ui.serving.middleware"):
        assert client.post(path, content=b"{a secret").status_code == status
    (record,) = (each for each in caplog.records if each.getMessage() == "request failed")
    assert record.levelno == level
    assert "secret" not in str(vars(record))
    assert (" in own, " in record.raised) == (path == "/own")  # the calls on the way, for its author
