"""The page over a recurrent model, which has cross-attention only."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.config import Preset
from core.server import Runs
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from tests.support.run_helpers import wait_for_status
from tests.ui.addresses import address_of
from tests.ui.packed import unpacked
from tests.ui.server_functions import call
from ui import page
from ui.attention_blocks import BLOCK_NAMES
from ui.components.attention_viewer import attention_value, attention_viewer
from ui.components.why_answer import WhyRequest, why
from ui.current_decode import CurrentDecode
from ui.forms import preset_form
from ui.forms.preset_form import Draft, form_base
from ui.interventions import InterventionSpec
from ui.run_info import settings_line
from ui.tabs import attention, train

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
def answered(lab: Runs) -> dict:
    """What the page shows of a decode."""
    return page._decode(lab, RUN, "4829")


def test_a_recurrent_model_shows_only_cross_attention(answered):
    decoded: CurrentDecode = answered["current_decode"]
    assert [decoded.num_layers(block) for block in BLOCK_NAMES] == [1, 0, 0]
    record = answered["viewer"]["decode"]
    assert [each["block"] for each in record["blocks"]] == ["cross"]
    assert "encoder is recurrent" in record["blocks"][0]["caption"]
    weights = unpacked(record["maps"]["cross"])
    assert weights.shape == (1, 1, len(record["tokens"]), 6)
    assert np.allclose(weights.sum(axis=-1), 1, atol=1e-3)


def test_the_address_contains_run_and_input(answered):
    assert address_of(answered) == {"run": RUN, "input": "4829"}


def test_its_training_can_be_replayed(lab):
    record = call(attention_viewer(lab), "replay", {"run": RUN})
    assert record["saved_steps"] == [each["step"] for each in record["snapshots"]] == [0, 4, 8]
    assert [each["block"] for each in record["blocks"]] == ["cross"]
    assert record["scored_block"] == "cross"


def test_a_model_without_attention_decodes_and_explains_without_heads(lab, tiny_gru):
    lab.start(tiny_gru.with_changes({"model.attention_type": "none"}), name="without")
    wait_for_status(lab, "without", "finished", "failed")
    answered = page._decode(lab, "without", "4829")
    assert answered["answer"]["steps"]
    assert (answered["answer"]["record"], answered["answer"]["has_heads"]) == (None, False)
    assert answered["viewer"]["decode"] is None
    assert "no attention heads" in answered["viewer"]["problem"]
    updates = attention.run_updates(lab, "without", InterventionSpec())
    assert updates["importance"]["visible"] is False
    asked = {"run": "without", "step": 0} | {name: answered["why"][name] for name in ("source", "tokens")}
    found = why(lab, WhyRequest(**asked, method="tokens"))
    assert found["methods"][0]["name"] == "integrated gradients"
    assert found["zeroing"] == []
    assert "this model has none" in found["limits"][-1]
    patched = why(lab, WhyRequest(**asked, method="patching"))
    assert {grid["name"] for grid in patched["grids"]} == {"states"}
    with pytest.raises(InputError, match="no attention heads"):
        lab["without"].trained().score_heads()


def test_a_decode_shows_head_thumbnails(answered):
    message, answer, thumbnails = (answered[name] for name in ("message", "answer", "thumbnails"))
    assert "best weights" in message["text"]
    assert len(answer["steps"]) == len(thumbnails["rows"])


def opened_with(preset: Preset) -> tuple[Draft, dict]:
    """What a form holds that opened with a preset: the draft, and the fields."""
    draft = Draft(form_base(preset), preset, edition=1)
    return draft, preset_form.opened_fields(draft)


def test_the_form_has_a_field_for_every_setting_of_the_family(tiny_gru):
    draft, fields = opened_with(tiny_gru)
    kinds = {each["key"]: each["kind"] for section in fields["sections"] for each in section["fields"]}
    assert kinds["model.mask_padding"] == "check"
    assert kinds["training.optimizer"] == "choice"
    assert kinds["training.teacher_forcing_ratio"] == "number"
    assert "model.d_model" not in kinds
    assert preset_form.preset_in(draft, fields) == tiny_gru


def test_a_form_of_another_family_than_the_shipped_preset_is_valid(lab, tiny_gru):
    draft = train.first_draft(lab, RUN)  # there is a preset "tiny", of a Transformer
    assert draft.base == draft.start == tiny_gru
    updates = preset_form.check(VisitorRuns(Runs(Path("nowhere"))), *opened_with(tiny_gru))
    summary, fields = updates["summary"], updates["fields"]
    assert "problem" not in summary
    assert "changed" not in summary["text"]
    shown = [each for section in fields["sections"] for each in section["fields"]]
    assert not any(each["invalid"] or each["hint"].startswith("changed") for each in shown)


def test_the_settings_line_lists_a_changed_family(lab):
    line = settings_line(lab[RUN])
    assert "model.family transformer → gru" in line
    assert "model.d_hidden 12" in line
    assert "None" not in line


def test_the_viewer_is_empty_without_a_decode():
    shown = attention_value(None, run=RUN, problem="the input is too long")
    assert shown == {"run": RUN, "decode": None, "problem": "the input is too long", "selection": {}, "asked": None}
