"""Tasks: what a model learns. One module per family of tasks, imported only when a preset uses it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.config.tasks import (
    AdditionConfig,
    DigitsConfig,
    ImportedConfig,
    MaskedDigitsConfig,
    NumbersConfig,
    NumberWordsConfig,
    OwnPairsConfig,
    PatternsConfig,
    PronunciationsConfig,
    TaskConfig,
    TaskSection,
    TranslationConfig,
    WordsConfig,
)
from core.tasks.batches import (
    POOL_BATCHES,
    Batches,
    Epochs,
    EpochsByTokens,
    FreshBatches,
    FreshByLength,
    FreshByTokens,
    training_batches,
)
from core.tasks.data import fixed_pairs, sample_distinct, unpadded_batches
from core.tasks.task import NO_SOURCE, Batch, Breakdown, Split, Task

__all__ = [
    "NO_SOURCE",
    "POOL_BATCHES",
    "Batch",
    "Batches",
    "Breakdown",
    "Epochs",
    "EpochsByTokens",
    "FreshBatches",
    "FreshByLength",
    "FreshByTokens",
    "Split",
    "Task",
    "build_task",
    "fixed_pairs",
    "sample_distinct",
    "training_batches",
    "unpadded_batches",
]

BUILDERS: dict[type[TaskSection], Callable[[Any], Task]] = {}
"""What builds the tasks of plugins, by the class of their section."""


def build_task(config: TaskConfig, *, pairs: Path | None = None) -> Task:
    """Build the task that a preset's ``task`` section describes.

    Args:
        pairs: the file with the pairs of an own-pairs task. The tokenizers of a run with subwords are read from
            ``core.config.tasks.SUBWORDS`` beside it, where that exists; other tasks read neither.

    Raises:
        ConfigError: the file is missing, holds other pairs than the preset names, or leaves a split empty.
        SubwordError: the tokenizers of a run are damaged or not those of the preset, or none can be learned.
    """
    if build := BUILDERS.get(type(config)):
        return build(config)
    if isinstance(config, DigitsConfig | NumbersConfig | WordsConfig):
        return _sequences(config)
    if isinstance(config, TranslationConfig | OwnPairsConfig | PronunciationsConfig):
        return _pairs(config, pairs)
    if isinstance(config, ImportedConfig):
        from core.tasks.imported import Imported

        return Imported(config, pairs)
    if isinstance(config, AdditionConfig):
        from core.tasks.addition import Addition

        return Addition(config)
    if isinstance(config, PatternsConfig):
        from core.tasks.patterns import Patterns

        return Patterns(**config.model_dump(exclude={"family"}))
    if isinstance(config, MaskedDigitsConfig):
        from core.tasks.masked_digits import MaskedDigits

        return MaskedDigits(**config.model_dump(exclude={"family"}))
    if isinstance(config, NumberWordsConfig):
        from core.tasks.number_words import NumberWords

        return NumberWords(
            language=config.language,
            max_number=config.max_number,
            longest_source=config.longest_source,
            longest_answer=config.longest_answer,
        )
    from core.tasks.text_lines import TextLines

    return TextLines(max_length=config.max_length, longest_prompt=config.longest_source)


def _sequences(config: DigitsConfig | NumbersConfig | WordsConfig) -> Task:
    """Build a task whose answer consists of the input's symbols."""
    from core.tasks.sequences import Digits, Numbers, Words

    if isinstance(config, DigitsConfig):
        return Digits(**config.model_dump(exclude={"family"}))
    if isinstance(config, NumbersConfig):
        return Numbers(**config.model_dump(exclude={"family"}))
    sizes = {"min_length": config.min_length, "max_length": config.max_length}
    return Words(
        transform=config.transform,
        **sizes,
        has_unk=config.unknown_words == "unk",
        unk_in_training=config.unk_in_training,
    )


def _pairs(config: TranslationConfig | OwnPairsConfig | PronunciationsConfig, pairs: Path | None) -> Task:
    """Build a task that is a finite list of pairs."""
    if isinstance(config, TranslationConfig):
        from core.tasks.translation import Translation

        return Translation(config, pairs)
    if isinstance(config, OwnPairsConfig):
        from core.tasks.own_pairs import OwnPairs

        return OwnPairs(config, pairs)
    from core.tasks.pronunciations import Pronunciations

    return Pronunciations(**config.model_dump(exclude={"family"}))
