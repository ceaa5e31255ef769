"""Tasks: what a model learns. One module per family of tasks, imported only when a preset uses it."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from core.config.tasks import (
    AdditionConfig,
    CogsConfig,
    DigitsConfig,
    FormalLanguageConfig,
    ImportedConfig,
    InductionConfig,
    MaskedDigitsConfig,
    ModularConfig,
    NumbersConfig,
    NumberWordsConfig,
    OwnPairsConfig,
    PatternsConfig,
    PcfgConfig,
    PronunciationsConfig,
    RecallConfig,
    ScanConfig,
    TaskConfig,
    TaskSection,
    TextConfig,
    TranslationConfig,
    WatchedConfig,
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
from core.tasks.data import fixed_pairs, input_lengths, sample_distinct, training_sample, unpadded_batches
from core.tasks.task import NO_SOURCE, Batch, Breakdown, Split, Task

__all__ = [
    "NO_SOURCE",
    "POOL_BATCHES",
    "TASKS",
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
    "input_lengths",
    "sample_distinct",
    "training_batches",
    "training_sample",
    "unpadded_batches",
]

TASKS: dict[type[TaskSection], str | Callable[[Any, Path | None], Task]] = {
    DigitsConfig: "core.tasks.sequences:Digits",
    NumbersConfig: "core.tasks.sequences:Numbers",
    WordsConfig: "core.tasks.sequences:Words",
    AdditionConfig: "core.tasks.addition:Addition",
    PatternsConfig: "core.tasks.patterns:Patterns",
    MaskedDigitsConfig: "core.tasks.masked_digits:MaskedDigits",
    NumberWordsConfig: "core.tasks.number_words:NumberWords",
    TextConfig: "core.tasks.text_lines:TextLines",
    PronunciationsConfig: "core.tasks.pronunciations:Pronunciations",
    TranslationConfig: "core.tasks.translation:Translation",
    ScanConfig: "core.tasks.scan:Scan",
    CogsConfig: "core.tasks.cogs:Cogs",
    PcfgConfig: "core.tasks.pcfg:Pcfg",
    FormalLanguageConfig: "core.tasks.formal_language:FormalLanguage",
    ModularConfig: "core.tasks.modular:Modular",
    InductionConfig: "core.tasks.recall:Induction",
    RecallConfig: "core.tasks.recall:Recall",
    OwnPairsConfig: "core.tasks.own_pairs:OwnPairs",
    ImportedConfig: "core.tasks.imported:Imported",
    WatchedConfig: "core.tasks.watched:Watched",
}
"""The class of each family of tasks, by the class of its section, as ``module:Class``, which is imported when it is
used; ``core.plugins`` adds what builds the tasks of plugins. All are called with a section and the file of a run's
pairs, or None."""


def build_task(config: TaskConfig, *, pairs: Path | None = None) -> Task:
    """Build the task that a preset's ``task`` section describes.

    Args:
        pairs: the file with the pairs of an own-pairs task. The tokenizers of a run with subwords are read from
            ``core.config.tasks.SUBWORDS`` beside it, where that exists; other tasks read neither.

    Raises:
        ConfigError: the file is missing, holds other pairs than the preset names, or leaves a split empty.
        SubwordError: the tokenizers of a run are damaged or not those of the preset, or none can be learned.
    """
    build = TASKS[type(config)]
    if isinstance(build, str):
        module, _, name = build.partition(":")
        build = getattr(import_module(module), name)
    return build(config, pairs)
