"""WER and PER: edits to the nearest of several references, per token of it."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from core.evaluation.accuracy import evaluate
from core.evaluation.breakdown import measure_breakdown
from core.evaluation.error_rates import measure_error_rates, nearest_reference
from core.evaluation.outputs import Outputs, decode_unpadded
from core.evaluation.padding_effect import measure_padding_effect
from core.generation.strategy import Beam, Greedy
from core.tasks import build_task, fixed_pairs
from core.tasks.ingest import HeldOutFile, PairFiles, prepare_preset
from core.tasks.pairs import PairTable, PairTask, RaggedRows, source_key
from core.text.tokenizers import PlainTokenizer
from core.text.vocab import EOS_ID, Vocab

PAIRS = [("a", "X Y"), ("a", "X Z Z"), ("b", "Y"), ("ab", "X Y Y")]


class FourPairs(PairTask):
    """Four test pairs, two of which have the same source."""

    rate_names = ("WER", "PER")

    def __init__(self) -> None:
        super().__init__(
            src_vocab=Vocab("ab"),
            tgt_vocab=Vocab("XYZ"),
            tokenizers=(PlainTokenizer("character"), PlainTokenizer("symbol")),
            lengths=(1, 2),
            examples=("a",),
        )

    @property
    def table(self) -> PairTable:
        sources = RaggedRows.from_rows(self.src_vocab.encode(source) for source, _ in PAIRS)
        answers = RaggedRows.from_rows(self.tgt_vocab.encode(answer.split()) for _, answer in PAIRS)
        return PairTable(
            sources, answers, torch.tensor([source_key(source) for source, _ in PAIRS]), torch.full((4,), 2)
        )


def lookup(task: PairTask, outputs: dict[str, str]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Answers for ``ScriptedModel``: the output of each source."""
    ids = {
        tuple(task.src_vocab.encode(source)): torch.tensor([*task.tgt_vocab.encode(output.split()), EOS_ID])
        for source, output in outputs.items()
    }
    return lambda src: pad_sequence([ids[tuple(row[1:-1])] for row in src.tolist()], batch_first=True)


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("ab", "ba", 2)],
)
def test_the_distance_counts_inserted_deleted_and_substituted_tokens(one, other, distance):
    tokens = [[f"<{letter}>" for letter in word] for word in (one, other)]  # tokens of several characters
    assert nearest_reference(tokens[0], [tokens[1]]) == (distance, tokens[1])
    assert nearest_reference(tokens[1], [tokens[0]])[0] == distance


def test_nearest_reference_returns_the_first_of_equally_near_ones():
    assert nearest_reference("ab", ["xyz", "abc", "ab"]) == (0, "ab")
    assert nearest_reference("ab", ["abc", "a"]) == (1, "abc")


def test_each_source_occurs_once_with_all_its_references():
    task = FourPairs()
    pairs = task.all_pairs("test")
    assert [task.src_vocab.decode(pairs.table.src.row(row)) for row in pairs.rows.tolist()] == [
        ["a"],
        ["b"],
        ["a", "b"],
    ]
    assert task.references(["a"]) == [["X", "Y"], ["X", "Z", "Z"]]
    assert task.references(["b", "b"]) == []


@pytest.mark.parametrize(
    ("outputs", "sequence_rate", "token_rate"),
    [
        ({"a": "X Z Z", "b": "Y", "ab": "X Y Y"}, 0, 0),  # equals the second reference of a
        ({"a": "X Z", "b": "Y", "ab": "X Y Y"}, 1 / 3, 1 / 6),  # one edit from each reference of a; two tokens
        ({"a": "X Z Z X", "b": "", "ab": "X Y Y"}, 2 / 3, 2 / 7),
    ],
)
def test_error_rates_of_known_outputs(scripted, outputs, sequence_rate, token_rate):
    task = FourPairs()
    model = scripted(lookup(task, outputs), max_seq_len=8, vocab_size=6)
    for strategy in (Greedy(), Beam(beam_size=2)):
        pairs = task.all_pairs("test")[torch.arange(3)]
        rates = measure_error_rates(task, decode_unpadded(model, pairs, strategy=strategy))
        assert (rates.names, rates.sources) == (("WER", "PER"), 3)
        assert (rates.sequence_rate, rates.token_rate) == pytest.approx((sequence_rate, token_rate))


def test_a_source_with_an_unknown_token_is_measured_by_its_own_reference(tmp_path):
    """Its tokens no longer say which source of the pairs it was."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{number}\t{number}\n" for number in range(100, 140)))
    test = tmp_path / "test.tsv"
    test.write_text("5x\t5\n")  # training has no x
    files = PairFiles(path, held_out=(HeldOutFile(test),))
    _, preset = prepare_preset(files, tmp_path / "kept", kinds=("character", "character"))
    task = build_task(preset.task, pairs=tmp_path / "kept")
    pairs = fixed_pairs(task, 1, split="test")
    right, wrong = ([*task.tgt_vocab.encode(text), EOS_ID] for text in ("5", "1"))
    rates = [
        measure_error_rates(task, Outputs(pairs, torch.tensor([ids]), torch.zeros(1, 2))) for ids in (right, wrong)
    ]
    assert [(each.sequence_rate, each.token_rate) for each in rates] == [(0, 0), (1, 1)]


def test_exact_match_counts_every_reference_also_one_longer_than_those_drawn(scripted, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{number}\ta\n{number}\ta b c\n" for number in range(100, 160)))
    held_out = tmp_path / "new.tsv"
    held_out.write_text("".join(f"{number}\ta\n{number}\ta b c\n" for number in range(160, 190)))
    files = PairFiles(path, held_out=(HeldOutFile(held_out, set="new"),))
    _, preset = prepare_preset(files, tmp_path / "kept", kinds=("character", "symbol"))
    task = build_task(preset.task, pairs=tmp_path / "kept")
    pairs = fixed_pairs(task, 10, split="test")
    assert (pairs.tgt_out[:, 1] == EOS_ID).all()  # "a", the first reference of each
    for output, exact, of_drawn in (("a", 1, 1), ("a b c", 1, 0), ("a b", 0, 0), ("a b c c", 0, 0)):
        ids = torch.tensor([*task.tgt_vocab.encode(output.split()), EOS_ID])
        model = scripted(lambda src, ids=ids: ids.expand(len(src), -1), max_seq_len=12, vocab_size=40)
        evaluation = evaluate(model, pairs, task=task)
        outputs = decode_unpadded(model, pairs)
        by_set = measure_breakdown(model, task, sequences=10)
        padding = measure_padding_effect(model, task, outputs)
        assert {evaluation.exact_match, padding.alone, padding.padded, by_set.exact_match} == {exact}
        assert measure_error_rates(task, outputs).sequence_rate == 1 - exact
        assert evaluate(model, pairs).exact_match == of_drawn
