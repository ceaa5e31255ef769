"""The base of the ``task`` sections of presets."""

from typing import ClassVar

from core.config.sections import Section


def format_range(low: int, high: int) -> str:
    """Format a range of integers: ``3–10``, or ``10`` if both ends are equal."""
    return f"{low:,}–{high:,}" if low < high else f"{low:,}"


class TaskSection(Section):
    """Base class of all task sections. The properties that subclasses add or override are described here.

    Attributes:
        length_field: name of the field that limits the longest sequence.
        num_distinct: number of distinct sources that can be drawn, or a lower bound of it.
        longest_source, longest_answer: tokens in the longest source and answer, or an upper bound, without BOS and EOS.
        summary: short description, such as ``reverse 3–10 digits``.
        package: the optional package that the data comes from, if any.
    """

    package: ClassVar[str] = ""

    @property
    def title(self) -> str:
        """The name of the task family for people."""
        return str(type(self).model_fields["family"].default).replace("-", " ").capitalize()

    @property
    def shared_vocabulary(self) -> bool:
        """Whether source and target have the same vocabulary."""
        return False

    @property
    def has_subwords(self) -> bool:
        """Whether the tokens are subwords, whose vocabulary is learned from the training pairs."""
        return False

    @property
    def own_data(self) -> str:
        """SHA-256 of the user's own pairs; "" for tasks that generate or ship their data."""
        return ""

    @property
    def inherited_vocabulary(self) -> str:
        """SHA-256 of the vocabularies of the run that a run began from; "" if they are the task's."""
        return ""

    @property
    def data_origin(self) -> str:
        """Where own pairs come from, if a run may decode without them; "" if it may not."""
        return ""


class OneLengthConfig(TaskSection):
    """Base class of the sections with one field that limits sources and answers alike."""

    length_field: ClassVar[str] = "max_length"

    @property
    def longest_source(self) -> int:
        """Tokens in the longest source."""
        return getattr(self, self.length_field)

    @property
    def longest_answer(self) -> int:
        """Tokens in the longest answer."""
        return self.longest_source
