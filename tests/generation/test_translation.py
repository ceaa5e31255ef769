"""Decoding many texts: in order, in batches of bounded size, and sentence by sentence where they are too long."""

from itertools import count, islice

import pytest
import torch

from core.generation import GREEDY, Beam, generate, translation
from core.generation.translation import Translation, translate
from core.tasks import build_task
from core.text.vocab import BOS_ID, EOS_ID, until_eos
from tests.support.scripted_models import transformer


@pytest.fixture
def task(tiny):
    return build_task(tiny.task)


def decoded_alone(model, task, text: str, strategy) -> str:
    src = torch.tensor([[BOS_ID, *task.src_vocab.encode(task.tokenize(text)), EOS_ID]])
    ids = generate(model, src, max_steps=model.max_seq_len, strategy=strategy).tokens[0].tolist()
    return task.answer_text(task.tgt_vocab.decode(until_eos(ids)))


@pytest.fixture
def sentences_task(task):
    """Digits in sentences: a text task with a tokenizer that ignores exclamation marks."""
    digits = type(task).tokenize
    task.bleu_tokenizer = "13a"
    task.tokenize = lambda text: digits(task, text.replace("!", ""))
    return task


@pytest.mark.parametrize("strategy", [GREEDY, Beam(beam_size=5)], ids=["greedy", "beam"])
def test_outputs_are_those_of_each_text_alone_in_the_same_order(task, monkeypatch, strategy):
    monkeypatch.setattr(translation, "WINDOW", 7)
    monkeypatch.setattr(translation, "TOKENS_PER_BATCH", 100)
    model = transformer()
    generator = torch.Generator().manual_seed(0)
    texts = [
        " ".join(map(str, torch.randint(10, (length,), generator=generator).tolist()))
        for length in torch.randint(1, 15, (30,), generator=generator).tolist()
    ]
    results = list(translate(model, task, texts, strategy=strategy))
    assert [result.output for result in results] == [decoded_alone(model, task, text, strategy) for text in texts]
    assert [bool(result.note) for result in results] == [not result.output for result in results]
    assert len({result.output for result in results}) > 4


def test_texts_are_read_and_returned_window_by_window(task, monkeypatch):
    monkeypatch.setattr(translation, "WINDOW", 3)
    read = []
    texts = (read.append(number) or str(number % 10) for number in count())
    results = translate(transformer(), task, texts, strategy=GREEDY)
    assert len(list(islice(results, 3))) == 3
    assert len(read) == 3


def test_no_batch_has_more_tokens_or_scores_than_allowed(monkeypatch):
    monkeypatch.setattr(translation, "TOKENS_PER_BATCH", 60)
    monkeypatch.setattr(translation, "SCORES_PER_STEP", 400)
    sources = [[5] * length for length in (1, 1, 1, 1, 2, 2, 3, 8, 8, 70)]
    batches = list(translation._batches(range(len(sources)), sources, 2, 50))
    assert [index for batch in batches for index in batch] == list(range(len(sources)))
    for batch in batches:
        width = max(len(sources[index]) for index in batch) + 2
        assert len(batch) == 1 or 2 * len(batch) * width <= 60
        assert len(batch) == 1 or 2 * len(batch) * 50 <= 400
    assert len(batches[0]) == 4


def test_progress_counts_every_text(task):
    counts = []
    list(translate(transformer(), task, ["1 2", "3", "", "4 5 6"], strategy=GREEDY, report=counts.append))
    assert sum(counts) == 3


def test_empty_and_refused_texts_have_empty_outputs(task):
    results = list(translate(transformer(), task, ["", "1 2", "  ", "1 x", "1 " * 15], strategy=GREEDY))
    assert [bool(result.output) for result in results] == [False, True, False, False, False]
    assert [result.problem for result in results[:3]] == ["", "", ""]
    assert "'x' at position 2 is not one of" in results[3].problem
    assert "input has 15 tokens, 17 with BOS and EOS; this model reads at most 16" in results[4].problem


def test_a_text_too_long_for_the_model_is_decoded_sentence_by_sentence(sentences_task):
    model, task = transformer(), sentences_task
    sentences = ["1 2 3 4 5 6 7 8!", "9 8 7 6 5 4!", "3 2 1!"]
    (result,) = translate(model, task, ["  ".join(sentences)], strategy=GREEDY)
    assert result == Translation("  ".join(decoded_alone(model, task, each, GREEDY) for each in sentences))


def test_a_short_text_of_several_sentences_is_decoded_whole(sentences_task):
    text = "1 2! 3 4!"
    (result,) = translate(transformer(), sentences_task, [text], strategy=GREEDY)
    assert result == Translation(decoded_alone(transformer(), sentences_task, text, GREEDY))


def test_a_sentence_that_is_too_long_refuses_its_text(sentences_task):
    (result,) = translate(transformer(), sentences_task, ["1 2 3! " + "4 " * 20 + "!"], strategy=GREEDY)
    assert result.output == ""
    assert "input has 20 tokens" in result.problem
