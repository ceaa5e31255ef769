"""The result of an examination: one finding per check, each with a light, a sentence and a number."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from core.config import BugName
from core.config.counting import counted
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS

Light = Literal["green", "amber", "red", "gray"]
FORWARD = "forward pass"  # the check that a model can be run
MARKS: dict[Light, str] = {"green": "pass", "amber": "warn", "red": "FAIL", "gray": "skip"}


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: name of the check, a few words.
        light: green for passed, amber for a warning, red for failed, gray for a check that was not made.
        sentence: the result in words, with the number; for a gray finding, why the check was not made.
        figure: the number that decided.
        bug: the only known bug that explains the result, if there is one.
    """

    check: str
    light: Light
    sentence: str
    figure: float | None = None
    bug: BugName | None = None


def not_checked(check: str, reason: str) -> Finding:
    """Return the finding of a check that was not made, with the reason as the end of a sentence."""
    return Finding(check, "gray", f"Not checked: {reason}")


@dataclass(frozen=True, repr=False)
class Examination:
    """The findings on one model. As a string, and in a notebook, it is one line per check, and the diagnosis.

    Attributes:
        name: of the run, the preset or the model's class.
        step: updates made.
        findings: in the order of the checks.
        seconds: duration of the examination.
    """

    name: str
    step: int
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def bugs(self) -> list[BugName]:
        """The bugs found, each once."""
        return list(dict.fromkeys(each.bug for each in self.findings if each.bug))

    @property
    def failed(self) -> list[Finding]:
        """The checks that failed (red), whether or not a known bug explains them."""
        return [each for each in self.findings if each.light == "red"]

    @property
    def alarms(self) -> list[Finding]:
        """The checks that failed or gave a warning (red or amber)."""
        return [each for each in self.findings if each.light in ("amber", "red")]

    @property
    def unchecked(self) -> list[Finding]:
        """The checks that were not made."""
        return [each for each in self.findings if each.light == "gray"]

    @property
    def could_run(self) -> bool:
        """Whether the model could be run; otherwise it neither passed nor failed."""
        return any(each.light != "gray" for each in self.findings if each.check == FORWARD)

    @property
    def ok(self) -> bool:
        """Whether the model could be run and no check failed; warnings and checks that were not made do not count."""
        return self.could_run and not self.failed

    @property
    def diagnosis(self) -> str:
        """What failed, with the bugs that explain it; then the numbers of warnings and of checks that were not made."""
        failed = ", ".join(each.check for each in self.failed)
        bugs = ", ".join(BUG_DESCRIPTIONS[bug].title for bug in self.bugs)
        warned = ", ".join(each.check for each in self.alarms if each.light == "amber")
        passed = sum(each.light == "green" for each in self.findings)
        reason = next((each.sentence for each in self.findings if each.check == FORWARD), "").split(": ", 1)[-1]
        parts = [
            "" if self.could_run else f"could not run the model: {reason.rstrip('.')}",
            f"FAILED: {failed}" + (f" (diagnosis: {bugs})" if bugs else "") if failed else "",
            "nothing failed" if self.ok else "",
            f"warnings: {warned}" if warned else "",
            f"{passed} passed, {len(self.unchecked)} not made",
        ]
        return "; ".join(part for part in parts if part)

    def __str__(self) -> str:
        checks: dict[tuple[str, str], list[str]] = {}  # by light and sentence; those with one reason are one line
        for each in self.findings:
            checks.setdefault((MARKS[each.light], each.sentence), []).append(each.check)
        return "\n".join(
            [
                *(f"{mark} {', '.join(names):35} {sentence}" for (mark, sentence), names in checks.items()),
                f"{self.name}, after {counted(self.step, 'update')}: {self.diagnosis} ({self.seconds:.1f} s)",
            ]
        )

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Examination":
        """Return the examination that ``as_data`` gave; ValueError if it is not one."""
        return _EXAMINATION.validate_python({name: data.get(name) for name in ("name", "step", "findings", "seconds")})

    def as_data(self) -> dict[str, Any]:
        """Return the examination as plain data for JSON, which has no number for a change to infinity or NaN."""
        return {
            "name": self.name,
            "step": self.step,
            "ok": self.ok,
            "could_run": self.could_run,
            "failed": [each.check for each in self.failed],
            "bugs": self.bugs,
            "findings": [asdict(each) | {"figure": _finite(each.figure)} for each in self.findings],
            "seconds": round(self.seconds, 2),
        }


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None


_EXAMINATION = TypeAdapter(Examination)
