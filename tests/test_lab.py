"""The names that notebooks use do what they say, and stay."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure
from torch import nn

from core import lab, plugins
from core.__main__ import main
from core.config import ConfigError, load_preset
from core.generation import Beam
from core.interpret.head_table import measure_heads
from core.interpret.inspection import inspect as inspect_input
from core.runs import RunError, RunFolder
from core.storage.errors import InputError
from core.tasks import fixed_pairs
from core.text.vocab import BOS, EOS
from core.training import memory
from tests.serving import SHIPPED

PUBLIC = {
    "EndEvent": "(step, reason, message)",
    "EvaluationEvent": "(step, evaluation, is_best, train_loss)",
    "Run": "(folder, cache, pairs)",
    "Runs": "(root, pairs)",
    "StepEvent": "(step, loss, learning_rate, gradient_norm, tokens_per_second)",
    "Trained": "(run, kind, step, preset, task, model, facts, interventions)",
    "Watch": "(folder, call, model, batch, pad, optimizer, every, step)",
    "attention": "(forward, src, tgt_in, pair, model, pad, src_vocab, tgt_vocab, batch_first)",
    "diagnose": "(forward, src, tgt, pad, bos, eos, loss, model, optimizer, batch_first, step, "
    "src_pad, tgt_pad, decode)",
    "gradients": "(model)",
    "import_model": "(module, src, tgt_in, model, name, root, source_tokens, target_tokens, pairs, batch_first, "
    "pad, bos, eos, unk, src_pad, src_bos, src_eos)",
    "load": "(name, root)",
    "plot_attention": "(table, ax)",
    "presets": "()",
    "runs": "(root)",
    "train": "(preset, changes, name, root, on_event, start_from)",
    "watch": "(forward, batch, name, root, model, pad, src_vocab, tgt_vocab, batch_first, optimizer, every, "
    "steps, resume, step)",
}
METHODS = {
    "ablate": "(self, heads, ablation, patterns)",
    "attention": "(self, text, strategy)",
    "changed": "(self)",
    "decode": "(self, text, strategy, prefix)",
    "evaluate": "(self, sequences, split)",
    "fourier_power": "(self)",
    "patch": "(self, text, changed, step, foil)",
    "score_heads": "(self, sequences, split)",
    "with_pairs": "(self, pairs)",
}
IDS, HEAD = torch.tensor([[1, 5, 2]]), pd.DataFrame([[1.0]])
CHANGES = {"training.steps": 4, "training.warmup_steps": 1, "training.evaluate_every": 2}


@pytest.fixture(scope="module")
def run() -> lab.Trained:
    return lab.load(SHIPPED)


def parameters(function) -> str:
    return f"({', '.join(inspect.signature(function).parameters)})"


def test_the_public_names_and_their_parameters_stay():
    assert {name: parameters(getattr(lab, name)) for name in lab.__all__} == PUBLIC
    methods = {name: value for name, value in vars(lab.Trained).items() if inspect.isfunction(value) and name[0] != "_"}
    assert {name: parameters(method) for name, method in methods.items()} == METHODS


def test_importing_core_imports_neither_torch_nor_the_library():
    program = "import sys, core; print('torch' in sys.modules, 'core.lab' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False"]


def test_importing_lab_imports_neither_the_page_nor_what_only_figures_need():
    program = (
        "import json, sys; from core import lab; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    assert {"core", "torch"} <= loaded
    assert loaded & {"ui", "gradio", "fastapi", "matplotlib", "pandas", "scipy", "sacrebleu", "sentencepiece"} == set()


def test_the_shipped_run_is_listed_and_decodes(run):
    assert SHIPPED in lab.runs()
    assert "tiny" in lab.presets()
    assert run.decode("4 8 2 9").output == ["9", "2", "8", "4"]
    beams = run.decode("4 8 2 9", strategy=Beam(beam_size=3), prefix="9")
    assert beams.output[0] == "9"
    assert beams.text == " ".join(beams.output)
    assert beams.hypotheses


def test_the_text_of_a_translation_has_words_for_its_subwords():
    decoded = lab.load("translate-en-de-shipped").decode("Choose Insert - Table.")
    assert "▁" in "".join(decoded.output)
    assert len(decoded.text.split()) < len(decoded.output)
    assert "▁" not in decoded.text


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
    run = lab.train(tiny, changes={"model.family": family}, name="mine", root=tmp_path).trained()
    maps, decoded = run.attention("4 8 2 9"), run.decode("4 8 2 9")
    assert tuple(maps) == run.heads
    for name, table in maps.items():
        assert list(table.index) == [step.produced for step in decoded.steps], name
        assert list(table.columns[:6]) == [BOS, "4", "8", "2", "9", EOS]


def test_ablation_changes_another_run_and_leaves_this_one(run):
    without = run.ablate("cross.2")
    both = run.ablate("cross.1.1").ablate("cross.2", "cross.1.1")
    assert repr(both) == repr(run.ablate("cross.1.1", "cross.2"))
    assert repr(without.ablate()) == repr(without)
    assert without.decode("4 8 2 9").output != ["9", "2", "8", "4"]
    assert without.evaluate(100).exact_match < 0.1 < run.evaluate(100).exact_match
    assert run.decode("4 8 2 9").output == ["9", "2", "8", "4"]
    assert "cross.2.1" in repr(without)
    diagonal = run.ablate(patterns="cross.2.2=diagonal").attention("4 8 2 9")["cross.2.2"]
    assert diagonal.to_numpy().argmax(axis=1).tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.ablate("cross", ablation="Zero"), "ablation='Zero' is not one of zero, mean"),
        (
            lambda run: run.ablate("cross.1.1").ablate("cross.2.1", ablation="mean"),
            "ablation='mean' must be 'zero', as of what is ablated already: cross.1.1",
        ),
        (lambda run: run.evaluate(-1), "sequences=-1 must be at least 1"),
        (lambda run: run.score_heads(0), "sequences=0 must be at least 1"),
        (lambda run: run.evaluate(9, split="valid"), "split='valid' is not one of train, validation, test"),
        (lambda run: run.decode(["4", "8"]), "text=['4', '8'] must be a text"),
        (lambda run: run.decode("4 8", strategy="beam"), "strategy='beam' must be of core.generation"),
        (lambda run: run.ablate(["cross.2.1"]), "heads=['cross.2.1'] must be names, such as 'cross.2.1'"),
        (lambda run: run.patch(["4", "8"], "4 8"), "text=['4', '8'] must be a text"),
        (lambda run: run.patch("4 8", ["4", "8"]), "changed=['4', '8'] must be a text"),
        (lambda run: run.patch("4 8 2 9", "4 8 2 5", step=1.0), "step=1.0 must be a whole number"),
        (lambda run: run.patch("4 8 2 9", "4 8 2 5", step=5), "step=5 is not a step of this answer, which has 0 to 4"),
        (lambda run: run.patch("4 8 2 9", "4 8 2 5").grid("heads", "self"), "grid=heads, self is not one of: residual"),
        (lambda run: run.with_pairs("my/pairs.tsv"), "pairs='my/pairs.tsv': run='digits-reversal-shipped' was not"),
    ],
)
def test_an_odd_argument_is_refused_by_its_name(run, call, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call(run)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: lab.train(3), "preset is an int; it must be a preset, its name, its sections or a Path"),
        (lambda run: lab.train(["tiny"]), "preset is a list; it must be"),
        (lambda run: lab.train("mine.yaml"), "preset='mine.yaml' is no name of a preset; pass a file as Path('mine."),
        (lambda run: lab.train("tiny", changes="training.steps=3"), "changes='training.steps=3' must be settings by"),
        (lambda run: lab.train("tiny", changes=["training.steps=3"]), "changes=['training.steps=3'] must be settings"),
        (lambda run: lab.train("tiny", changes={3: 3}), "changes={3: 3} must be settings by key"),
        (lambda run: lab.train("tiny", on_event=3, root="nowhere"), "on_event=3 must be a function of an event"),
        (lambda run: lab.train("tiny", root=None), "root=None must be the path of a folder of runs"),
        (lambda run: lab.load(SHIPPED, 625), "root=625 must be the path of a folder of runs"),
        (lambda run: lab.watch(nn.Linear(1, 1), (), root=3), "root=3 must be the path of a folder of runs"),
        (lambda run: lab.watch(nn.Linear(1, 1), (), optimizer="adam"), "optimizer is a str; it must be an optimizer"),
        (lambda run: lab.watch(nn.Linear, ()), "forward is the class Linear; it must be a model, an object of that"),
        (lambda run: lab.attention(nn.Linear, IDS, IDS), "forward is the class Linear; it must be a model, an object"),
        (lambda run: lab.attention(3, IDS, IDS), "forward is an int; it must be a model, or a function"),
        (lambda run: lab.diagnose(nn.Linear, IDS, IDS, pad=0, bos=1, eos=2), "forward is the class Linear; it must"),
        (lambda run: lab.import_model(nn.Linear, IDS, IDS), "module is the class Linear; it must be a model"),
        (lambda run: lab.attention(run.model, IDS, IDS, pad=0, src_vocab=3), "vocab is an int; it must be a list, a"),
        (lambda run: lab.plot_attention(run.attention("4 8")), "table is a dict; it must be the table of one head"),
        (lambda run: lab.plot_attention(HEAD, Figure().subplots(1, 2)), "ax is an ndarray; it must be one axes object"),
        (lambda run: run.ablate(patterns=3), "patterns=[3] must be texts, such as 'cross.2.1=diagonal'"),
        (lambda run: run.ablate(patterns=[3]), "patterns=[3] must be texts"),
        (lambda run: lab.runs("nowhere").create("tiny"), "preset='tiny' must be a Preset, such as load_preset('tiny')"),
    ],
)
def test_an_argument_of_another_kind_is_refused_by_its_name(run, call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    figures = pyplot.get_fignums()
    with pytest.raises(InputError, match=re.escape(message)):
        call(run)
    assert not list(tmp_path.iterdir())
    assert pyplot.get_fignums() == figures


def test_a_finished_run_says_how_to_extend_it_in_python(tiny, tmp_path):
    run = lab.train(tiny, changes=CHANGES, name="mine", root=tmp_path)
    with pytest.raises(RunError, match=re.escape("run='mine' has finished all its 4 steps; training(steps=N) extends")):
        run.training()
    with pytest.raises(InputError, match="steps='6' must be a whole number"):
        run.training(steps="6")


def test_a_notebook_shows_what_it_holds_instead_of_addresses(tiny, tmp_path):
    run = lab.train(tiny, changes=CHANGES, name="mine", root=tmp_path)
    assert [repr(each) for each in (run, run.trained(), run.history, run.replay, run.weights_by_step)] == [
        "<Run mine>",
        "<Trained mine, step 4>",
        "<History, 7 rows>",
        "<Replay, 3 snapshots>",
        "<WeightsByStep, steps 0, 2, 4>",
    ]
    with run.training(steps=5) as events:
        assert repr(events) == "<Training mine, step 4>"


def test_a_folder_of_runs_may_be_given_as_text(tmp_path):
    assert lab.Runs(str(tmp_path)).root == tmp_path


def test_completion_shows_the_public_names_only():
    assert dir(lab) == sorted(lab.__all__)
    assert dir(plugins) == sorted(plugins.__all__)


def test_patching_a_run_with_ablated_heads_is_refused(run):
    with pytest.raises(InputError, match="as it was trained"):
        run.ablate("cross.1").patch("4 8 2 9", "4 8 2 5")


def test_patching_the_whole_residual_stream_restores_the_answer(run):
    patched = run.patch("4 8 2 9", "4 8 2 5", step=0)
    assert patched.changed == (4,)
    assert patched.grid("residual stream", "encoder").whole == pytest.approx(1, abs=1e-4)
    assert run.patch("4 8 2 9").corrupted != ("4", "8", "2", "9")


def test_training_saves_a_run_and_reports_every_event(tmp_path):
    events = []
    trained = lab.train("tiny", changes=CHANGES, name="mine", root=tmp_path, on_event=events.append)
    names = "Evaluation Step Step Evaluation Step Step Evaluation End"
    assert [type(event) for event in events] == [getattr(lab, f"{name}Event") for name in names.split()]
    assert (trained.name, trained.preset.training.steps, list(lab.runs(tmp_path))) == ("mine", 4, ["mine"])
    with pytest.raises(RunError, match="mine"):
        lab.train("tiny", changes=CHANGES, name="mine", root=tmp_path)


def test_a_preset_file_with_its_own_pairs_beside_it_is_trained(tmp_path):
    (tmp_path / "mine.tsv").write_text("".join(f"{one} {two}\t{two} {one}\n" for one in "abcdefg" for two in "abcdefg"))
    assert main(["data", str(tmp_path / "mine.tsv"), "--out", str(tmp_path / "mine.yaml")]) == 0
    run = lab.train(tmp_path / "mine.yaml", changes=CHANGES, name="mine", root=tmp_path / "runs")
    assert run.trained().evaluate(9).sequences <= 9
    assert (run.folder.path / "pairs.tsv").read_bytes() == (tmp_path / "mine.pairs.tsv").read_bytes()


def test_the_history_has_what_the_events_of_the_training_said(tmp_path):
    events = []
    run = lab.train("tiny", changes=CHANGES, name="mine", root=tmp_path, on_event=events.append)
    history = run.history.table()
    assert history.index.tolist() == [0, 1, 2, 3, 4]
    assert set(map(str, history.dtypes)) == {"float64"}
    for event in events:
        if isinstance(event, lab.StepEvent):
            assert history.loc[event.step, "loss"] == pytest.approx(event.loss, rel=1e-5)
            assert history.loc[event.step, "learning_rate"] == pytest.approx(event.learning_rate, rel=1e-5)
        if isinstance(event, lab.EvaluationEvent):
            assert history.loc[event.step, "validation_loss"] == pytest.approx(event.evaluation.loss, rel=1e-5)
            assert history.loc[event.step, "exact_match"] == pytest.approx(event.evaluation.exact_match, rel=1e-5)
    assert history["loss"].isna().tolist() == [True, False, False, False, False]
    assert history["exact_match"].isna().tolist() == [False, True, False, True, False]
    assert lab.runs(tmp_path)["mine"].history.table().equals(history)


def test_heads_are_scored_by_name_and_as_the_interventions_leave_them(run):
    heads = run.score_heads(100)
    assert tuple(heads.index) == run.heads
    pairs = fixed_pairs(run.task, 100, split="test")
    assert heads.reset_index(drop=True).equals(measure_heads(run.model, run.task, pairs))
    uniform = run.ablate(patterns=["cross.2.1=position 1"]).score_heads(100).loc["cross.2.1"]
    assert uniform["entropy"] == pytest.approx(0, abs=1e-6)
    assert heads.loc["cross.2.1", "entropy"] > 0.01


def test_a_map_is_drawn_with_its_tokens_into_the_given_axes(run):
    table = run.attention("4 8 2 9")["cross.2.2"]
    figure = Figure()
    left, right = figure.subplots(1, 2)
    image = lab.plot_attention(table, right)
    assert image.axes is right
    assert not left.images
    assert torch.equal(torch.tensor(image.get_array().data), torch.tensor(table.to_numpy()))
    assert image.get_clim() == (0, 1)
    assert [label.get_text() for label in right.get_xticklabels()] == list(table.columns)
    assert [label.get_text() for label in right.get_yticklabels()] == list(table.index)


def test_a_map_is_drawn_into_the_current_axes_of_pyplot(run):
    figure, axes = pyplot.subplots()
    try:
        assert lab.plot_attention(run.attention("4 8 2 9")["cross.2.2"]).axes is axes
    finally:
        pyplot.close(figure)


def test_an_error_in_the_callers_function_ends_the_training_and_frees_the_folder(tmp_path):
    def fail(event):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        lab.train("tiny", changes=CHANGES, name="mine", root=tmp_path, on_event=fail)
    folder = RunFolder(tmp_path, "mine")
    assert folder.read_info().status == "failed"
    folder.lock().release()  # nobody holds it


def test_train_warns_of_more_memory_than_there_is(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("8000000\n")
    monkeypatch.setattr(memory, "_CGROUP_LIMIT", tmp_path / "memory.max")
    large = {"training.steps": 1, "training.warmup_steps": 0, "training.batch_size": 512}
    with pytest.warns(UserWarning, match=r"training takes about .* lower training\.batch_size=512"):
        lab.train("tiny", changes=large, root=tmp_path / "runs")


def test_numbers_of_numpy_and_pytorch_are_settings_too(tmp_path):
    changes = {
        "training.steps": np.int64(90),
        "training.learning_rate": np.float32(0.5),
        "training.seed": torch.tensor(3),
    }
    found = load_preset("tiny").with_changes(changes).training
    assert (found.steps, found.learning_rate, found.seed) == (90, 0.5, 3)
    assert type(found.steps) is type(found.seed) is int
    assert Beam(beam_size=np.int64(4)) == Beam(beam_size=4)
    with pytest.raises(ConfigError, match=r"training\.steps"):
        load_preset("tiny").with_changes({"training.steps": np.bool_(True)})


def test_a_name_that_is_none_is_refused(tmp_path):
    for name in (3, ["a"]):
        with pytest.raises(RunError, match=re.escape(f"run={name!r} is not a valid name")):
            lab.train("tiny", name=name, root=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert lab.load(Path(SHIPPED)).run == SHIPPED


def test_what_a_cell_shows_of_a_decode_and_a_patching_is_one_line(run):
    assert repr(run.decode("4 8 2 9")) == "<Inspection '4 8 2 9' → '9 2 8 4', 5 steps>"
    assert (
        repr(run.patch("4 8 2 9", "4 8 2 5")) == "<ActivationPatching '4 8 2 9' into '4 8 2 5', why 9, not 5?, 8 grids>"
    )
