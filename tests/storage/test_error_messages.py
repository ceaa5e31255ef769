"""Messages repeat what a user sent, but no more of it than a person reads."""

import pytest

from core.__main__ import main
from core.storage.error_messages import bounded, short_repr

LONG = "k" * 10_000


def test_long_words_and_long_messages_are_cut_off():
    assert bounded(f"task.data={LONG} is missing") == f"task.data={LONG[:70]}… (10,010 characters) is missing"
    assert len(bounded("word " * 10_000)) < 5_000
    usual = "--set training.steps=0: it must be at least 1"
    assert bounded(usual) == usual


def test_a_value_of_which_not_all_is_shown_ends_with_an_ellipsis():
    assert short_repr([1.5, "a"]) == "[1.5, 'a']"
    assert short_repr(10**59) == "1" + 59 * "0"
    assert short_repr(10**60) == "1" + 58 * "0" + "…"
    assert short_repr(LONG, 10) == "'kkkkkkkk…"
    assert short_repr(1 << 100_000) == "a number of 100001 bits"


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--preset", "tiny", "--set", f"{LONG}=1"],
        ["train", "--preset", "tiny", "--device", LONG],
        ["evaluate", "--run", "digits-reversal-shipped", "--sequences", LONG],
        ["train", "--preset", "tiny", "--plugin", LONG],
        ["data", LONG],
        ["export", "--run", "digits-reversal-shipped", "--out", f"{LONG}.zip"],
        ["bench", LONG],
        [LONG],
    ],
)
def test_no_command_echoes_a_long_argument(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    try:
        code = main(arguments)
    except SystemExit as exit:  # of argparse
        code = exit.code
    errors = capsys.readouterr().err
    assert code == 2
    assert 0 < len(errors) < 5_000
    assert LONG[:301] not in errors
