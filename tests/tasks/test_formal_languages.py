"""The formal languages: answers counted in another way, inputs of the asked lengths, and what is refused."""

from math import isqrt
from random import Random

import pytest
import torch

from core.config.suites import ONE_SYMBOL_ANSWERS, FormalLanguageConfig
from core.storage.errors import InputError
from core.tasks import build_task
from core.tasks.formal_languages import LANGUAGES

EVERY = pytest.mark.parametrize("name", LANGUAGES)


def moved(text: str) -> str:
    return str((text.count("right") - text.count("left")) % 5)


def popped(text: str) -> str:
    stack = ""
    for each in text.split():
        stack = stack[:-1] if each == "pop" else stack + each[-1]
    return stack[::-1]


def number(text: str) -> int:
    return int(text[::-1], 2)


def solution(text: str) -> str:
    left, right = text.split("=")
    [found] = [x for x in "01234" if eval(left.replace("x", x)) % 5 == int(right)]  # noqa: S307 - own expressions
    return found


COUNTED = {  # of the input as text, without spaces except between moves and actions
    "even-pairs": lambda text: "even" if text[0] == text[-1] else "odd",
    "parity-check": lambda text: ["even", "odd"][sum(map(int, text)) % 2],
    "cycle-navigation": moved,
    "modular-arithmetic": lambda text: str(eval(text) % 5),  # noqa: S307
    "stack-manipulation": popped,
    "reverse-string": lambda text: "".join(reversed(text)),
    "brackets-arithmetic": lambda text: str(eval(text) % 5),  # noqa: S307
    "solve-equation": solution,
    "duplicate-string": lambda text: text + text,
    "missing-duplicate": lambda text: (text + text)[text.index("?") + len(text) // 2],
    "odds-first": lambda text: text[::2] + text[1::2],
    "binary-addition": lambda text: f"{sum(map(number, text.split('+'))):b}"[::-1],
    "binary-multiplication": lambda text: f"{number(text.split('*')[0]) * number(text.split('*')[1]):b}"[::-1],
    "compute-sqrt": lambda text: f"{isqrt(int(text, 2)):0{-(-len(text) // 2)}b}",
    "bucket-sort": lambda text: "".join(each * text.count(each) for each in "01234"),
}


@EVERY
def test_answers_equal_those_counted_in_another_way(name):
    language = LANGUAGES[name]
    for length in range(language.shortest, 60, language.step):
        for seed in range(10):
            symbols = language.draw(length, Random(seed))  # noqa: S311
            text = (" " if max(map(len, language.symbols)) > 1 else "").join(symbols)
            assert len(symbols) == length
            assert "".join(language.answer(symbols)) == COUNTED[name](text), text


@EVERY
def test_inputs_have_the_asked_length_and_a_split(name):
    task = build_task(FormalLanguageConfig(language=name, max_length=20))
    assert (task.src_vocab is task.tgt_vocab) == (LANGUAGES[name].symbols == LANGUAGES[name].answers)
    generator = torch.Generator().manual_seed(0)
    for split in ("train", "validation", "test"):
        pairs = task.sample(50, split=split, generator=generator)
        assert pairs.src.shape[1] <= 22
        for row in pairs.src.tolist():
            symbols = [task.src_vocab.tokens[each] for each in row if each > 2]
            assert task.split_of(symbols) == split
            assert task.tokenize(task.source_text(symbols)) == symbols
            assert len(task.answer(symbols)) == 1 or name not in ONE_SYMBOL_ANSWERS
    lengths = (pairs.src > 2).sum(dim=1).unique().tolist()
    assert min(lengths) >= task.min_length
    assert set(lengths) <= set(task.trained_lengths)
    for length in (20, 100):
        pairs = task.sample_of_length(length, 5, generator=generator)
        assert len(pairs) in (5, 0 if name == "modular-arithmetic" else 5)
        assert ((pairs.src > 2).sum(dim=1) == length).all()
        longest_answer = int((pairs.tgt > 2).sum(dim=1).max()) if len(pairs) else 0
        assert longest_answer <= FormalLanguageConfig(language=name, max_length=length).longest_answer


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("brackets-arithmetic", "(1+2", "not closed"),
        ("brackets-arithmetic", "1+2)", "not an expression"),
        ("modular-arithmetic", "1+", "not an expression"),
        ("modular-arithmetic", "1 2 3", "not an expression"),
        ("solve-equation", "1+2=3", "must have one x"),
        ("solve-equation", "x+2", "must have one x"),
        ("missing-duplicate", "01?", "must be bits twice"),
        ("missing-duplicate", "011?", "must have the same bits"),
        ("binary-addition", "01", r"must be two numbers with one \+"),
        ("stack-manipulation", "0 pop 1", "must have its stack before"),
        ("stack-manipulation", "0 pop", "leaves an empty stack"),
        ("parity-check", "2", "is not one of 0 1"),
    ],
)
def test_inputs_that_are_not_in_the_language_are_refused(name, text, rule):
    with pytest.raises(InputError, match=rule):
        build_task(FormalLanguageConfig(language=name)).tokenize(text)


def test_expressions_may_be_written_otherwise_than_they_are_drawn():
    task = build_task(FormalLanguageConfig(language="brackets-arithmetic"))
    assert task.answer(task.tokenize("-(1 + 2) - 3")) == ["4"]
