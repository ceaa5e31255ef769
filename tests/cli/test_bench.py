"""The benchmarks measure what they say: small here, so that what is tested is what they count, not how fast it is."""

import json
from importlib.util import find_spec

import pytest
import torch
from torch.testing import assert_close

from benchmarks import bulk_decoding, interleaved_timing, memory, page, solve, step
from benchmarks import decode as decoding_speed
from benchmarks.plain_transformer import rival_of
from core.__main__ import main
from core.config import ConfigError, load_preset
from core.config.sections import TransformerConfig
from core.generation import generate
from core.models import count_parameters
from core.tasks import build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, PAD_ID


def printed(capsys, *command: str) -> dict:
    """Run a benchmark and return what it says at its end."""
    assert main(["bench", *command, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_of_something_else_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bench", "paint"])
    assert caught.value.code == 2


def test_functions_are_timed_in_turns_and_each_begins_as_often(monkeypatch):
    called = []
    functions = [lambda name=name: called.append(name) for name in "ab"]
    seconds = interleaved_timing.seconds_in_turns(functions, rounds=2)
    assert called == ["b", "a", "a", "b", "b", "a"]  # the first pair warms up
    assert [len(each) for each in seconds] == [2, 2]
    assert interleaved_timing.median_ratio([2.0, 9.0, 4.0], [1.0, 3.0, 1.0]) == 3.0


# --- the rival --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits-reversal", "small"])
def test_the_rival_has_the_sizes_of_the_preset(name):
    preset = load_preset(name)
    assert count_parameters(rival_of(preset)) == count_parameters(new_state(preset).model)


def test_a_preset_without_encoder_and_decoder_has_no_rival(tiny_gru):
    with pytest.raises(ConfigError, match=r"has no rival of nn.Transformer's parts"):
        rival_of(tiny_gru)


def test_the_rival_reads_no_pad_and_no_future(tiny):
    torch.manual_seed(0)
    rival, pairs = rival_of(tiny).eval(), fixed_pairs(build_task(tiny.task), 8, split="test")
    logits = rival(pairs.src, pairs.tgt_in)
    padded = torch.nn.functional.pad(pairs.src, (0, 3), value=PAD_ID)
    assert_close(rival(padded, pairs.tgt_in[:, :2]), logits[:, :2], atol=1e-5, rtol=1e-5)


def test_the_rival_writes_the_likeliest_tokens_until_the_end(tiny):
    torch.manual_seed(0)
    rival, pairs = rival_of(tiny).eval(), fixed_pairs(build_task(tiny.task), 8, split="test")
    with torch.no_grad():
        rival.output.bias[EOS_ID] = 2.0  # some end early
    written = rival.greedy(pairs.src, max_steps=6)
    read = torch.nn.functional.pad(written[:, :-1], (1, 0), value=1)
    ended = (written == EOS_ID).cumsum(dim=1) - (written == EOS_ID).long() > 0
    assert (written[ended] == PAD_ID).all()
    assert torch.equal(rival(pairs.src, read).argmax(dim=-1)[~ended], written[~ended])


# --- solve ------------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch) -> None:
    for name, value in {"HELD_OUT": 40, "PLAIN_MOST": 4, "PLAIN_EVERY": 2, "_WARM_UP_STEPS": 1}.items():
        monkeypatch.setattr(solve, name, value)


def test_solve_trains_every_seed_beside_the_plain_recipe(quick, capsys):
    said = printed(capsys, "solve", "--preset", "tiny", "--set", "training.steps=50", "--seeds", "2", "--seed", "3")
    assert [(run["seed"], run["steps"]) for run in said["ours"]] == [(3, 50), (4, 50)]
    assert [(run["seed"], run["steps"]) for run in said["plain"]] == [(3, 4), (4, 4)]
    assert all(run["seconds"] > 0 and run["exact_match"] < 0.999 for run in said["ours"] + said["plain"])


def test_solve_alone_has_no_rival(quick, capsys):
    said = printed(capsys, "solve", "--preset", "tiny", "--set", "training.steps=50", "--seeds", "1", "--alone")
    assert said["plain"] == []


def test_the_plain_recipe_stops_where_it_passes(quick, tiny, monkeypatch):
    passed = iter([0.5, 0.9989, 0.9991])
    monkeypatch.setattr(solve, "PLAIN_MOST", 100)
    monkeypatch.setattr(solve, "_exact_match", lambda model, pairs: next(passed))
    solved = solve.solve_plainly(tiny, fixed_pairs(build_task(tiny.task), 4, split="test"))
    assert (solved.steps, solved.is_solved) == (6, True)


@pytest.mark.parametrize(("wrong", "tried"), [(0, [10, 10, 10, 10]), (1, [10])])
def test_the_plain_recipe_is_measured_no_longer_than_it_can_pass(tiny, monkeypatch, wrong, tried):
    pairs = fixed_pairs(build_task(tiny.task), 40, split="test")
    rival, written = rival_of(tiny), []

    def greedy(src: torch.Tensor, *, max_steps: int) -> torch.Tensor:
        answers = pairs.tgt_out[10 * len(written) :][:10].clone()
        answers[:wrong] = PAD_ID
        written.append(len(src))
        return answers

    monkeypatch.setattr(solve, "CHUNK", 10)
    monkeypatch.setattr(rival, "greedy", greedy)
    assert solve._exact_match(rival, pairs) == 1 - wrong / 40
    assert written == tried
    assert rival.training


def test_the_fast_preset_has_the_model_of_the_plain_one():
    plain, fast = (load_preset(name) for name in ("digits-reversal", "digits-reversal-fast"))
    assert isinstance(fast.model, TransformerConfig)
    assert count_parameters(new_state(fast).model) == count_parameters(new_state(plain).model) == 169_933
    assert fast.task == plain.task
    assert fast.training.steps * fast.training.sequences_per_step <= 200 * 64


# --- step, memory, page -----------------------------------------------------------------------------------------


def test_step_compares_updates_and_counts_products(monkeypatch, capsys):
    for name, value in {"PRESETS": ("tiny",), "ROUNDS": 1, "STEPS": 1, "PEAK_WIDTH": 64}.items():
        monkeypatch.setattr(step, name, value)
    (measured,) = printed(capsys, "step")["presets"]
    assert measured["preset"] == "tiny"
    assert min(measured["milliseconds"], measured["milliseconds_plain"], measured["ratio"]) > 0
    assert measured["share_of_peak"] > 0


def test_memory_reads_it_at_even_distances(monkeypatch, capsys):
    for name, value in {"STEPS": 40, "READINGS": 2, "EVALUATE_EVERY": 10}.items():
        monkeypatch.setattr(memory, name, value)
    readings = printed(capsys, "memory")["readings"]
    assert [(each["step"], each["snapshots"]) for each in readings] == [(20, 3), (40, 5)]
    assert all(each["resident"] > 1e7 for each in readings)


def test_page_times_the_list_of_presets():
    assert 0 < page.seconds_to_list_presets() < 60


# --- decode -----------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch) -> None:
    for name, value in {"ROUNDS": 1, "TOKENS": 10, "LONG": 40, "PART": 10}.items():
        monkeypatch.setattr(decoding_speed, name, value)
    for name, value in {"ROUNDS": 1, "SEQUENCES": 20, "ALONE": 2, "PAGES": 1}.items():
        monkeypatch.setattr(bulk_decoding, name, value)


def test_decode_measures_what_it_says(few, capsys):
    said = printed(capsys, "decode")
    measured = said["models"]
    assert [each["parameters"] for each in measured] == [169_933, 930_701]
    for each, d_model in zip(measured, (64, 128), strict=True):
        # Two layers keep a key and a value of d_model numbers of 4 bytes, at any length.
        assert each["cache_bytes_per_token"] == [2 * 2 * 4 * d_model] * 2
        assert min(each["tokens_per_second"], each["sequences_per_second"], *each["seconds_per_token"]) > 0
        assert each["beam_ratio"] > 0
        assert each["beam_ratio_batch"] > 0
    bulk = said["bulk"]
    ratios = bulk.pop("rival_ratios")
    assert list(ratios) == ["64", "256", "1000"] or not find_spec("transformers")
    assert all(value is None or value > 0 for value in (*bulk.values(), *ratios.values()))


def test_decode_measures_models_that_write_on():
    model = decoding_speed._endless({})
    decoded = generate(model, decoding_speed._sources(2), max_steps=80)
    assert decoded.tokens.shape == (2, 80)
    assert not decoded.stopped.any()
    assert model.max_seq_len >= decoding_speed.LONG
