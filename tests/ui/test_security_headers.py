"""What the server tells browsers about its answers, and what it keeps out of its log."""

import logging

import httpx
import pytest

from tests.serving import SHIPPED
from tests.support.run_helpers import wait_for
from ui.serving.assets import asset_address
from ui.serving.security_headers import content_security_policy

PATHS = ["", "config", "health", "gradio_api/info", f"download/{SHIPPED}", "nothing/here", asset_address("web/page.js")]
STATIC = [asset_address("web/page.js"), asset_address("lab.css"), "theme.css", "static/img/logo.svg"]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers(address: str, path: str):
    for headers in ({}, {"origin": "https://foreign.example"}):  # also a refusal
        answer = httpx.get(address + path, headers=headers).headers
        assert answer["x-content-type-options"] == "nosniff"
        assert answer["referrer-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in answer["content-security-policy"]  # of a lab on one's own machine


def test_the_policy_names_no_other_machine_and_no_plugin():
    policy = content_security_policy(on_space=False, may_be_framed=True)
    assert "://" not in policy
    assert "*" not in policy
    assert "frame-ancestors" not in policy
    assert {"default-src 'self'", "connect-src 'self'", "object-src 'none'"} <= set(policy.split("; "))
    assert "connect-src 'self' https://huggingface.co" in content_security_policy(on_space=True, may_be_framed=True)


@pytest.mark.parametrize("path", ["", "config", "health", "gradio_api/info", f"download/{SHIPPED}"])
def test_answers_are_not_kept(address: str, path: str):
    for _ in range(2):  # also from the page cache
        assert httpx.get(address + path).headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", STATIC)
def test_static_files_may_be_kept(address: str, path: str):
    answer = httpx.get(address + path)
    assert answer.status_code == 200
    assert "no-store" not in answer.headers.get("cache-control", "")


def test_a_query_that_makes_an_error_is_not_logged(address: str, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="ui.serving.middleware"):
        assert httpx.get(address, params={"page": "<b>secret</b>"}).status_code == 400
        wait_for(lambda: "request failed" in caplog.messages)  # it is logged after the answer was sent
    records = [record for record in caplog.records if record.getMessage() == "request failed"]
    assert [record.path for record in records] == ["/"]
    assert records[0].error == "KeyError"
    assert "routes.py" in records[0].raised
    assert "secret" not in repr([record.__dict__ for record in records])
