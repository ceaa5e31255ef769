"""Presets: valid and invalid values, error messages, and round trips through YAML."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from core.config import (
    NAME_PATTERN,
    SECTIONS,
    ConfigError,
    Preset,
    load_preset,
    load_preset_file,
    parse_preset,
    preset_names,
    preset_to_yaml,
    read_preset,
    section_classes,
)
from core.config.counting import percent
from core.config.sections import GRUConfig
from core.storage import bounded_yaml
from core.tasks import build_task

TINY_FIELDS = [
    (section, field, info) for section in SECTIONS for field, info in section_classes(section)[0].model_fields.items()
]
RECURRENT_FIELDS = [("model", field, info) for field, info in GRUConfig.model_fields.items()]
# (family, key, a value just outside the limit, the rule) for every limit of every field
OUTSIDE = [
    (family, f"{section}.{field}", value, rule)
    for family, fields in (("transformer", TINY_FIELDS), ("gru", RECURRENT_FIELDS))
    for section, field, info in fields
    for limit in info.metadata
    for value, rule in (
        [(limit.ge - 1, f"greater than or equal to {limit.ge}")]
        if hasattr(limit, "ge")
        else [(limit.le + 1, f"less than or equal to {limit.le}")]
        if hasattr(limit, "le")
        else [(float(limit.gt), f"greater than {limit.gt}")]
        if hasattr(limit, "gt")
        else []
    )
]
NUMBERS = [(f"{section}.{field}", info.annotation) for section, field, info in TINY_FIELDS]
WHOLE = [key for key, kind in NUMBERS if kind is int]
REAL = [key for key, kind in NUMBERS if kind is float]


def refusal(preset: Preset, changes: dict) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        preset.with_changes(changes)
    return caught.value


def test_the_shipped_presets_exist():
    assert {"digits-reversal", "copy-digits", "tiny"} <= set(preset_names())


def test_every_preset_loads_and_survives_yaml():
    for name in preset_names():
        preset = load_preset(name)
        assert preset.name == name
        assert read_preset(preset_to_yaml(preset), name="other") == preset


@pytest.mark.parametrize("fields", [TINY_FIELDS, RECURRENT_FIELDS], ids=["transformer", "gru"])
def test_formatted_yaml_explains_every_field(tiny, tiny_gru, fields):
    text = preset_to_yaml(tiny if fields is TINY_FIELDS else tiny_gru)
    for _, field, info in fields:
        assert re.search(rf"^  {field}: .*{re.escape(info.description or '')}$", text, re.MULTILINE)


def test_a_number_outside_its_range_is_refused_with_field_value_and_rule(tiny, tiny_gru):
    assert len(OUTSIDE) > 40
    for family, key, value, rule in OUTSIDE:
        error = refusal(tiny if family == "transformer" else tiny_gru, {key: value})
        assert f"{key}={value} should be {rule}" in str(error)
        assert key in dict(error.problems)


def test_every_number_has_a_lower_and_an_upper_limit():
    for section, field, info in TINY_FIELDS + RECURRENT_FIELDS:
        if info.annotation in (int, float):
            limits = {name for limit in info.metadata for name in ("ge", "gt", "le", "lt") if hasattr(limit, name)}
            assert limits & {"ge", "gt"}, f"{section}.{field}"
            assert limits & {"le", "lt"}, f"{section}.{field}"


def test_integer_fields_accept_integers_only(tiny):
    for key in WHOLE:
        for value in (True, "5", 5.0, None, [5]):
            assert f"{key}={value!r} should be a valid integer" in str(refusal(tiny, {key: value}))


def test_float_fields_accept_finite_numbers_only(tiny):
    for key in REAL:
        for value in (True, "0.5", None):
            assert f"{key}={value!r} should be a valid number" in str(refusal(tiny, {key: value}))
        for value in (float("nan"), float("inf"), float("-inf")):
            assert f"{key}={value} should be a finite number" in str(refusal(tiny, {key: value}))


def test_a_field_that_is_none_is_written_and_read(tiny):
    training = tiny.training.model_copy(update={"seed": None, "schedule": "None"})
    text = preset_to_yaml(tiny.model_copy(update={"training": training}))
    read = bounded_yaml.load(text)["training"]
    assert (read["seed"], read["schedule"]) == (None, "None")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.d_model": 30, "model.num_heads": 4}, "model.d_model=30 must be divisible by model.num_heads=4"),
        ({"model.d_model": 5, "model.num_heads": 1}, "model.d_model=5 must be even: positions are pairs"),
        ({"task.min_length": 6}, "task.min_length=6 must not be above task.max_length=5"),
        ({"task.min_length": 1, "task.max_length": 2}, "allow only 110 different sequences; at least 1000"),
        ({"task.base": 2}, "allow only 60 different sequences; at least 1000"),
        ({"task.max_length": 15}, "task.max_length=15 with BOS and EOS needs 17 positions"),
        (
            {"training.training_sequences": 90_000},
            "training.training_sequences=90000 must not be above 83325: the task has 111100 different sequences",
        ),
        (
            {"training.steps": 1},
            "training.warmup_steps=2 must not be above training.steps=1; set both, such as training.steps=1 and "
            "training.warmup_steps=1",
        ),
        (
            {"task.transform": "shuffle"},
            "task.transform='shuffle' should be 'reverse', 'copy', 'sort' or 'deduplicate'",
        ),
        ({"training.weight_decay": 0.1}, "training.weight_decay=0.1 must be 0 with training.optimizer='adam'; only"),
        ({"training.schedule": "one-cycle"}, "training.warmup_steps=2 must be 0 with training.schedule='one-cycle'"),
        (
            {"task.family": "number-words", "model.tie_embeddings": "all"},
            "model.tie_embeddings='all' must be 'none' or 'output' with task.family='number-words', whose source and",
        ),
        ({"model.family": "lstm"}, "model.family='lstm' should be 'transformer' or 'decoder-only' or 'encoder-only'"),
        ({"model.family": ["gru"]}, "model.family=['gru'] should be 'transformer' or 'decoder-only' or 'encoder-only'"),
        ({"model.d_hidden": 8}, "model.d_hidden is not a known key; known keys are family, d_model, num_heads"),
        ({"task.family": "chess"}, "task.family='chess' should be 'digits' or 'numbers' or 'words'"),
        ({"model.d_model.x": 3}, "model.d_model.x is not a known key"),
        ({"optimiser.lr": 3}, "optimiser.lr is not a known key; keys look like training.steps"),
        ({"training": {}}, "training is not a known key; keys look like training.steps"),
        ({"name": "x"}, "name is not a known key"),
        ({"": 1}, "is not a known key"),
    ],
    ids=str,
)
def test_a_violated_rule_is_named_with_its_fields_and_values(tiny, changes, message):
    assert message in str(refusal(tiny, changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"task.min_length": 5},
        {"task.min_length": 3, "task.max_length": 3},  # 1,000 sequences, just enough
        {"task.max_length": 14},  # 14 + BOS + EOS are the model's 16 positions
        {"training.steps": 2},
        {"training.learning_rate": 1},  # a whole number is a number
        {"model.tie_embeddings": "all"},
    ],
    ids=str,
)
def test_values_at_the_limits_are_accepted(tiny, changes):
    changed = tiny.with_changes(changes)
    assert {key: own for key, (_, own) in changed.changed_from(tiny).items()} == changes


def test_shared_vocabulary_agrees_with_the_task():
    for config in {load_preset(name).task for name in preset_names()}:
        task = build_task(config)
        is_equal = task.src_vocab.symbols == task.tgt_vocab.symbols
        assert is_equal if config.family == "own-pairs" else config.shared_vocabulary == is_equal  # letters, by chance


def test_one_error_lists_all_problems(tiny):
    error = refusal(tiny, {"model.d_model": 2, "training.steps": 0, "task.transform": "x"})
    assert [field for field, _ in error.problems] == ["task.transform", "model.d_model", "training.steps"]


def test_a_huge_value_is_shortened_in_the_message(tiny):
    assert len(str(refusal(tiny, {"training.steps": "x" * 1_000_000}))) < 200


def test_with_changes_does_not_modify_the_original(tiny):
    changed = tiny.with_changes({"training.steps": 9})
    assert (tiny.training.steps, changed.training.steps) == (8, 9)
    assert changed.changed_from(tiny) == {"training.steps": (8, 9)}
    assert tiny.changed_from(tiny) == {}


def test_presets_are_frozen(tiny):
    with pytest.raises(ValidationError, match="frozen"):
        tiny.training.steps = 5
    with pytest.raises(ValidationError, match="frozen"):
        tiny.name = "other"


def test_d_k_is_the_width_of_one_head(tiny):
    assert tiny.model.d_k * tiny.model.num_heads == tiny.model.d_model


@pytest.mark.parametrize("document", [None, [], "text", 5])
def test_documents_other_than_mappings_are_refused(document):
    with pytest.raises(ConfigError, match="a preset must be a mapping with task, model, training"):
        parse_preset(document)


def test_missing_sections_and_keys_other_than_strings_are_named(tiny):
    with pytest.raises(ConfigError, match="task is missing; model is missing; training is missing"):
        parse_preset({"name": "x", "description": "y"})
    with pytest.raises(ConfigError, match="Keys should be strings"):
        parse_preset(tiny.model_dump() | {1: 2})
    with pytest.raises(ConfigError, match=r"task\.1.* Keys should be strings"):
        read_preset("task: {family: digits, 1: 2}", name="x")
    with pytest.raises(ConfigError, match=r"task\.family is missing; it should be 'digits' or"):
        read_preset("task: {min_length: 2}", name="x")


@pytest.mark.parametrize("name", ["", "-a", "A", "a_b", "../a", "a/b", "a" * 49, "a\n", "ä"])
def test_names_that_cannot_be_file_names_are_refused(tiny, name):
    with pytest.raises(ConfigError, match="name="):
        parse_preset(tiny.model_dump() | {"name": name})


@pytest.mark.parametrize("name", ["nothing", "../tiny", "", "tiny\n", "x.yaml", "/etc/passwd"])
def test_an_unknown_preset_is_refused_with_the_known_ones(name):
    with pytest.raises(ConfigError, match="is not one of addition, addition-10-digits, addition-long, base"):
        load_preset(name)


def test_a_preset_path_too_long_for_the_system_is_refused():
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        load_preset_file(Path("a" * 5_000 + ".yaml"))


def test_a_preset_without_a_name_is_named_after_its_file(tmp_path, tiny):
    path = tmp_path / "My Test_2.yaml"
    path.write_text(preset_to_yaml(tiny).split("\n", 1)[1])
    assert load_preset_file(path).name == "my-test-2"
    path.write_text(preset_to_yaml(tiny))
    assert load_preset_file(path) == tiny


def test_a_file_that_is_not_a_preset_is_refused(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"preset='.*: not UTF-8 text"):
        load_preset_file(path)


def test_a_description_that_looks_like_a_merge_key_survives_yaml(tiny):
    preset = parse_preset(tiny.model_dump() | {"description": "<<"})
    assert read_preset(preset_to_yaml(preset), name="other") == preset


@settings(max_examples=20)  # YAML is slow to parse
@given(
    name=st.from_regex(NAME_PATTERN, fullmatch=True).map(str.strip) | st.sampled_from(["123", "null", "on", "1e5"]),
    description=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=120),
    learning_rate=st.floats(1e-12, 1.0),
    dropout=st.floats(0, 0.9),
    seed=st.integers(0, 2**31 - 1),
    schedule=st.sampled_from(["linear", "constant"]),
)
def test_every_valid_preset_survives_yaml(tiny, name, description, learning_rate, dropout, seed, schedule):
    changes = {"training.learning_rate": learning_rate, "training.seed": seed, "training.schedule": schedule}
    document = tiny.with_changes(changes | {"model.dropout": dropout}).model_dump()
    preset = parse_preset(document | {"name": name, "description": description})
    assert read_preset(preset_to_yaml(preset), name="other") == preset


@pytest.mark.parametrize("name", ["123", "null", "on", "1e5", "0x1f", "1-2", "2001-01-01"])
def test_a_name_that_looks_like_another_yaml_type_survives_yaml(tiny, name):
    preset = parse_preset(tiny.model_dump() | {"name": name})
    assert read_preset(preset_to_yaml(preset), name="other") == preset


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


@given(document=ANYTHING, section=st.sampled_from([*SECTIONS, "name", "description", "x"]), value=ANYTHING)
def test_any_document_gives_a_preset_or_a_config_error(tiny, document, section, value):
    of_a_family = {section: {"family": "gru"} | value} if isinstance(value, dict) else {}
    for candidate in (document, tiny.model_dump() | {section: value}, tiny.model_dump() | of_a_family):
        try:
            assert isinstance(parse_preset(candidate), Preset)
        except ConfigError as error:
            assert error.problems  # noqa: PT017 - no error at all is as good


def test_an_integer_too_long_to_print_is_refused(tiny):
    text = preset_to_yaml(tiny).replace("seed: 0", "seed: 0x" + "F" * 3_900)
    with pytest.raises(ConfigError, match=r"training\.seed"):
        read_preset(text, name="x")


def test_a_task_may_have_more_sequences_than_a_float_can_represent():
    longest = {"task.max_length": 256, "model.max_seq_len": 512}
    assert load_preset("words-reversal-gru").with_changes(longest).task.num_distinct > 1e308


def test_a_model_is_called_by_its_family_or_by_its_recurrent_cell():
    names = ("digits-reversal", "digits-reversal-gru", "digits-reversal-lstm", "digits-reversal-rnn", "masked-digits")
    assert [load_preset(name).model.kind for name in names] == ["transformer", "gru", "lstm", "rnn", "encoder-only"]


@pytest.mark.parametrize(
    ("share", "digits", "written"),
    [
        *((0, 0, "0 %"), (0, 1, "0 %"), (1, 0, "100 %"), (1.0, 1, "100 %"), (0.02, 0, "2 %"), (1.5, 0, "150 %")),
        *((0.137, 1, "13.7 %"), (0.5, 1, "50.0 %"), (0.5, 2, "50.00 %")),
        *((0.004, 0, "0.4 %"), (0.996, 0, "99.6 %"), (0.0004, 0, "< 0.1 %"), (0.9996, 0, "> 99.9 %")),
        *((0.0005, 1, "0.05 %"), (0.99949, 1, "99.9 %"), (0.9996, 1, "99.96 %"), (0.9997, 1, "99.97 %")),
        *((0.00001, 1, "< 0.01 %"), (0.99996, 1, "> 99.99 %"), (0.99996, 2, "99.996 %")),
    ],
)
def test_a_share_is_never_rounded_to_none_or_all(share: float, digits: int, written: str):
    assert percent(share, digits) == written
