"""Tasks: what a model learns. One module per family of tasks, imported only when a preset uses it."""

from pathlib import Path

from core.config.tasks import (
    AdditionConfig,
    DigitsConfig,
    NumbersConfig,
    NumberWordsConfig,
    OwnPairsConfig,
    PatternsConfig,
    PronunciationsConfig,
    TaskConfig,
    TextConfig,
)
from core.tasks.data import (
    POOL_BATCHES,
    Batches,
    Epochs,
    FreshBatches,
    FreshByLength,
    fixed_pairs,
    sample_distinct,
    training_batches,
    unpadded_batches,
)
from core.tasks.task import NO_SOURCE, Batch, Breakdown, Split, Task

__all__ = [
    "NO_SOURCE",
    "POOL_BATCHES",
    "Batch",
    "Batches",
    "Breakdown",
    "Epochs",
    "FreshBatches",
    "FreshByLength",
    "Split",
    "Task",
    "build_task",
    "fixed_pairs",
    "sample_distinct",
    "training_batches",
    "unpadded_batches",
]


def build_task(config: TaskConfig, *, pairs: Path | None = None) -> Task:
    """Build the task that a preset's ``task`` section describes.

    Args:
        pairs: the file with the pairs of an own-pairs task; other tasks do not read it.

    Raises:
        ConfigError: the file is missing, holds other pairs than the preset names, or leaves a split empty.
    """
    if isinstance(config, AdditionConfig):
        from core.tasks.addition import Addition

        return Addition(max_digits=config.max_digits)
    if isinstance(config, PatternsConfig):
        from core.tasks.patterns import Patterns

        return Patterns(**config.model_dump(exclude={"family"}))
    if isinstance(config, NumberWordsConfig):
        from core.tasks.number_words import NumberWords

        return NumberWords(
            language=config.language,
            max_number=config.max_number,
            longest_source=config.longest_source,
            longest_answer=config.longest_answer,
        )
    if isinstance(config, PronunciationsConfig):
        from core.tasks.pronunciations import Pronunciations

        return Pronunciations(**config.model_dump(exclude={"family"}))
    if isinstance(config, OwnPairsConfig):
        from core.tasks.own_pairs import OwnPairs

        return OwnPairs(config, pairs)
    if isinstance(config, TextConfig):
        from core.tasks.text_lines import TextLines

        return TextLines(max_length=config.max_length, longest_prompt=config.longest_source)
    from core.tasks.sequences import Digits, Numbers, Words

    if isinstance(config, DigitsConfig):
        return Digits(**config.model_dump(exclude={"family"}))
    if isinstance(config, NumbersConfig):
        return Numbers(**config.model_dump(exclude={"family"}))
    sizes = {"min_length": config.min_length, "max_length": config.max_length}
    return Words(transform=config.transform, **sizes, has_unk=config.unknown_words == "unk")
