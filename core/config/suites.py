"""The ``task`` sections of the suites that researchers measure sequence models by."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.config.task_section import TaskSection

SCAN_COMMANDS = 20_910
SCAN_WORDS, SCAN_ACTIONS = 9, 48  # of the longest command


class ScanConfig(TaskSection):
    """The commands of SCAN (Lake & Baroni 2018) and their actions, in one of its splits."""

    length_field: ClassVar[str] = "max_training_actions"
    num_distinct: ClassVar[int] = SCAN_COMMANDS
    longest_source: ClassVar[int] = SCAN_WORDS
    longest_answer: ClassVar[int] = SCAN_ACTIONS

    family: Literal["scan"] = "scan"
    split: Annotated[
        Literal["simple", "length", "add-jump", "add-turn-left"],
        Field(
            description="commands held out: a random fifth; those with long answers; those that combine jump, or turn "
            "left, with anything"
        ),
    ] = "simple"
    max_training_actions: Annotated[
        int, Field(ge=10, le=40, description="split length: actions in the longest training answer; 22 is official")
    ] = 22

    @property
    def summary(self) -> str:
        """A short description."""
        longest = f" above {self.max_training_actions} actions" if self.split == "length" else ""
        return f"SCAN, split {self.split}{longest}"
