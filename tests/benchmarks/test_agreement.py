"""``bench agreement``: its pairs, its criteria on the shipped model, and what it cannot measure."""

from benchmarks.agreement import CRITERIA, agreement, alignment_head, draw_pairs
from core.__main__ import main
from core.models.seq2seq import Head
from core.runs import DEFAULT_ROOT
from core.runs.load import load_run

LOADED = load_run(DEFAULT_ROOT / "digits-reversal-shipped")


def test_a_pair_differs_in_one_digit_and_is_drawn_with_a_seed():
    pairs = list(draw_pairs(LOADED.task, 30, seed=1))
    assert pairs == list(draw_pairs(LOADED.task, 30, seed=1))
    assert pairs != list(draw_pairs(LOADED.task, 30, seed=2))
    for pair in pairs:
        differs = [one != two for one, two in zip(pair.symbols, pair.corrupted, strict=True)]
        assert (differs.index(True), sum(differs)) == (pair.position, 1)


def test_the_shipped_model_meets_the_criteria_that_do_not_need_one_head():
    assert alignment_head(LOADED.model, LOADED.task) == Head("cross", 2, 2)
    result = agreement(LOADED.model, LOADED.task, 12, seed=0)
    assert result.pairs == len(result.removed) == 12
    for name in ("a1", "a2", "a3", "a4", "c2", "d3"):
        assert result.fraction(name) >= 11 / 12, CRITERIA[name]
    assert result.fraction("b1") < 0.5 < result.fraction("b2")  # four heads read the same digit


def test_what_it_cannot_measure_is_refused(capsys):
    for arguments, message in (
        (["--preset", "digits-reversal-gru"], "must be an encoder-decoder Transformer that reverses digits"),
        (["--preset", "copy-digits"], "must be an encoder-decoder Transformer that reverses digits"),
        (["--pairs", "0"], "--pairs=0"),
        (["--seeds", "0"], "--seeds=0"),
    ):
        assert main(["bench", "agreement", *arguments]) == 2
        assert message in capsys.readouterr().err
