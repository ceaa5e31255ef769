"""A class on one server of two cores: ``python -m core bench class``.

The app is served as on a public Space. A teacher opens a class, and students join it, all from one address, as behind
the router of a school. Each trains ``tiny``. Until all are finished, each decodes, looks at heads, ablates one and goes
back to snapshots of the training, waiting 2 to 6 seconds before each step; with their own run once it has weights, and
with the shipped run before. Their pages poll the run and the class, and the teacher's page polls the board, as the
page's scripts do.

With ``--attack``, a student like any other tries to stop the class all the time; see ``attacker``.
"""

import argparse
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from benchmarks.page_load.app_process import SHIPPED_RUN, PageClient, serve_app
from benchmarks.page_load.attacker import NICKNAME, Attacker
from benchmarks.page_load.response_times import ResponseTimes

ADDRESS = "203.0.113.7"  # address of the school behind its proxy
POLL_SECONDS = {
    "starting": 0.1,
    "active": 0.5,
    "waiting": 2.0,
    "ended": 4.0,
    "class": 3.0,
    "board": 1.5,
}  # as in ui/web/run_feed.js and class_board/
STARTING_SECONDS = 3.0  # as there: time in which a run's first two snapshots are polled frequently
THINKING_SECONDS = (2.0, 6.0)
ARRIVAL_SECONDS = 30.0  # seconds in which all students join and press Train
# Targets in seconds: the median and the 95th percentile of responses, without polls; the time until all runs are
# finished; and the delay of the board relative to a student's page
MAX_MEDIAN, MAX_P95, MAX_UNTIL_FINISHED, MAX_BEHIND = 0.3, 1.5, 300.0, 2.0
MAX_MINUTES = 30.0
POLLS = ("feed", "class_role", "class_board")  # nobody waits for their responses
ACTIVE = ("queued", "training", "stopping")
HELD = {"since_step": -1, "since_evaluation": -1, "step_width": 0, "evaluation_width": 0}


class Log:
    """Requests with the seconds to their answers, and errors. Thread-safe, as list.append is."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.errors: list[str] = []
        self._lock = threading.Lock()

    def time(self, name: str, request: Callable[[], Any]) -> Any:
        """Send a request; return its answer, None after an error."""
        started, answer, problem = time.perf_counter(), None, ""
        try:
            answer = request()
            problem = answer.get("error", "") if isinstance(answer, dict) else ""
        except (httpx.HTTPError, RuntimeError, ValueError, StopIteration) as error:
            problem = f"{type(error).__name__}: {error}"
        with self._lock:
            self.seconds.setdefault(name, []).append(time.perf_counter() - started)
            if problem:
                self.errors.append(f"{name}: {problem[:200]}")
        return None if problem else answer


class Person:
    """A teacher or student with an open page."""

    def __init__(self, address: str, log: Log) -> None:
        self.page, self.log = PageClient(address), log
        self.page.http.headers["x-forwarded-for"] = ADDRESS
        self.log.time("open the page", self.page.open)

    def call(self, function: str, **argument: Any) -> Any:
        """Call a server function of the bar."""
        return self.log.time(function, lambda: self.page.call_component(f"run-bar.{function}", argument))


class Student(Person):
    """A student.

    Attributes:
        finished_at: ``time.perf_counter()`` when their page showed that the run was finished; None before.
    """

    def __init__(self, address: str, log: Log, nickname: str, code: str, *, seed: int) -> None:
        super().__init__(address, log)
        self.nickname, self.run = nickname, ""
        self.finished_at: float | None = None
        self._random, self._steps, self._has_weights = random.Random(seed), [0], False  # noqa: S311 - what to do next
        self.call("class_join", code=code, nickname=nickname)

    def stay(self, is_over: threading.Event) -> None:
        """Train, and use the page until the event."""
        self._wait(is_over, self._random.uniform(0, ARRIVAL_SECONDS))
        started = self.log.time("train", lambda: self.page.call_endpoint("train", "tiny", {}, ""))
        if started is None:
            return
        self.run = started["run"]
        for poll in (self._poll_run, self._poll_class):
            threading.Thread(target=poll, args=(is_over,), daemon=True).start()
        actions: list[Callable[[], None]] = []
        while not self._wait(is_over, self._random.uniform(*THINKING_SECONDS)):
            if not actions:  # each of them once, in a random order
                actions = [self._decode, self._look_at_heads, self._ablate, self._look_back]
                self._random.shuffle(actions)
            actions.pop()()

    def _wait(self, is_over: threading.Event, seconds: float) -> bool:
        return is_over.wait(seconds)

    def _poll_run(self, is_over: threading.Event) -> None:
        since = HELD | {"since_snapshot": -1, "known_snapshots": 0, "block": "", "input": 0}
        seconds, started = 0.0, time.perf_counter()
        while not self._wait(is_over, seconds):
            answer = self.call("feed", run=self.run, **since)
            seconds = POLL_SECONDS["ended"]
            if answer is None:
                continue
            steps = answer["snapshots"]["steps"]
            self._steps = steps or self._steps
            self._has_weights = answer["step"] > 0
            for name, kind in (("points", "step"), ("evaluations", "evaluation")):
                if answer[name]["columns"]["step"]:
                    since |= {
                        f"since_{kind}": answer[name]["columns"]["step"][-1],
                        f"{kind}_width": answer[name]["width"],
                    }
            since |= {"since_snapshot": steps[-1], "known_snapshots": len(steps)} if steps else {}
            if (answer["queue_position"] or 0) > 1:
                seconds = POLL_SECONDS["waiting"]
            elif answer["status"] in ACTIVE:
                is_starting = len(steps) < 2 and time.perf_counter() - started < STARTING_SECONDS
                seconds = POLL_SECONDS["starting" if is_starting else "active"]
            elif answer["status"] == "finished" and self.finished_at is None:
                self.finished_at = time.perf_counter()

    def _poll_class(self, is_over: threading.Event) -> None:
        while not self._wait(is_over, POLL_SECONDS["class"]):
            self.call("class_role")

    def _text(self) -> str:
        return " ".join(self._random.choices("0123456789", k=self._random.randint(3, 5)))

    def _shown_run(self) -> str:
        return self.run if self._has_weights else SHIPPED_RUN

    def _decode(self, ablate: str = "", name: str = "decode") -> None:
        values: tuple[Any, ...] = (self._shown_run(), self._text(), {}, "", ablate, "", "zero")
        self.log.time(name, lambda: self.page.call_endpoint("decode", *values))

    def _ablate(self) -> None:
        self._decode("cross.1.1", "decode, one head ablated")

    def _look_at_heads(self) -> None:
        values = (self._shown_run(), self._text(), "cross", 1, "", "", "zero")
        self.log.time("attention", lambda: self.page.call_endpoint("attention", *values))

    def _look_back(self) -> None:
        if self._has_weights and self._steps != [0]:
            self.call("snapshot", run=self.run, step=self._random.choice(self._steps), block="all", input=0)


class Teacher(Person):
    """The teacher, with a page that polls the board.

    Attributes:
        code: of the class.
        finished_at: ``time.perf_counter()`` when the board showed that a student's run was finished, by nickname.
        answered_at: when each answer of the board came.
    """

    def __init__(self, address: str, log: Log) -> None:
        super().__init__(address, log)
        self.call("class_open")
        self.code: str = (self.call("class_code", address=address) or {}).get("code", "")
        self.finished_at: dict[str, float] = {}
        self.answered_at: list[float] = []

    def watch(self, is_over: threading.Event) -> None:
        """Poll the board until the event."""
        while not is_over.wait(POLL_SECONDS["board"]):
            answer = self.call("class_board")
            now = time.perf_counter()
            self.answered_at.append(now)
            for row in (answer or {}).get("rows", ()):
                if row["status"] == "finished":
                    self.finished_at.setdefault(row["nickname"], now)


def lead_class(num_students: int, *, minutes: float, is_attacked: bool = False) -> dict[str, Any]:
    """Hold a class until all runs are finished, at least for ``minutes``, and return the figures."""
    log, is_over = Log(), threading.Event()
    with serve_app() as app:
        teacher = Teacher(app.address, log)
        students = [Student(app.address, log, f"Student {at}", teacher.code, seed=at) for at in range(num_students)]
        attacker = Attacker(app.address, teacher.code, ADDRESS)
        started = time.perf_counter()
        stays = [threading.Thread(target=attacker.stay, args=(is_over,), daemon=True)] if is_attacked else []
        stays += [threading.Thread(target=each.stay, args=(is_over,), daemon=True) for each in students]
        stays.append(threading.Thread(target=teacher.watch, args=(is_over,), daemon=True))
        for each in stays:
            each.start()
        while (passed := time.perf_counter() - started) < 60 * MAX_MINUTES:
            seen = [each.finished_at is not None and each.nickname in teacher.finished_at for each in students]
            if all(seen) and passed >= 60 * minutes:
                break
            time.sleep(0.2)
        is_over.set()
        for each in stays:
            each.join(timeout=60)
        megabytes = app.megabytes("VmHWM")
        csv_text = (teacher.call("class_results") or {}).get("csv", "")
        rows = (teacher.call("class_board") or {}).get("rows", [])
    finished = [each.finished_at for each in students if each.finished_at is not None]
    both = [each for each in students if each.finished_at is not None and each.nickname in teacher.finished_at]
    behind = [max(0.0, teacher.finished_at[each.nickname] - (each.finished_at or 0.0)) for each in both]
    gaps = [later - before for before, later in zip(teacher.answered_at, teacher.answered_at[1:], strict=False)]
    return {
        "students": num_students,
        "finished": len(finished),
        "rows_of_results": len(csv_text.splitlines()) - 1,
        "seconds_until_all_finished": max(finished) - started if len(finished) == num_students else None,
        "attacks": {"accepted": attacker.accepted, "refused": attacker.refused},
        "left_active": sum(row["nickname"].startswith(NICKNAME) and row["status"] in ACTIVE for row in rows),
        "errors": log.errors,
        "answers": {name: vars(ResponseTimes.of(seconds)) for name, seconds in sorted(log.seconds.items())},
        "all": vars(
            ResponseTimes.of([each for name, times in log.seconds.items() if name not in POLLS for each in times])
        ),
        "board_behind": vars(ResponseTimes.of(behind)),
        "longest_between_boards": max(gaps, default=0.0),
        "megabytes": megabytes,
    }


def missed_targets(figures: dict[str, Any]) -> list[str]:
    """Return the targets that were missed."""
    until = figures["seconds_until_all_finished"]
    missed = [f"{len(figures['errors'])} errors"] * bool(figures["errors"])
    missed += ["not all runs finished"] * (until is None)
    for name, seconds, target in (
        ("median answer", figures["all"]["median"], MAX_MEDIAN),
        ("95 % of the answers", figures["all"]["p95"], MAX_P95),
        ("all runs finished", until or 0.0, MAX_UNTIL_FINISHED),
        ("95 % of the board", figures["board_behind"]["p95"], MAX_BEHIND),
    ):
        if seconds > target:
            missed.append(f"{name} in {target:g} s")
    return missed


def print_figures(figures: dict[str, Any]) -> None:
    """Print a table."""
    print(f"\n  {'':26} {'requests':>8} {'median':>9} {'95 %':>9} {'max':>9}")
    for name, times in [
        *figures["answers"].items(),
        ("all but polls", figures["all"]),
        ("board behind", figures["board_behind"]),
    ]:
        values = " ".join(f"{1000 * times[key]:>6.0f} ms" for key in ("median", "p95", "max"))
        print(f"  {name:26} {times['count']:>8} {values}")
    print(f"  longest time between two answers of the board: {figures['longest_between_boards']:.1f} s")
    if any(figures["attacks"].values()):
        print("  attacks: {accepted} accepted, {refused} refused".format(**figures["attacks"]), end="; ")
        print(f"runs of the attacker that are active after the last visit: {figures['left_active']}")
    until = figures["seconds_until_all_finished"]
    ended = "not all" if until is None else f"all after {until:.0f} s"
    print(f"  finished runs: {figures['finished']} of {figures['students']}, {ended}")
    print(f"  errors: {len(figures['errors'])}; peak memory of the server {figures['megabytes']:.0f} MB")
    for error in figures["errors"][:5]:
        print(f"    {error}")


def main() -> int:
    """Measure and print; return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--students", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--attack", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    figures = lead_class(options.students, minutes=options.minutes, is_attacked=options.attack)
    print_figures(figures)
    missed = missed_targets(figures)
    print("\n" + (f"missed: {', '.join(missed)}" if missed else "all targets reached"))
    if options.json:
        print(json.dumps(figures | {"missed": missed}))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
