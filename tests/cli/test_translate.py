"""``translate``: lines in, lines out."""

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from core.__main__ import main
from core.generation import Beam, Greedy
from core.generation.translation import translate
from core.models.int8 import int8_copy
from core.runs.load import load_run


@pytest.fixture
def translated(trained, capsys, monkeypatch):
    """Translate bytes with the trained run: (exit code, standard output, standard error)."""

    def run(given: bytes, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = main(["--checkpoints", str(trained), "translate", "--run", "done", *arguments])
        return code, *capsys.readouterr()

    return run


def test_every_line_is_decoded_in_order_greedily_by_default(translated, trained):
    loaded = load_run(trained / "done")
    lines = ["4 8 2 9", "1", "", "3 3 3 3 3"]
    for arguments, strategy in (
        ((), Greedy()),
        (("--strategy", "beam", "--beam-size", "2"), Beam(beam_size=2)),
    ):
        code, output, errors = translated("\n".join(lines).encode() + b"\n", *arguments)
        expected = list(translate(loaded.model, loaded.task, lines, strategy=strategy))
        assert (code, output.split("\n")) == (0, [*(result.output for result in expected), ""])
        noted = [number for number, result in enumerate(expected, start=1) if result.note]
        assert errors.startswith(f"line {noted[0]}: the output is empty") if noted else errors == ""
        assert errors.count("\n") == bool(noted)


def test_lines_are_translated_in_8_bits(translated, trained, monkeypatch):
    assert "int8 is for products with weights of at least 32,768" in translated(b"4 8 2 9\n", "--int8")[2]
    monkeypatch.setattr("core.models.int8.MIN_NUMEL", 1)
    loaded, lines = load_run(trained / "done"), ["4 8 2 9", "1", "3 3 3 3 3"]
    expected = translate(int8_copy(loaded.model), loaded.task, lines, strategy=Greedy())
    code, output, _ = translated("\n".join(lines).encode(), "--int8")
    assert (code, output.splitlines()) == (0, [each.output for each in expected])
    code, output, errors = translated(b"4 8 2 9\n", "--int8", "--ensemble", "done")
    assert (code, output) == (2, "")
    assert "int8 needs an encoder-decoder Transformer" in errors


def test_several_runs_translate_as_an_ensemble(translated):
    assert translated(b"4 8 2 9\n", "--ensemble", "done") == translated(b"4 8 2 9\n")


def test_a_byte_order_mark_and_windows_line_ends_are_not_input(translated):
    assert translated(b"\xef\xbb\xbf4 8 2\r\n1 2\r\n") == translated(b"4 8 2\n1 2")


def test_refused_lines_are_empty_and_named_with_their_reasons(translated):
    code, output, errors = translated(b"4 8\n1 x\n\xff\n2 3\n")
    assert code == 1
    assert output == translated(b"4 8\n\n\n2 3\n")[1]
    first, second, *_ = errors.splitlines()
    assert first.startswith("line 2: 'x' at position 2 is not one of 0 1 2")
    assert second == "line 3: byte 1 is not UTF-8"


def test_nothing_in_gives_nothing_out(translated):
    assert translated(b"") == (0, "", "")


def test_json_has_every_line_with_its_problem_and_nothing_else_is_printed(translated):
    given = b"4 8\n\n1 x\n\xff\n2 3\n"
    plain = translated(given)
    code, output, errors = translated(given, "--json")
    assert (code, errors) == (1, plain[2])
    said = json.loads(output)
    assert said["run"] == "done"
    assert said["strategy"] == Greedy().model_dump()
    assert [each["line"] for each in said["lines"]] == [1, 2, 3, 4, 5]
    assert [each["output"] for each in said["lines"]] == plain[1].splitlines()
    problems = [each["problem"] for each in said["lines"]]
    assert problems[:2] == [None, None]
    assert problems[2].startswith("'x' at position 2")
    assert problems[3:] == ["byte 1 is not UTF-8", None]
    assert all(not each["note"] or not each["output"] for each in said["lines"])
    assert json.loads(translated(b"", "--json")[1])["lines"] == []


def test_an_option_of_another_strategy_is_refused(translated):
    code, _, errors = translated(b"1\n", "--temperature", "2")
    assert code == 2
    assert "--temperature" in errors


def heed_interrupts() -> None:
    """Restore SIGINT, which shells ignore for background jobs."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(trained, **pipes) -> subprocess.Popen:
    command = [sys.executable, "-m", "core", "--checkpoints", str(trained), "translate", "--run", "done"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=heed_interrupts, **pipes)


def test_a_closed_output_ends_it_quietly(trained):
    reading, writing = os.pipe()
    os.close(reading)
    process = start(trained, stdin=subprocess.PIPE, stdout=writing)
    os.close(writing)
    _, errors = process.communicate(b"4 8 2 9\n" * 5, timeout=60)
    assert (process.returncode, errors) == (1, b"")


def test_an_interrupt_ends_it_quietly(trained):
    process = start(trained, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    process.stdin.write(b"4 8 2 9\n" * 2_000)
    assert process.stdout.read(1)  # the first window is decoded: the command waits for the next
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")
