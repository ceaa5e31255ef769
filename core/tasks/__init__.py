"""What there is to learn: one module a family of tasks."""

from pathlib import Path

from core.config.tasks import (
    AdditionConfig,
    NumbersConfig,
    NumberWordsConfig,
    OwnPairsConfig,
    PatternsConfig,
    PronunciationsConfig,
    TaskConfig,
    TextConfig,
    WordsConfig,
)
from core.tasks.data import POOL_BATCHES, Batches, Epochs, FreshBatches, FreshByLength, fixed_pairs, training_batches
from core.tasks.task import NO_SOURCE, Batch, Task, sample_distinct

__all__ = [
    "NO_SOURCE",
    "POOL_BATCHES",
    "Batch",
    "Batches",
    "Epochs",
    "FreshBatches",
    "FreshByLength",
    "Task",
    "build_task",
    "fixed_pairs",
    "sample_distinct",
    "training_batches",
]


def build_task(config: TaskConfig, *, pairs: Path | None = None) -> Task:
    """Return the task that a preset's ``task`` section describes; only its own module is imported.

    Args:
        pairs: the file with the pairs of an own-pairs task; other tasks do not read it.

    Raises:
        ConfigError: the file is missing, holds other pairs than the preset names, or leaves a split empty.
    """
    if isinstance(config, AdditionConfig):
        from core.tasks.addition import Addition

        return Addition(**config.model_dump(exclude={"family"}))
    if isinstance(config, PatternsConfig):
        from core.tasks.patterns import Patterns

        return Patterns(**config.model_dump(exclude={"family"}))
    if isinstance(config, NumberWordsConfig):
        from core.tasks.number_words import NumberWords

        lengths = {"longest_source": config.longest_source, "longest_answer": config.longest_answer}
        return NumberWords(language=config.language, max_number=config.max_number, **lengths)
    if isinstance(config, PronunciationsConfig):
        from core.tasks.pronunciations import Pronunciations

        return Pronunciations(**config.model_dump(exclude={"family"}))
    if isinstance(config, OwnPairsConfig):
        from core.tasks.own_pairs import OwnPairs

        return OwnPairs(config, pairs)
    if isinstance(config, TextConfig):
        from core.tasks.text import Text

        return Text(max_length=config.max_length, longest_prompt=config.longest_source)
    common = {"transform": config.transform, "min_length": config.min_length, "max_length": config.max_length}
    if isinstance(config, NumbersConfig):
        from core.tasks.numbers import Numbers

        return Numbers(**common, eos_in_targets=config.eos_in_targets)
    if isinstance(config, WordsConfig):
        from core.tasks.words import Words

        return Words(**common, has_unk=config.unknown_words == "unk")
    from core.tasks.digits import Digits

    return Digits(**config.model_dump(exclude={"family"}))
