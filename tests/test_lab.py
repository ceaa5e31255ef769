"""The names that notebooks use do what they say, and stay."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core import lab
from core.generation import Beam
from core.interpret.inspection import inspect as inspect_input
from core.runs import RunError, RunFolder
from core.text.vocab import BOS, EOS
from core.training.loop import EndEvent, EvaluationEvent, StepEvent
from tests.serving import SHIPPED

PUBLIC = {
    "Run": "(loaded, interventions)",
    "diagnose": "(forward, src, tgt, pad, bos, eos, loss, model, optimizer, batch_first, step)",
    "load": "(name, root)",
    "presets": "()",
    "runs": "(root)",
    "train": "(preset, changes, name, root, on_event)",
}
METHODS = {
    "ablate": "(self, heads, ablation, patterns)",
    "attention": "(self, text, strategy)",
    "decode": "(self, text, strategy, prefix)",
    "evaluate": "(self, sequences, split)",
    "patch": "(self, text, changed, step, foil)",
}
CHANGES = {"training.steps": 4, "training.warmup_steps": 1, "training.evaluate_every": 2}


@pytest.fixture(scope="module")
def run() -> lab.Run:
    return lab.load(SHIPPED)


def parameters(function) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"


def test_the_public_names_and_their_parameters_stay():
    assert {name: parameters(getattr(lab, name)) for name in lab.__all__} == PUBLIC
    methods = {name: value for name, value in vars(lab.Run).items() if inspect.isfunction(value) and name[0] != "_"}
    assert {name: parameters(method) for name, method in methods.items()} == METHODS


def test_importing_core_imports_neither_torch_nor_the_library():
    program = "import sys, core; print('torch' in sys.modules, 'core.lab' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_the_shipped_run_is_listed_and_decodes(run):
    assert SHIPPED in lab.runs()
    assert "tiny" in lab.presets()
    assert run.decode("4 8 2 9").output == ["9", "2", "8", "4"]
    beams = run.decode("4 8 2 9", strategy=Beam(beam_size=3), prefix="9")
    assert beams.output[0] == "9"
    assert beams.hypotheses


def test_attention_is_what_the_decode_recorded_with_its_tokens(run):
    maps, decoded = run.attention("4 8 2 9"), inspect_input(run.model, run.task, "4 8 2 9")
    assert tuple(maps) == run.heads
    cross = maps["cross.2.2"]
    assert list(cross.columns) == [BOS, "4", "8", "2", "9", EOS]
    assert list(cross.index) == [step.produced for step in decoded.steps]
    assert torch.equal(torch.from_numpy(cross.to_numpy()), decoded.maps.cross[1, 0, 1])
    assert torch.equal(torch.from_numpy(maps["encoder.1.1"].to_numpy()), decoded.maps.encoder[0, 0, 0])
    assert list(maps["decoder.1.1"].columns) == [step.read for step in decoded.steps]
    assert maps["encoder.1.1"].sum(axis=1).to_numpy() == pytest.approx(1)


@pytest.mark.parametrize("family", ["decoder-only", "gru"])
def test_attention_of_other_families_has_a_row_for_each_token_produced(family, tiny, tmp_path):
    run = lab.train(tiny, changes={"model.family": family}, name="mine", root=tmp_path)
    maps, decoded = run.attention("4 8 2 9"), run.decode("4 8 2 9")
    assert tuple(maps) == run.heads
    for name, table in maps.items():
        assert list(table.index) == [step.produced for step in decoded.steps], name
        assert list(table.columns[:6]) == [BOS, "4", "8", "2", "9", EOS]


def test_ablation_changes_another_run_and_leaves_this_one(run):
    without = run.ablate("cross.2")
    assert without.decode("4 8 2 9").output != ["9", "2", "8", "4"]
    assert without.evaluate(100).exact_match < 0.1 < run.evaluate(100).exact_match
    assert run.decode("4 8 2 9").output == ["9", "2", "8", "4"]
    assert "cross.2.1" in repr(without)
    diagonal = run.ablate(patterns=["cross.2.2=diagonal"]).attention("4 8 2 9")["cross.2.2"]
    assert diagonal.to_numpy().argmax(axis=1).tolist() == [1, 2, 3, 4, 5]


def test_patching_the_whole_residual_stream_restores_the_answer(run):
    patched = run.patch("4 8 2 9", "4 8 2 5", step=0)
    assert patched.changed == (4,)
    assert patched.grid("residual stream", "encoder").whole == pytest.approx(1, abs=1e-4)
    assert run.patch("4 8 2 9").corrupted != ("4", "8", "2", "9")


def test_training_saves_a_run_and_reports_every_event(tmp_path):
    events = []
    trained = lab.train("tiny", changes=CHANGES, name="mine", root=tmp_path, on_event=events.append)
    assert [type(event) for event in events] == [
        EvaluationEvent, StepEvent, StepEvent, EvaluationEvent, StepEvent, StepEvent, EvaluationEvent, EndEvent,
    ]  # fmt: skip
    assert (trained.name, trained.preset.training.steps, lab.runs(tmp_path)) == ("mine", 4, ["mine"])
    with pytest.raises(RunError, match="mine"):
        lab.train("tiny", changes=CHANGES, name="mine", root=tmp_path)


def test_an_error_in_the_callers_function_ends_the_training_and_frees_the_folder(tmp_path):
    def fail(event):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        lab.train("tiny", changes=CHANGES, name="mine", root=tmp_path, on_event=fail)
    folder = RunFolder(tmp_path, "mine")
    assert folder.info().status == "failed"
    folder.lock().release()  # nobody holds it
