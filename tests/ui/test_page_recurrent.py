"""The page over a model that has nothing but cross-attention: it shows that, and asks for nothing else."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import gradio as gr
import numpy as np
import pytest

from core.config import Preset
from core.server import Runs
from core.server.access import VisitorRuns
from tests.support.run_helpers import wait_for_status
from tests.ui.packed import unpacked
from tests.ui.server_functions import call
from ui import page
from ui.attention_blocks import BLOCK_NAMES
from ui.components.attention_viewer import attention_value, attention_viewer
from ui.current_decode import CurrentDecode
from ui.forms import preset_form
from ui.forms.preset_form import Draft, form_base
from ui.forms.setting_controls import all_settings, control, value_in
from ui.run_info import settings_line
from ui.tabs import train

RUN = "recurrent"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, tiny_gru: Preset) -> Iterator[Runs]:
    """A lab whose one run is a GRU's."""
    root: Path = tmp_path_factory.mktemp("checkpoints")
    runs = Runs(root)
    runs.start(tiny_gru, name=RUN)
    wait_for_status(runs, RUN, "finished", "failed")
    yield runs
    runs.close()


@pytest.fixture(scope="module")
def answered(lab: Runs) -> list:
    """What the page shows of a decode."""
    return page._decode(lab, RUN, "4829")


def test_only_cross_attention_is_offered_and_shown(answered):
    seen: CurrentDecode = answered[0]
    assert [seen.num_layers(block) for block in BLOCK_NAMES] == [1, 0, 0]
    told = answered[-2]["decode"]
    assert [each["block"] for each in told["blocks"]] == ["cross"]
    assert "encoder is recurrent" in told["blocks"][0]["caption"]
    weights = unpacked(told["maps"]["cross"])
    assert weights.shape == (1, 1, len(told["tokens"]), 6)
    assert np.allclose(weights.sum(axis=-1), 1, atol=1e-3)


def test_the_address_tells_what_was_decoded(answered):
    assert parse_qs(answered[-1]) == {"run": [RUN], "input": ["4829"]}


def test_its_training_can_be_replayed(lab):
    told = call(attention_viewer(lab), "replay", {"run": RUN})
    assert told["saved_steps"] == [each["step"] for each in told["snapshots"]] == [0, 4, 8]
    assert [each["block"] for each in told["blocks"]] == ["cross"]
    assert told["scored_block"] == "cross"


def test_the_decode_shows_the_map_at_a_glance(answered):
    _, message, answer, _, glance, *_ = answered
    assert "best weights" in message["text"]
    assert len(answer["steps"]) == len(glance["rows"])


def filled_with(preset: Preset) -> tuple[list, list]:
    """The settings, and what a form that opened with a preset holds."""
    settings = all_settings()
    values = [value_in(preset, each) if each.applies_to(preset) else None for each in settings]
    return settings, [Draft(form_base(preset), preset, edition=1), 1, *values]


def test_the_form_has_a_control_for_every_setting_and_gives_the_preset_back(tiny_gru):
    settings, filled = filled_with(tiny_gru)
    with gr.Blocks():
        controls = {each.key: control(each) for each in settings if each.applies_to(tiny_gru)}
    assert isinstance(controls["model.mask_padding"], gr.Checkbox)
    assert isinstance(controls["training.optimizer"], gr.Radio)
    assert isinstance(controls["training.teacher_forcing_ratio"], gr.Number)
    assert "model.d_model" not in controls
    assert preset_form.preset_in(settings, *filled) == tiny_gru


def test_a_form_of_another_family_than_the_preset_of_its_name_opens_and_checks(lab, tiny_gru):
    draft = train.first_draft(lab, RUN)  # there is a preset "tiny", of a Transformer
    assert draft.base == draft.start == tiny_gru
    settings, filled = filled_with(tiny_gru)
    summary, _, *hints = preset_form.check(VisitorRuns(Runs(Path("nowhere"))), settings, *filled)
    assert "problem" not in summary
    assert "changed" not in summary["text"]
    assert not any(hint["info"].startswith(("changed", "✗")) for hint in hints)


def test_the_settings_of_a_run_tell_that_its_family_was_changed(lab):
    line = settings_line(lab, RUN)
    assert "model.family transformer → gru" in line
    assert "model.d_hidden 12" in line
    assert "None" not in line


def test_nothing_decoded_yet_shows_nothing():
    assert attention_value(None, run=RUN) == {"run": RUN, "decode": None, "selection": {}}
