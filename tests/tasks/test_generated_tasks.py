"""What every generated task promises: draws depend on the generator, and any text is tokenized or refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config.suites import FormalLanguageConfig
from core.config.tasks import (
    AdditionConfig,
    CogsConfig,
    DigitsConfig,
    InductionConfig,
    MaskedDigitsConfig,
    ModularConfig,
    NumbersConfig,
    NumberWordsConfig,
    PatternsConfig,
    PcfgConfig,
    RecallConfig,
    ScanConfig,
    WordsConfig,
)
from core.storage.errors import InputError
from core.tasks import Task, build_task
from core.tasks.cogs import Cogs
from core.tasks.masked_digits import MaskedDigits
from core.tasks.pcfg import Pcfg

CONFIGS = (
    DigitsConfig(),
    NumbersConfig(),
    WordsConfig(),
    AdditionConfig(max_digits=2),
    PatternsConfig(),
    MaskedDigitsConfig(min_half=2, max_half=5),
    NumberWordsConfig(),
    ScanConfig(split="length"),
    CogsConfig(max_depth=3),
    PcfgConfig(),
    FormalLanguageConfig(language="solve-equation"),
    FormalLanguageConfig(language="stack-manipulation"),
    ModularConfig(prime=13),
    InductionConfig(),
    RecallConfig(),
)
TASKS = [*map(build_task, CONFIGS)]
EVERY_TASK = pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
# The tables of COGS and PCFG take seconds to build, and pairs are drawn from them as from that of modular arithmetic.
DRAWN = [each for each in TASKS if not isinstance(each, Cogs | Pcfg)]


def rows(task: Task, count: int, split: str, seed: int = 0) -> list[list[int]]:
    return task.sample(count, split=split, generator=torch.Generator().manual_seed(seed)).src.tolist()


@pytest.mark.parametrize("task", DRAWN, ids=lambda task: type(task).__name__)
def test_equal_generators_draw_equal_inputs(task):
    assert rows(task, 50, "test", seed=3) == rows(task, 50, "test", seed=3) != rows(task, 50, "test", seed=4)


@EVERY_TASK
@settings(max_examples=40)
@given(data=st.data())
def test_any_text_is_tokenized_or_refused(task, data):
    symbols = st.lists(st.sampled_from([*task.src_vocab.symbols, " ", ","]), max_size=20).map("".join)
    words = st.lists(st.sampled_from([*task.src_vocab.symbols, "7"]), max_size=20).map(" ".join)
    try:
        tokens = task.tokenize(data.draw(st.text(max_size=20) | symbols | words))
        assert task.src_vocab.encode(tokens)
        assert task.answer(tokens) or isinstance(task, MaskedDigits)
    except InputError as error:
        assert str(error)  # noqa: PT017 - no error at all is as good
