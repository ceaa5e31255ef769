"""Sections with several families: validation, error messages, and changing the family."""

import pytest

from core.config import ConfigError, parse_preset, preset_to_yaml, read_preset
from core.config.sections import GRUConfig


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"model.d_hidden": 0}, "model.d_hidden", "model.d_hidden=0 should be greater than or equal to 2"),
        ({"model.d_hidden": "8"}, "model.d_hidden", "model.d_hidden='8' should be a valid integer"),
        ({"model.mask_padding": 1}, "model.mask_padding", "model.mask_padding=1 should be true or false"),
        ({"model.d_model": 8}, "model.d_model", "model.d_model is not a known key; known keys are family, d_embedding"),
        ({"model.gru": 8}, "model.gru", "model.gru is not a known key; known keys are family, d_embedding"),
        ({"task.max_length": 15}, "preset", "more than model.max_seq_len=16"),
    ],
    ids=str,
)
def test_problems_of_another_family_are_named_by_field(tiny_gru, changes, field, message):
    with pytest.raises(ConfigError) as caught:
        tiny_gru.with_changes(changes)
    assert message in str(caught.value)
    assert [problem[0] for problem in caught.value.problems] == [field]


@pytest.mark.parametrize("model", [{}, {"d_model": 16}, {1: 2}, None, [], "gru"], ids=str)
def test_a_model_without_a_family_is_refused(tiny, model):
    with pytest.raises(ConfigError, match="model"):
        parse_preset(tiny.model_dump() | {"model": model})


def test_a_new_family_keeps_shared_fields_and_uses_its_defaults(tiny):
    changed = tiny.with_changes({"model.family": "gru", "model.d_hidden": 32})
    assert changed.model == GRUConfig(d_hidden=32, max_seq_len=16, dropout=0.0)
    assert changed.changed_from(tiny) == {
        "model.family": ("transformer", "gru"),
        "model.d_embedding": (None, 128),
        "model.d_hidden": (None, 32),
        "model.num_layers": (None, 2),
        "model.mask_padding": (None, True),
        "model.cell": (None, "gru"),
        "model.attention_type": (None, "additive"),
    }
    with pytest.raises(ConfigError, match=r"model\.d_model is not a known key"):
        tiny.with_changes({"model.family": "gru", "model.d_model": 16})


def test_applying_the_changes_between_two_presets_converts_one_to_the_other(tiny, tiny_gru):
    for one, other in ((tiny, tiny_gru), (tiny_gru, tiny)):
        changes = {key: value for key, (_, value) in other.changed_from(one).items()}
        assert one.with_changes(changes) == other


def test_a_preset_of_another_family_survives_yaml(tiny_gru):
    assert read_preset(preset_to_yaml(tiny_gru), name="other") == tiny_gru
