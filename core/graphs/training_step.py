"""One update of a training as a graph: forward, backward, clipping and the optimizer's step."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._decomp import core_aten_decompositions
from torch.fx.experimental.proxy_tensor import make_fx

from core.config.training import TrainingConfig
from core.graphs.graph import Graph, check_can_be_traced, flat_names, trace, weights_of
from core.models import Seq2Seq
from core.storage.errors import InputError
from core.tasks import Batch
from core.training.loss import training_loss
from core.training.optimizers import build_optimizer, set_learning_rate

_ANY = torch.export.Dim.DYNAMIC
Values = dict[str, torch.Tensor]


def training_step_graph(model: Seq2Seq, config: TrainingConfig, batch: Batch) -> Graph:
    """Trace an update for batches of one shape, in float32; PAD fills up smaller batches.

    Inputs: the parameters by name; ``NAME.KEY`` float, the optimizer's state of each parameter, zeros before the first
    update; ``step`` () float64, the number of the update from 1; ``learning_rate`` () float64, see
    ``core.training.schedules``; ``src`` and ``tgt`` int64, of the shapes of ``batch``. Outputs: ``loss`` in nats per
    token; ``gradient_norm`` before clipping; ``new.NAME`` and ``new.NAME.KEY``, which must not be used if loss or norm
    is not finite. Dropout draws from the generator of whatever runs the graph. The model is left in training mode.

    Raises:
        InputError: the model is recurrent, ``teacher_forcing_ratio`` is below 1, or an alignment is guided.
    """
    check_can_be_traced(model)
    if config.teacher_forcing_ratio < 1:
        raise InputError("training.teacher_forcing_ratio must be 1 in a graph: its decoder reads all tokens at once")
    if config.guided_alignment:
        raise InputError("training.guided_alignment must be 0 in a graph: it does not read the pairs' alignments")
    # Adam by hand reads the number of the step as an integer; PyTorch's Adam computes the same with a tensor.
    optimizer = "adam" if config.optimizer == "adam-by-hand" else config.optimizer
    config = config.model_copy(update={"precision": "float32", "optimizer": optimizer})
    ids, sizes = (batch.src, batch.tgt), {0: _ANY, 1: _ANY}
    loss = trace(_Loss(model.train(), config), ids, (sizes, sizes))
    weights = weights_of(model)
    step = _Step(model, config, loss.module(check_guards=False))
    state = step.new_state()
    # In float32, 1 - 0.999^step of Adam's first steps would be off by 1e-5 of itself.
    step_and_rate = (torch.tensor(value, dtype=torch.float64) for value in (1.0, config.learning_rate))
    example = (weights, state, *step_and_rate, *ids)
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):  # the fused kernels have no operations inside
        operations = make_fx(step, decomposition_table=_decompositions(), tracing_mode="real")(*example)
    program = torch.export.export(operations, example)
    inputs = (*weights, *flat_names("", state), "step", "learning_rate", "src", "tgt")
    outputs = ("loss", "gradient_norm", *(f"new.{name}" for name in (*weights, *flat_names("", state))))
    return Graph(program, inputs, outputs)


def _decompositions() -> Any:
    """Return how operations are written with simpler ones, by operation."""
    # ONNX would round the base, Adam's 0.999, to float32, and the first steps would be off by 1e-5 of themselves.
    power = {torch.ops.aten.pow.Scalar: lambda base, exponent: (exponent * math.log(base)).exp()}
    return dict(core_aten_decompositions()) | power


class _Loss(nn.Module):
    def __init__(self, model: Seq2Seq, config: TrainingConfig) -> None:
        super().__init__()
        self.model, self.config = model, config

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        batch, unused = Batch(src, tgt), torch.Generator()
        return training_loss(self.model, batch, self.config, teacher_forcing_ratio=1.0, generator=unused)


class _Step:
    """The update as a function of tensors: the optimizer of a run, with traced tensors in place of its parameters.

    Args:
        loss: a function of parameters by name, ``src`` and ``tgt``.
    """

    def __init__(self, model: Seq2Seq, config: TrainingConfig, loss: Callable[..., torch.Tensor]) -> None:
        self._model, self._config, self._loss = model, config, loss
        self._names = {parameter: name for name, parameter in model.named_parameters()}

    def new_state(self) -> dict[str, Values]:
        """Return the optimizer's state of each parameter before the first update, without the number of the step."""
        optimizer = build_optimizer(self._config, self._model)
        zeros = {name: torch.zeros_like(weight) for name, weight in weights_of(self._model).items()}
        _put_in_place(optimizer, self._names, zeros)
        for each in zeros.values():
            each.grad = torch.zeros_like(each)
        optimizer.step()
        return {
            name: {key: torch.zeros_like(value) for key, value in optimizer.state[each].items() if key != "step"}
            for name, each in zeros.items()
        }

    def __call__(
        self, weights: Values, state: dict[str, Values], step: torch.Tensor, learning_rate: torch.Tensor, *ids: Any
    ) -> tuple[torch.Tensor, torch.Tensor, Values, dict[str, Values]]:
        gradients, loss = torch.func.grad_and_value(self._loss)(weights, *ids)
        new = {name: weight.clone() for name, weight in weights.items()}
        optimizer = build_optimizer(self._config, self._model)
        _put_in_place(optimizer, self._names, new)
        for name, weight in new.items():
            weight.grad = gradients[name]
            optimizer.state[weight] = {key: value.clone() for key, value in state[name].items()}
            if "exp_avg" in state[name]:  # Adam's
                optimizer.state[weight]["step"] = step - 1
        norm = nn.utils.get_total_norm(gradients.values(), foreach=False)
        is_each = self._config.gradient_clipping == "per-parameter"
        for clipped in [[weight] for weight in new.values()] if is_each else [list(new.values())]:
            of_these = [weight.grad for weight in clipped if weight.grad is not None]
            norm_of_these = nn.utils.get_total_norm(of_these, foreach=False)
            nn.utils.clip_grads_with_norm_(clipped, self._config.max_gradient_norm, norm_of_these, foreach=False)
        set_learning_rate(optimizer, learning_rate)
        optimizer.step()
        new_state = {name: {key: optimizer.state[weight][key] for key in state[name]} for name, weight in new.items()}
        return loss, norm, new, new_state


def _put_in_place(optimizer: torch.optim.Optimizer, names: dict[nn.Parameter, str], tensors: Values) -> None:
    """Replace an optimizer's parameters by tensors of the same names, and choose operations that can be traced."""
    inner = getattr(optimizer, "_adam", None)  # of Muon, for all parameters that are not matrices
    for group in [*optimizer.param_groups, *(inner.param_groups if inner else [])]:
        group["params"] = [tensors[names[each]] if each in names else each for each in group["params"]]
        if "fused" in group:
            group.update(fused=False, foreach=False, differentiable=True)  # tensors for step and learning rate
