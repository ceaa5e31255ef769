"""Models that turn one sequence into another, all behind the ``Seq2Seq`` interface."""

import torch

from core.config.sections import DecoderOnlyConfig, GRUConfig, ModelConfig
from core.models.attention import AttentionMaps
from core.models.decoder_only import DecoderOnly
from core.models.gru import GRUSeq2Seq
from core.models.initialisation import initialise
from core.models.seq2seq import Seq2Seq
from core.models.transformer import Transformer
from core.tasks import Task

__all__ = ["AttentionMaps", "Seq2Seq", "build_model", "count_parameters", "outline_model", "parameters_of"]


def build_model(config: ModelConfig, task: Task, generator: torch.Generator) -> Seq2Seq:
    """Build and initialise the model that a preset's ``model`` section describes.

    Args:
        config: sizes of the model; the vocabularies come from the task.
        generator: source of the initial weights and, in training, of dropout. The model lives on its device; its
            initial weights are drawn on the CPU all the same, so that a seed means the same ones everywhere.
    """
    model = _assemble(config, task, generator)
    on_cpu = generator.device.type == "cpu"
    drawn_from = generator if on_cpu else torch.Generator().manual_seed(generator.initial_seed())
    gains = {name: getattr(config, name, 1.0) for name in ("embedding_gain", "sublayer_gain")}  # a GRU has neither
    initialise(model, drawn_from, **gains)
    return model.to(generator.device)


def outline_model(config: ModelConfig, task: Task) -> Seq2Seq:
    """Return such a model with shapes and no content: its tensors are on PyTorch's meta device and take no memory."""
    with torch.device("meta"):
        return _assemble(config, task, None)


def parameters_of(config: ModelConfig, task: Task) -> int:
    """Return how many parameters such a model has, without the memory for them."""
    return count_parameters(outline_model(config, task))


def count_parameters(model: torch.nn.Module) -> int:
    """Return how many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _assemble(config: ModelConfig, task: Task, generator: torch.Generator | None) -> Seq2Seq:
    sides = {"src_vocab_size": len(task.src_vocab), "tgt_vocab_size": len(task.tgt_vocab)}
    if isinstance(config, GRUConfig):
        return GRUSeq2Seq(
            **sides,
            d_embedding=config.d_embedding,
            d_hidden=config.d_hidden,
            num_layers=config.num_layers,
            max_seq_len=config.max_seq_len,
            dropout=config.dropout,
            mask_padding=config.mask_padding,
            generator=generator,
        )
    blocks = {
        "d_model": config.d_model,
        "num_heads": config.num_heads,
        "d_ff": config.d_ff,
        "max_seq_len": config.max_seq_len,
        "dropout": config.dropout,
        "norm": config.norm,
        "positions": config.positions,
        "activation": config.activation,
        "tie_embeddings": config.tie_embeddings,
        "generator": generator,
    }
    if isinstance(config, DecoderOnlyConfig):
        return DecoderOnly(**sides, **blocks, num_layers=config.num_layers)
    depths = {"num_encoder_layers": config.num_encoder_layers, "num_decoder_layers": config.num_decoder_layers}
    return Transformer(**sides, **blocks, **depths, position_stretch=config.position_stretch)
