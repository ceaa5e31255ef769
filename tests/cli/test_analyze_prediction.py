"""``analyze --why``: every method in text and JSON, and what is refused."""

import json

import pytest

from core.cli.analyze_prediction import METHODS
from core.config import load_preset
from core.interpret.attribution import activation_patching, direct_logit_attribution
from core.interpret.attribution.prediction import prediction_at
from core.runs import DEFAULT_ROOT, RunFolder
from core.runs.load import load_run
from tests.support.command_output import analyze, last_json
from tests.support.trainings import train_run

RUN = "digits-reversal-shipped"
EXAMPLE = ("--why", "4 8 2 9")


@pytest.fixture(scope="module")
def explained() -> tuple[str, dict]:
    """Text and JSON of all methods."""
    code, output, _ = analyze(DEFAULT_ROOT, RUN, *EXAMPLE, "--step", "2", "--foil", "7", "--json")
    assert code == 0
    text, _, last = output.rstrip().rpartition("\n")
    return text, json.loads(last)


def test_every_method_is_printed_with_what_it_can_show(explained):
    text, result = explained
    assert "4 8 2 9 → 9 2 8 4" in text
    assert "step 2, after <BOS> 9: why 2, not 7?" in text
    assert list(result["methods"]) == list(METHODS)
    for name, method in result["methods"].items():
        assert f"\n{name}\n" in text
        first = " ".join(method["limits"].split()[:4])
        assert first in text


def test_json_has_the_results_of_the_methods(explained):
    _, result = explained
    assert (result["answer_step"], result["token"], result["foil"]) == (2, "2", "7")
    assert (result["source"], result["prefix"]) == (["<BOS>", *"4829", "<EOS>"], ["<BOS>", "9"])
    loaded = load_run(DEFAULT_ROOT / RUN)
    prediction = prediction_at(loaded.model, loaded.task, list("4829"), step=1, foil="7")
    parts = direct_logit_attribution.direct_logit_attribution(loaded.model, prediction)
    found = result["methods"]
    assert found["parts"]["result"]["logit"] == pytest.approx(parts.logit)
    assert sum(part["logit"] for part in found["parts"]["result"]["parts"]) == pytest.approx(parts.logit, abs=1e-5)
    assert found["lens"]["result"][-1]["score"] == pytest.approx(parts.logit, abs=1e-5)
    assert found["decoder-lens"]["result"][-1] | {"score": 0, "probability": 0} == {
        "layer": 2,
        "output": "9 2 8 4",
        "stopped": True,
        "matches": True,
        "score": 0,
        "probability": 0,
    }
    assert {len(each["source"]) for each in found["tokens"]["result"].values()} == {6}
    assert len(found["value-zeroing"]["result"]["cross"][0]) == 2
    patching = found["patching"]["result"]
    assert patching["changed_input"] == "4 8 7 9"
    assert patching["grids"][0]["restored"][0] == pytest.approx([0, 0, 0, 1, 0, 0], abs=1e-4)


def test_one_method_and_a_change_of_your_own():
    code, output, _ = analyze(DEFAULT_ROOT, RUN, *EXAMPLE, "--method", "patching", "--change", "4=5")
    assert code == 0
    assert "changed input: 4 8 2 5; why 9, not 5?" in output
    assert "\nlens\n" not in output
    assert " ".join(activation_patching.LIMITS.split()[:5]) in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--foil", "7"], "--foil=7 needs --why"),
        (["--step", "2"], "--step=2 needs --why"),
        ([*EXAMPLE, "--step", "0"], "--step=0 must be at least 1"),
        ([*EXAMPLE, "--step", "9"], "step=9 is not a step of this answer, which has 1 to 5"),
        ([*EXAMPLE, "--method", "guess"], "--method='guess' is not one of parts, lens"),
        ([*EXAMPLE, "--foil", "9"], "foil='9' must be another token"),
        ([*EXAMPLE, "--change", "9"], "--change='9' must be K=T"),
        ([*EXAMPLE, "--change", "7=1"], "position 7 is not a token of this input, which has 4"),
        ([*EXAMPLE, "--health"], "--health cannot be combined with --why"),
        (["--why", "4 x"], "x"),
    ],
)
def test_what_cannot_be_explained_is_refused(arguments, message):
    code, _, errors = analyze(DEFAULT_ROOT, RUN, *arguments)
    assert code == 2
    assert message in errors


def test_a_recurrent_run_is_explained_with_the_methods_that_it_has(tmp_path, tiny_gru):
    folder = RunFolder.create(tmp_path, tiny_gru, name="gru")
    train_run(folder)
    code, output, _ = analyze(tmp_path, "gru", *EXAMPLE, "--json")
    assert code == 0
    assert "\nlens: the logit lens needs a residual stream; a recurrent model has none" in output
    assert {"tokens", "value-zeroing"} <= set(last_json(output)["methods"])
    code, _, errors = analyze(tmp_path, "gru", *EXAMPLE, "--method", "lens")
    assert code == 2
    assert "a recurrent model has none" in errors


def test_an_encoder_only_run_is_explained_at_a_position_of_the_input(tmp_path):
    few = {"training.steps": 10, "training.evaluate_every": 5, "training.validation_sequences": 20}
    preset = load_preset("masked-digits").with_changes(few)
    folder = RunFolder.create(tmp_path, preset, name="masked")
    train_run(folder)
    example = ("--why", "4 8 2 <MASK> 8 4", "--step", "4", "--token", "2", "--foil", "5", "--change", "3=5")
    methods = [name for name in METHODS if name != "decoder-lens"]
    code, output, _ = analyze(tmp_path, "masked", *example, "--method", ",".join(methods), "--json")
    assert code == 0
    assert "\nstep 4, at position 4, <MASK>: why 2, not 5?\n" in output
    assert "changed input: 4 8 5 <MASK> 8 4; why 2, not 5?\n" in output
    result = last_json(output)
    assert (result["prefix"], result["position"]) == ([], 4)
    found = {name: method["result"] for name, method in result["methods"].items()}
    assert list(found) == methods
    assert {(len(each["source"]), len(each["prefix"])) for each in found["tokens"].values()} == {(8, 0)}
    zeroed = found["value-zeroing"]
    assert (zeroed["decoder"], zeroed["cross"], len(zeroed["encoder"])) == (None, None, 2)
    at_mask = "  ".join(f"{abs(value):.2f}" for value in zeroed["encoder"][1][4])
    (row,) = [line for line in output.splitlines() if line.startswith("  encoder.2 ") and len(line.split()) == 9]
    assert "  ".join(row.split()[1:]) == at_mask
    code, _, errors = analyze(tmp_path, "masked", *example[:2], "--method", "decoder-lens")
    assert code == 2
    assert "DecoderLens needs a decoder" in errors
