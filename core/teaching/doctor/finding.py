"""The result of an examination: one finding per check, each with a light, a sentence and a number."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.config import BugName

Light = Literal["green", "amber", "red"]


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        check: name of the check, a few words.
        light: green for passed, amber for a warning, red for failed.
        sentence: the result in words, with the number in it.
        figure: the number that decided.
        bug: the only known bug that explains the result, if there is one.
    """

    check: str
    light: Light
    sentence: str
    figure: float | None = None
    bug: BugName | None = None


@dataclass(frozen=True)
class Examination:
    """The findings on one model.

    Attributes:
        name: of the run or preset.
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
        """The checks that did not pass."""
        return [each for each in self.findings if each.light != "green"]

    def as_data(self) -> dict[str, Any]:
        """Return the examination as plain data for JSON."""
        return {
            "name": self.name,
            "step": self.step,
            "bugs": self.bugs,
            "findings": [asdict(each) for each in self.findings],
            "seconds": round(self.seconds, 2),
        }
