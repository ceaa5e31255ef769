"""The graph of an update trains as ``core.training.loop`` does."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from core.config import load_preset
from core.graphs import training_step, training_step_graph
from core.graphs.graph import weights_of
from core.storage.errors import InputError
from core.teaching.bugs import new_state
from core.training.loop import StepEvent, batches_of, train
from core.training.schedules import learning_rate_at


def drawn(preset, updates):
    """The first batches of a run, padded to one shape with a column of PAD to spare."""
    state = new_state(preset)
    batches = batches_of(state)
    found = [batches.at(step, state.generator) for step in range(1, updates + 1)]
    source, target = (1 + max(getattr(batch, side).shape[1] for batch in found) for side in ("src", "tgt"))
    return [replace(batch, src=padded(batch.src, source), tgt=padded(batch.tgt, target)) for batch in found]


def padded(ids, width):
    return F.pad(ids, (0, width - ids.shape[1]))


def losses_of_the_loop(preset, updates):
    steps = (event for event in train(new_state(preset)) if isinstance(event, StepEvent))
    return [(event.loss, event.gradient_norm) for event, _ in zip(steps, range(updates), strict=False)]


def before_the_first_update(graph, model):
    """Values of all inputs but the batch: the model's weights, and zeros as the state of its optimizer."""
    values = weights_of(model)
    for name in graph.inputs[len(values) : -4]:
        values[name] = torch.zeros_like(values[name.rpartition(".")[0]])
    return values | number_and_rate(1, 0.01)


def number_and_rate(step, learning_rate):
    values = {"step": step, "learning_rate": learning_rate}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def losses_of_the_graph(preset, updates, runner):
    """Train with a graph; ``runner(graph)`` is a function from its inputs to its outputs."""
    batches, model = drawn(preset, updates), new_state(preset).model
    graph = training_step_graph(model, preset.training, batches[0])
    values, run, losses = before_the_first_update(graph, model), runner(graph), []
    for step, batch in enumerate(batches, start=1):
        values |= number_and_rate(step, learning_rate_at(step, preset.training))
        said = run(values | {"src": batch.src, "tgt": batch.tgt})
        values |= {name.removeprefix("new."): said[name] for name in graph.outputs[2:]}
        losses.append((said["loss"].item(), said["gradient_norm"].item()))
    return losses


@pytest.mark.parametrize(
    "changes",
    [
        {
            "training.optimizer": "muon",
            "training.muon_learning_rate": 0.02,
            "training.embedding_learning_rate": 0.001,
            "training.adam_beta2": 0.95,
            "training.label_smoothing": 0.1,
            "model.tie_embeddings": "output",
        },
        {
            "training.optimizer": "adamw",
            "training.weight_decay": 0.1,
            "training.gradient_clipping": "per-parameter",
            "training.max_gradient_norm": 0.1,
            "model.family": "decoder-only",
            "model.num_layers": 1,
        },
        pytest.param(
            {"training.optimizer": "adam-by-hand", "model.family": "encoder-only", "model.num_layers": 1},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_losses_of_eight_updates_are_those_of_the_loop(tiny, changes):
    preset = tiny.with_changes(changes)
    expected = losses_of_the_loop(preset.with_changes({"training.precision": "float32"}), 8)
    assert expected[0][0] > expected[-1][0]
    in_16_bits = preset.with_changes({"training.precision": "bfloat16"})  # a graph is in float32 all the same
    found = losses_of_the_graph(in_16_bits, 8, lambda graph: graph.run)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-5, rtol=1e-5)


class Unmoved(torch.optim.Optimizer):
    """Has no state and changes nothing, so that there is little to trace."""

    def step(self):
        pass


def test_dropout_draws_anew_in_every_update(tiny, monkeypatch):
    monkeypatch.setattr(training_step, "build_optimizer", lambda config, model: Unmoved(model.parameters(), {}))
    preset = tiny.with_changes({"model.dropout": 0.2, "model.family": "encoder-only", "model.num_layers": 1})
    model, (batch,) = new_state(preset).model, drawn(preset, 1)
    graph = training_step_graph(model, preset.training, batch)
    values = before_the_first_update(graph, model) | {"src": batch.src, "tgt": batch.tgt}
    losses = {graph.run(values)["loss"].item() for _ in range(3)}
    assert len(losses) == 3
    assert all(map(math.isfinite, losses))


def test_partial_teacher_forcing_is_refused(tiny):
    preset = tiny.with_changes({"training.teacher_forcing_ratio": 0.5})
    with pytest.raises(InputError, match=r"training\.teacher_forcing_ratio must be 1 in a graph"):
        training_step_graph(new_state(preset).model, preset.training, drawn(preset, 1)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["tiny", "digits-reversal-fast", "digits-reversal-decoder-only", "sort-digits", "masked-digits"]
)
def test_onnx_runtime_trains_presets_as_pytorch_does(name):
    reason = "pip install -c requirements-extras.txt -e '.[onnx]'"
    onnxruntime = pytest.importorskip("onnxruntime", reason=reason)
    pytest.importorskip("onnxscript", reason=reason)

    def in_onnx_runtime(graph):
        options = onnxruntime.SessionOptions()  # those above "basic" approximate
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        session = onnxruntime.InferenceSession(graph.to_onnx().SerializeToString(), options)

        def run(values):
            found = session.run(list(graph.outputs), {each: values[each].numpy() for each in graph.inputs})
            return dict(zip(graph.outputs, map(torch.from_numpy, found), strict=True))

        return run

    preset = load_preset(name).with_changes({"model.dropout": 0.0})  # the runtime would drop others
    found, expected = losses_of_the_graph(preset, 25, in_onnx_runtime), losses_of_the_loop(preset, 25)
    differences = (torch.tensor(found) - torch.tensor(expected)).abs().amax(dim=0)
    print(f"{name}: largest difference of the loss {differences[0]:.1e}, of the gradient norm {differences[1]:.1e}")
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), atol=1e-4, rtol=0)
