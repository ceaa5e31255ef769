"""``gradients``: every parameter of a run, at its best weights and at the earlier steps whose weights were kept."""

import pytest

from core.runs import RunFolder
from core.runs.run import Runs
from tests.support.command_output import last_json
from tests.support.trainings import train_run


def test_every_parameter_has_a_line_and_every_kept_step_its_norms(lab, root, tiny):
    folder = RunFolder.create(root, tiny, name="a")
    train_run(folder)
    run = Runs(root)["a"]
    code, output, _ = lab("gradients", "--run", "a", "--updates", "2", "--json")
    assert code == 0
    result, best = last_json(output), run.trained()
    names = [name for name, _ in best.model.named_parameters()]
    assert [each["parameter"] for each in result["parameters"]] == names
    earlier = [step for step in run.weights_by_step.steps if step != best.step]
    assert earlier
    assert list(result["course"]) == [str(step) for step in earlier]
    assert all(list(norms) == names for norms in result["course"].values())
    _, table, observations, _ = output.split("\n\n")
    assert [line.split()[0] for line in table.splitlines()[1:]] == names
    first = result["parameters"][0]
    assert first["min"] <= first["mean"] <= first["max"]
    assert first["norm"] > 0
    assert "norm below 1e-06: 0 of" in observations  # a bias of keys, which has rounding only, is left out


@pytest.mark.parametrize("updates", ["0", "1001"])
def test_a_number_of_updates_out_of_range_is_refused(lab, updates):
    code, _, errors = lab("gradients", "--run", "a", "--updates", updates)
    assert code == 2
    assert f"--updates={updates} must be from 1 to 1000" in errors
