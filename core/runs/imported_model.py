"""A model of another program as this one has it, whatever it was read from."""

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from pydantic import BaseModel, ValidationError

from core.config.counting import counted
from core.config.sections import BlocksConfig, DecoderOnlyConfig, TransformerConfig
from core.runs.model_files import ModelImportError
from core.storage.validation_errors import first_problem, problem_of
from core.text.subwords import SubwordTokenizers

ACTIVATIONS = {"swish": "silu", "gelu_new": "gelu-tanh"}  # Hugging Face's names of ours
NEVER = -1e9  # bias of a token that is never written
Config = TypeVar("Config", bound=BaseModel)
Blocks = TypeVar("Blocks", bound=BlocksConfig)


@dataclass(frozen=True)
class ImportedModel:
    """A model of another program, as this one has it.

    Attributes:
        kind: what it was, such as "Marian".
        config: the ``model`` section of its preset.
        weights: the state dict of the model of ``config``, float32.
        tokenizers: of both sides, with their vocabularies.
        shared: whether source and target have one vocabulary.
        notes: what the user should know, one sentence each.
    """

    kind: str
    config: TransformerConfig | DecoderOnlyConfig
    weights: dict[str, torch.Tensor]
    tokenizers: SubwordTokenizers
    shared: bool
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """What it is in one phrase: "Marian: 6 encoder and 6 decoder layers, 8 heads, …"."""
        names = (f"{side}_embedding.tokens.weight" for side in ("src", "tgt"))
        sizes = [f"{len(self.weights[name]):,}" for name in names if name in self.weights]
        config, layers = self.config, self.config.summary
        if isinstance(config, TransformerConfig):
            layers = f"{config.num_encoder_layers} encoder and {config.num_decoder_layers} decoder layers"
            layers += f", {counted(config.num_heads, 'head')}"
        return (
            f"{self.kind}: {layers}, d_model {config.d_model}, "
            f"{sum(each.numel() for each in self.weights.values()):,} parameters, "
            + (f"vocabulary {sizes[-1]}" if self.shared else f"vocabularies {' and '.join(sizes)}")
        )


def validated(options: dict[str, Any], kind: type[Blocks]) -> Blocks:
    """Return the ``model`` section with these options; ModelImportError if one is out of bounds."""
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(("model", *map(str, first["loc"]))) if first["loc"] else ""
        raise ModelImportError(problem_of(first, field)) from error


def parsed(document: dict[str, Any], kind: type[Config]) -> Config:
    """Return the fields of ``config.json`` that a family needs; ModelImportError naming the first that is not valid."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise ModelImportError(f"config.json: {first_problem(error)}") from error
