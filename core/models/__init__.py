"""Sequence-to-sequence models with one interface, ``Seq2Seq``; a family's module is imported when it is built."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from core.config.sections import (
    BlocksConfig,
    DecoderOnlyConfig,
    EncoderOnlyConfig,
    GRUConfig,
    ModelConfig,
    WatchedModelConfig,
)
from core.models.attention_maps import AttentionMaps, AttentionRecorder, forward_with_attention
from core.models.seq2seq import Seq2Seq
from core.storage.errors import UnavailableError
from core.tasks import Task

__all__ = [
    "AttentionMaps",
    "AttentionRecorder",
    "Seq2Seq",
    "assemble_model",
    "build_model",
    "count_parameters",
    "forward_with_attention",
    "outline_model",
    "parameters_of",
]


def build_model(config: ModelConfig, task: Task, generator: torch.Generator) -> Seq2Seq:
    """Build and initialize the model of a preset's ``model`` section; the vocabularies come from the task.

    Args:
        generator: source of the initial weights and, in training, of dropout. The model is on its device, but initial
            weights are drawn on the CPU, so a seed gives the same weights on every device.

    Raises:
        InputError: a plugin's block does not call a hook point of its base class.
    """
    from core.models.initialization import initialize  # loading a run does not need it

    model = assemble_model(config, task, generator)
    if isinstance(config, BlocksConfig) and config.own_blocks:
        from core.models.own_blocks import check_hook_points  # plugins only

        check_hook_points(model, config)
    on_cpu = generator.device.type == "cpu"
    source = generator if on_cpu else torch.Generator().manual_seed(generator.initial_seed())
    gains = {name: getattr(config, name, 1.0) for name in ("embedding_gain", "sublayer_gain")}  # a GRU has neither
    initialize(model, source, **gains)
    return model.to(generator.device)


def outline_model(config: ModelConfig, task: Task) -> Seq2Seq:
    """Return a model with shapes but no data: its tensors are on PyTorch's meta device and take no memory."""
    with torch.device("meta"), _NormalSkipped():
        return assemble_model(config, task, None).to("meta")  # tables of positions are computed


class _NormalSkipped(TorchFunctionMode):
    """Skips normal draws: on the meta device they only import PyTorch's compiler, which takes a second and 75 MB."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is torch.nn.init.normal_ else func(*args, **kwargs)


def parameters_of(config: ModelConfig, task: Task) -> int:
    """Return how many parameters a model has, without allocating them."""
    return count_parameters(outline_model(config, task))


def count_parameters(model: torch.nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def assemble_model(config: ModelConfig, task: Task, generator: torch.Generator | None = None) -> Seq2Seq:
    """Build a model with PyTorch's default weights, to load saved weights into."""
    model = _of_family(config, task, generator)
    model.forced_start = task.forced_start
    return model


def _of_family(config: ModelConfig, task: Task, generator: torch.Generator | None) -> Seq2Seq:
    if isinstance(config, WatchedModelConfig):
        raise UnavailableError("model.family='watched' stands for a module of your own, which cannot be built here")
    sizes = len(task.src_vocab), len(task.tgt_vocab)
    if isinstance(config, GRUConfig):
        from core.models.gru import GRUSeq2Seq

        return GRUSeq2Seq(config, *sizes, generator)
    if isinstance(config, DecoderOnlyConfig):
        from core.models.decoder_only import DecoderOnly

        return DecoderOnly(config, *sizes, generator)
    if isinstance(config, EncoderOnlyConfig):
        from core.models.encoder_only import EncoderOnly

        return EncoderOnly(config, *sizes, generator)
    from core.models.transformer import Transformer

    return Transformer(config, *sizes, generator)
