"""What a check found: a light, a sentence, and the figure behind it."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from core.config.bugs import BugName

Light = Literal["green", "amber", "red"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: its name, a few words.
        light: green for as it should be, amber for odd, red for wrong.
        sentence: what was found, with the figure in it.
        figure: the number that decided.
        bug: the bug that nothing else would explain, where there is one.
    """

    check: str
    light: Light
    sentence: str
    figure: float | None = None
    bug: BugName | None = None


@dataclass(frozen=True)
class Examination:
    """All that was found of one model.

    Attributes:
        name: of the run or the preset.
        step: updates its weights have had.
        findings: in the order of the checks.
        seconds: it took.
    """

    name: str
    step: int
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def bugs(self) -> list[BugName]:
        """The bugs named, each once."""
        return list(dict.fromkeys(each.bug for each in self.findings if each.bug))

    @property
    def alarms(self) -> list[Finding]:
        """What is not green."""
        return [each for each in self.findings if each.light != "green"]

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "name": self.name,
            "step": self.step,
            "bugs": self.bugs,
            "findings": [asdict(each) for each in self.findings],
            "seconds": round(self.seconds, 2),
        }
