"""WER and PER: the nearest of several references, counted over its own tokens."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from core.evaluation.error_rates import measure_error_rates, nearest_reference
from core.generation.strategy import Beam, Greedy
from core.models.heads import NO_INTERVENTIONS, Interventions
from core.models.seq2seq import DecoderOutput, Memory, Seq2Seq
from core.tasks.pair_table import PairTable, Ragged, key_of
from core.tasks.pairs import Pairs
from core.text.vocab import EOS_ID, PAD_ID, Vocab
from tests.support.scripted_models import StepCache

PAIRS = [("a", "X Y"), ("a", "X Z Z"), ("b", "Y"), ("ab", "X Y Y")]
words = st.lists(st.sampled_from("xyz"), max_size=6)


class Listed(Pairs):
    """Four pairs, of which two have the same source; all of them are test pairs."""

    rate_names = ("WER", "PER")

    def __init__(self) -> None:
        super().__init__(
            src_vocab=Vocab("ab"),
            tgt_vocab=Vocab("XYZ"),
            kinds=("character", "symbol"),
            lengths=(1, 2),
            examples=("a",),
        )

    @property
    def table(self) -> PairTable:
        sources = Ragged.of(self.src_vocab.encode(source) for source, _ in PAIRS)
        answers = Ragged.of(self.tgt_vocab.encode(answer.split()) for _, answer in PAIRS)
        return PairTable(sources, answers, torch.tensor([key_of(source) for source, _ in PAIRS]), torch.full((4,), 2))


class Knowing(Seq2Seq):
    """Writes to each source, by its ids, what it was told to."""

    max_seq_len = 8

    def __init__(self, task: Pairs, answers: dict[str, str]) -> None:
        super().__init__()
        self.register_buffer("somewhere", torch.zeros(1))
        self.answers = {
            tuple(task.src_vocab.encode(source)): [*task.tgt_vocab.encode(answer.split()), EOS_ID]
            for source, answer in answers.items()
        }

    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        return Memory(src, (src != PAD_ID)[:, None, None, :])

    def decode(
        self, tgt_in, memory: Memory, cache: StepCache | None = None, *, need_weights: bool = False
    ) -> DecoderOutput:
        past = cache.past if cache else 0
        logits = torch.full((len(tgt_in), 1, 6), -9.0)
        for row, source in enumerate(memory.states.tolist()):
            answer = self.answers[tuple(source[1:-1])]
            logits[row, 0, (*answer, *[EOS_ID] * 9)[past]] = 9.0
        return DecoderOutput(logits, StepCache(past + 1))


@pytest.mark.parametrize(
    ("one", "other", "interventions"),
    [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("ab", "ba", 2)],
)
def test_edits_of_known_pairs(one, other, interventions):
    assert Levenshtein.distance(one, other) == interventions


@given(one=words, other=words, third=words)
def test_edits_are_a_distance(one, other, third):
    assert (Levenshtein.distance(one, other) == 0) == (one == other)
    assert Levenshtein.distance(one, other) == Levenshtein.distance(other, one)
    assert Levenshtein.distance(one, third) <= Levenshtein.distance(one, other) + Levenshtein.distance(other, third)
    assert abs(len(one) - len(other)) <= Levenshtein.distance(one, other) <= max(len(one), len(other))


def test_the_nearest_reference_counts_and_of_two_as_near_the_first():
    assert nearest_reference("ab", ["xyz", "abc", "ab"]) == (0, "ab")
    assert nearest_reference("ab", ["abc", "a"]) == (1, "abc")


def test_every_source_is_asked_for_once_and_any_of_its_answers_is_right():
    task = Listed()
    pairs = task.all_pairs("test")
    assert [task.src_vocab.decode(pairs.table.src.row(row)) for row in pairs.rows.tolist()] == [
        ["a"],
        ["b"],
        ["a", "b"],
    ]
    assert task.references(["a"]) == [["X", "Y"], ["X", "Z", "Z"]]
    assert task.references(["b", "b"]) == []


@pytest.mark.parametrize(
    ("written", "answers", "tokens"),
    [
        ({"a": "X Z Z", "b": "Y", "ab": "X Y Y"}, 0, 0),  # the second of a's references is as good
        ({"a": "X Z", "b": "Y", "ab": "X Y Y"}, 1 / 3, 1 / 6),  # one edit from either: over the first's two tokens
        ({"a": "X Z Z X", "b": "", "ab": "X Y Y"}, 2 / 3, 2 / 7),
    ],
)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(beam_size=2)], ids=["greedy", "beam"])
def test_rates_of_answers_that_are_known(written, answers, tokens, strategy):
    task = Listed()
    model = Knowing(task, written)
    found = measure_error_rates(model, task, task.all_pairs("test")[torch.arange(3)], strategy=strategy)
    assert (found.names, found.sources) == (("WER", "PER"), 3)
    assert (found.sequence_rate, found.token_rate) == pytest.approx((answers, tokens))
