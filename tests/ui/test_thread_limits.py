"""Many visitors behind one address: their requests wait for each other, and are refused only after a while."""

import asyncio

import pytest

from core.server.access import Visitor
from ui.serving import call_limits, visitors
from ui.serving.call_limits import THREADS_PER_NETWORK, THREADS_PER_VISITOR, ThreadLimits

CLASS = [Visitor(f"student {number}", True, "school") for number in range(THREADS_PER_NETWORK + 8)]


def statuses(senders: list[Visitor], *, seconds: float) -> tuple[list[int], int]:
    """The status of a request of each visitor, sent together, and the most that were answered at the same time."""
    running = most = 0

    async def app(scope, receive, send) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(seconds)
        running -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def request(limits: ThreadLimits, sender: Visitor) -> int:
        answers: list[int] = []

        async def send(message) -> None:
            answers.append(message.get("status", 0))

        scope = {"type": "http", "path": "/gradio_api/component_server/", visitors._SCOPE: sender}
        await limits(scope, lambda: None, send)
        return answers[0]

    async def all_of_them() -> list[int]:
        limits = ThreadLimits(app)
        return await asyncio.gather(*(request(limits, sender) for sender in senders))

    return asyncio.run(all_of_them()), most


def test_a_class_behind_one_address_is_served_in_turns():
    answers, most = statuses(CLASS, seconds=0.1)
    assert answers == [200] * len(CLASS)
    assert most == THREADS_PER_NETWORK


def test_a_network_that_occupies_its_threads_for_long_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(call_limits, "MAX_WAIT", 0.1)
    answers, _ = statuses(CLASS, seconds=0.5)
    assert sorted(answers) == [200] * THREADS_PER_NETWORK + [429] * 8


def test_a_visitor_is_refused_at_once():
    answers, most = statuses([CLASS[0]] * (THREADS_PER_VISITOR + 3), seconds=0.1)
    assert sorted(answers) == [200] * THREADS_PER_VISITOR + [429] * 3
    assert most == THREADS_PER_VISITOR
