"""The document of a sweep: what is refused and why, its trials, and the names of its runs."""

import re
from pathlib import Path

import pytest

from core.config import NAME_PATTERN, ConfigError, load_preset
from core.runs.sweeps import load_sweep
from core.runs.sweeps.folder import SweepFile, check_extension
from core.runs.sweeps.sweep import base_of, parse_sweep
from core.runs.sweeps.trials import extreme_trials, grid_trials, trial_of
from tests.runs.sweeps.conftest import make_sweep

EXAMPLE = Path(__file__).resolve().parents[3] / "presets/sweeps/learning-rate-and-width.yaml"
RATE = {"training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"jobs": 2}, "jobs is not a known key; known keys are name, preset"),
        ({"axes": {}}, "axes is empty"),
        ({"axes": {"model.d_model": []}}, "axes.model.d_model is empty"),
        ({"axes": {5: [1]}}, "axes.5 is not a key of presets"),
        ({"preset": ""}, "preset is empty"),
        ({"goal": 5}, "goal=5 should be a mapping"),
        ({"seeds": "a"}, "seeds='a' should be a valid integer or a list of seeds"),
        ({"seeds": ["a"]}, "seeds.0='a' should be a valid integer"),
        ({"axes": {"modl.d_model": [1]}}, "axes.modl.d_model is not a key of presets"),
        ({"axes": {"model.d_model": 5}}, "axes.model.d_model=5 should be a list or a range with low and high"),
        (
            {"axes": {"model.d_model": [[1]]}},
            "axes.model.d_model.0=[1] should be a finite number, a text, true, false or null",
        ),
        (
            {"axes": {"model.dropout": [float("nan")]}},
            "axes.model.dropout.0=nan should be a finite number, a text, true, false or null",
        ),
        ({"axes": {"model.d_model": [32, 64, 32]}}, "axes.model.d_model lists 32 twice"),
        ({"axes": {"model.dropout": [0, 0.0]}}, "axes.model.dropout lists 0.0 twice"),
        ({"axes": {"model.tie_embeddings": [False, True, False]}}, "axes.model.tie_embeddings lists False twice"),
        ({"axes": {"model.attention_window": [None, None]}}, "axes.model.attention_window lists None twice"),
        ({"axes": {"training.seed": [1]}}, "training.seed must not be set or be an axis; list the seeds in seeds"),
        ({"set": {"training.seed": 1}}, "training.seed must not be set or be an axis"),
        ({"set": {"model.d_model": 8}}, "set.model.d_model must be left out, because model.d_model is an axis"),
        (
            {"axes": {"training.steps": [5, 6]}, "goal": {"updates": 5}},
            "training.steps is already given by goal.update",
        ),
        ({"seeds": 0}, "seeds=0 should be greater than or equal to 1"),
        ({"seeds": [3, 3]}, "seeds lists 3 twice"),
        ({"seeds": [0, 1, 0]}, "seeds lists 0 twice"),
        ({"seeds": 10**99}, f"seeds=1{58 * '0'}… should be less than or equal to 100"),
        ({"seeds": [-1]}, "seeds.0=-1 should be greater than or equal to 0"),
        ({"goal": {"metric": "accuracy"}}, "goal.metric='accuracy' should be 'validation_loss', 'free_running_loss'"),
        ({"goal": {"updates": 5, "minutes": 1}}, "goal.updates=5 and goal.minutes=1.0: give one of them"),
        ({"axes": RATE}, "axes.training.learning_rate is a range, of which search='grid' needs a list"),
        ({"trials": 5}, "trials=5 must be left out with search='grid'"),
        ({"search": "tpe"}, "trials is missing; search='tpe' needs the number of settings to draw"),
        ({"axes": {"a.b": {}}}, "axes.a.b is not a key of presets"),
        ({"name": "X"}, "name='X' should be a-z, 0-9 and -, at most 20 of the 48 characters of a run's name"),
        ({"search": "random", "trials": 10**9}, "trials=1000000000 should be less than or equal to 10000"),
        (
            {"axes": {f"model.{'a' * (i + 1)}": list(range(10)) for i in range(9)}, "seeds": 1},
            "trials × seeds = 1,000,000,000 × 1 = 1,000,000,000 runs; at most 10,000 are allowed",
        ),
    ],
)
def test_a_bad_sweep_is_refused_by_field_and_rule(fields, message):
    with pytest.raises(ConfigError) as refused:
        make_sweep(**fields)
    assert str(refused.value).startswith(message)
    assert ("is empty" in str(refused.value)) == ("is empty" in message)


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ({"low": 2, "high": 1}, "low=2 must be below high=1"),
        ({"low": 0.0, "high": 1.0, "log": True}, "low=0.0 must be above 0 with log=True"),
        ({"low": 1, "high": 9, "log": True, "step": 2}, "step=2 must be left out with log=True"),
        ({"low": 1.0, "high": 9.0, "step": 2}, "step=2 needs integers as low and high"),
        ({"low": 1}, "axes.model.d_model.high is missing"),
        ({"low": 1, "hihg": 2}, "axes.model.d_model.hihg is not a known key; known keys are low, high, log, step"),
        ({"low": float("nan"), "high": 1.0}, "axes.model.d_model.low=nan should be a finite number"),
        ({"low": 0, "high": float("inf")}, "axes.model.d_model.high=inf should be a finite number"),
        ({"low": "a", "high": 1}, "axes.model.d_model.low='a' should be a finite number"),
        ({"low": True, "high": 2}, "axes.model.d_model.low=True should be a finite number"),
        ({"low": 1, "high": 2, "log": 1}, "axes.model.d_model.log=1 should be true or false"),
        ({"low": 1, "high": 2, "step": 0.1}, "axes.model.d_model.step=0.1 should be a valid integer"),
    ],
)
def test_a_bad_range_is_refused(axis, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make_sweep(axes={"model.d_model": axis}, search="random", trials=3)


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"model.d_model": [32, 31]}, "model.d_model=31 must be divisible by model.num_heads=2"),
        (
            {"model.d_model": [32, 31], "model.d_ff": [8]},
            "model.d_model=31, model.d_ff=8: model.d_model=31 must be divisible by model.num_heads=2",
        ),
        ({"model.width": [32]}, "model.width=32: model.width is not a known key"),
        ({"training.learning_rate": [0.1, 2]}, "training.learning_rate=2 should be less"),
        ({"training.learning_rate": ["abc"]}, "training.learning_rate='abc' should be a valid number"),
    ],
)
def test_a_grid_with_an_invalid_preset_is_refused_with_its_settings(tiny, axes, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        grid_trials(make_sweep(axes=axes), tiny)


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ({"model.norm": {"low": 1, "high": 2}}, "axes.model.norm is a range, but model.norm='post' is not a number"),
        ({"model.d_model": {"low": 16.0, "high": 32}}, "low=16.0 and high=32 must be integers"),
        ({"training.learning_rate": {"low": 0.1, "high": 2.0}}, "training.learning_rate=2.0 should be less"),
        ({"training.learning_rate": {"low": 0, "high": 1, "step": 1}}, "step=1 is for integers"),
        (
            {"model.d_model": {"low": 16, "high": 40, "step": 16}},
            "axes.model.d_model: high=40 must be low=16 plus a multiple of step=16",
        ),
    ],
)
def test_a_range_beyond_what_presets_allow_is_refused(tiny, axis, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        extreme_trials(make_sweep(axes=axis, search="random", trials=3), tiny)


@pytest.mark.parametrize(
    ("widths", "heads"),
    [([32, 48, 96], [2, 3]), ({"low": 16, "high": 48, "step": 16}, [3]), ([48], {"low": 3, "high": 4})],
)
def test_a_value_that_some_combination_allows_is_not_refused(tiny, widths, heads):
    axes = {"model.d_model": widths, "model.num_heads": heads}
    trials = extreme_trials(make_sweep(axes=axes, search="random", trials=3), tiny)
    assert all(each.preset.model.d_model % each.preset.model.num_heads == 0 for each in trials)
    with pytest.raises(ConfigError, match=r"d_model=16 must be divisible by model\.num_heads=3"):
        extreme_trials(make_sweep(axes={"model.num_heads": [3]}, search="random", trials=3), tiny)


def test_the_file_must_be_a_mapping_of_yaml(tmp_path):
    path = tmp_path / "a.yaml"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_sweep(path)
    for text, message in (("- 1", "must be a mapping"), ("a: [", "not valid YAML"), ("a: &x 1", "anchors")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_sweep(path)


def test_a_file_without_a_name_is_named_after_itself(tmp_path):
    path = tmp_path / "My first_sweep of many rates.yaml"
    path.write_text("preset: tiny\naxes: {model.d_model: [16]}\n")
    assert load_sweep(path).name == "my-first-sweep-of-ma"


def test_the_shipped_example_is_valid():
    sweep = load_sweep(EXAMPLE)
    base, pairs = base_of(sweep, EXAMPLE.parent)
    trials = grid_trials(sweep, base)
    assert (len(trials), sweep.num_runs, pairs) == (12, 60, None)
    assert {trial.preset.training.steps for trial in trials} == {sweep.goal.updates}


def test_a_trial_is_the_preset_with_its_values_and_nothing_else(tiny):
    sweep = make_sweep(set={"model.dropout": 0.1}, goal={"updates": 6}, seeds=[4, 9])
    trial = trial_of(sweep, tiny, {"model.d_model": 32, "training.learning_rate": 0.003})
    assert {key: new for key, (_, new) in trial.run_preset(9).changed_from(tiny).items()} == {
        "model.d_model": 32,
        "model.dropout": 0.1,
        "training.steps": 6,
        "training.learning_rate": 0.003,
        "training.seed": 9,
    }


def test_names_of_runs_are_valid_and_stay_when_values_and_seeds_are_added(tiny):
    sweep = make_sweep(name="x" * 20, seeds=[0, 2**31 - 1])
    more = {"model.d_model": [64, 32, 16], "training.learning_rate": [0.01, 0.003, 0.1]}
    names = {trial.name for trial in grid_trials(sweep, tiny)}
    assert len(names) == 4
    assert names < {trial.name for trial in grid_trials(make_sweep(name="x" * 20, axes=more, seeds=5), tiny)}
    for trial in grid_trials(sweep, tiny):
        assert re.fullmatch(NAME_PATTERN, trial.run(2**31 - 1))
    short = grid_trials(make_sweep(), tiny)[0].run(0)
    assert re.fullmatch(r"s-dm16-lr0-003-[0-9a-z]{7}-seed-0", short)


def test_numbers_of_seeds_start_at_that_of_the_preset(tiny):
    assert make_sweep(seeds=3).seeds_from(tiny.with_changes({"training.seed": 7})) == (7, 8, 9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"goal": {"updates": 3}}, "goal: it has changed since the sweep was begun"),
        ({"axes": {"model.d_model": [16, 32]}}, "axes: the sweep was begun with model.d_model, training.learning_rate"),
        (
            {"axes": {"model.d_model": [32, 64], "training.learning_rate": [0.003, 0.01]}},
            "axes.model.d_model: the sweep was begun with 16 too",
        ),
        ({"seeds": 1}, "seeds: the sweep was begun with seed 1 too"),
        ({"seeds": [1, 0]}, "seeds: the first seed must stay 0"),
    ],
)
def test_only_more_of_the_same_extends_a_sweep(tiny, fields, message):
    old = SweepFile(sweep=make_sweep(), base=tiny)
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_extension(old, SweepFile(sweep=make_sweep(**fields), base=tiny), extend=True)


def test_an_extension_must_be_meant(tiny):
    old, new = (SweepFile(sweep=make_sweep(seeds=seeds), base=tiny) for seeds in (2, 3))
    with pytest.raises(ConfigError, match="pass --extend"):
        check_extension(old, new, extend=False)
    check_extension(old, new, extend=True)
    axes = {"model.d_model": [32, 16], "training.learning_rate": [0.003, 0.01]}
    same = make_sweep(seeds=[0, 1], axes=axes, resources={"cpus": 2})
    check_extension(old, SweepFile(sweep=same, base=tiny), extend=False)
    other = SweepFile(sweep=make_sweep(seeds=3), base=tiny.with_changes({"training.batch_size": 9}))
    with pytest.raises(ConfigError, match=r"training.batch_size of the base preset has changed"):
        check_extension(old, other, extend=True)


def test_a_sweep_is_read_back_as_it_was_written(tiny):
    sweep = parse_sweep(
        {"name": "s", "preset": "tiny", "axes": RATE | {"model.norm": ["pre", "post"]}, "search": "tpe", "trials": 3}
    )
    file = SweepFile(sweep=sweep, base=load_preset("tiny"))
    assert SweepFile.model_validate_json(file.model_dump_json()) == file
