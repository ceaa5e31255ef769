"""The result of an examination: one finding per check, each with a light, a sentence and a number."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.config import BugName
from core.teaching.bugs.descriptions import BUG_DESCRIPTIONS

Light = Literal["green", "amber", "red", "gray"]
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


@dataclass(frozen=True)
class Examination:
    """The findings on one model. As a string, it is one line per check, and the diagnosis.

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
    def alarms(self) -> list[Finding]:
        """The checks that did not pass, without checks that were not made."""
        return [each for each in self.findings if each.light in ("amber", "red")]

    @property
    def unchecked(self) -> list[Finding]:
        """The checks that were not made."""
        return [each for each in self.findings if each.light == "gray"]

    @property
    def diagnosis(self) -> str:
        """The titles of the bugs found; without one, how many checks did not pass or were not made."""
        if self.bugs:
            return ", ".join(BUG_DESCRIPTIONS[bug].title for bug in self.bugs)
        if len(self.unchecked) == len(self.findings):
            return "nothing could be checked"
        return f"no bug found, {len(self.alarms)} checks not passed, {len(self.unchecked)} not made"

    def __str__(self) -> str:
        return "\n".join(
            [
                *(f"{MARKS[each.light]} {each.check:35} {each.sentence}" for each in self.findings),
                f"{self.name}, after {self.step} updates: {self.diagnosis} ({self.seconds:.1f} s)",
            ]
        )

    def as_data(self) -> dict[str, Any]:
        """Return the examination as plain data for JSON."""
        return {
            "name": self.name,
            "step": self.step,
            "bugs": self.bugs,
            "findings": [asdict(each) for each in self.findings],
            "seconds": round(self.seconds, 2),
        }
