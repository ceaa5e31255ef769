"""The ``model`` section of a preset. The others are in ``core.config.training`` and ``core.config.tasks``."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from core.config.counting import counted
from core.storage.error_messages import short_repr

FIXED = "fixed"  # marks fields that the preset sets and the user does not edit

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]
Attention = Literal["full", "window", "linear"]
AttentionScale = Literal["sqrt", "log-length"]
RecurrentAttention = Literal["additive", "location-sensitive", "last-token", "none"]
Cell = Literal["gru", "lstm", "rnn", "stack-rnn"]
TieEmbeddings = Literal["none", "output", "all"]
Positions = Literal[
    "sinusoidal",
    "sinusoidal-halves",
    "sinusoidal-fairseq",
    "learned",
    "none",
    "alibi",
    "relative-bias",
    "rope",
    "vo-rope",
]
"""Positional encoding of the attention models.

- ``sinusoidal``: fixed sines and cosines, added to the embeddings (Vaswani et al. 2017, section 3.5).
- ``sinusoidal-halves``: the same numbers in another order, all sines before all cosines, as in Marian.
- ``sinusoidal-fairseq``: as in fairseq and M2M-100: halves, with frequencies from 1 to 1/10000 and positions from 2 on.
- ``learned``: a trained embedding per position, added to the token embeddings.
- ``none``: no positional encoding.
- ``alibi``: a linear penalty on distance, added to the attention scores (Press et al. 2022).
- ``relative-bias``: a trained bias per head and bucket of distances is added to the attention scores, the same in all
  layers of a stack (Raffel et al. 2020, section 2.1: T5).
- ``rope``: queries and keys are rotated by their positions, so scores depend on relative positions only (Su et al.
  2021).
- ``vo-rope``: values are rotated by their own position, and the head's output is rotated back by the query's position,
  so what a head reads depends on relative positions only. Queries and keys stay unrotated. This is VO-RoPE (Su 2025,
  "the second type of rotary position embedding", https://kexue.fm/archives/10862); compare RoVE (García-Castellanos
  et al. 2026).
"""
RELATIVE_POSITIONS = (
    "alibi",
    "relative-bias",
    "rope",
    "vo-rope",
)  # used by self-attention, not added to the embeddings

BlockKind = Literal["attention", "feed_forward", "norm", "embedding", "output"]
BLOCKS: dict[BlockKind, dict[str, Callable[..., Any] | None]] = {
    "attention": {"multi-head": None},
    "feed_forward": {"mlp": None, "gated": None},
    "norm": {"layer-norm": None, "rms-norm": None},
    "embedding": {"table": None},
    "output": {"linear": None},
}
"""The blocks of each kind: names, and the functions that build them; None for built-in blocks.

Blocks are built from ``(config, generator)``; embeddings and outputs from ``(config, generator, vocab_size)``.
"""


class Section(BaseModel):
    """Base class of all sections: frozen, strictly typed, without unknown keys or non-finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @staticmethod
    def as_python(value: Any) -> Any:
        """Return a number of NumPy or PyTorch as Python's, which strict types ask for; other values as they are."""
        return value.item() if getattr(value, "ndim", None) == 0 else value


class _ModelSection(Section):
    """Base class of the sections of models."""

    family: str

    @property
    def kind(self) -> str:
        """What the model is called: its family, or the cell of a recurrent one."""
        return self.family


class BlocksConfig(_ModelSection):
    """Fields shared by all models that consist of Transformer blocks."""

    d_model: Annotated[int, Field(ge=4, le=1024, description="embedding size: width of every token's vector")] = 64
    num_heads: Annotated[int, Field(ge=1, le=32, description="attention heads per layer")] = 4
    d_ff: Annotated[int, Field(ge=4, le=4096, description="hidden size of the feed-forward network")] = 128
    max_seq_len: Annotated[
        int, Field(ge=4, le=2_048, description="maximum sequence length in tokens, BOS and EOS included")
    ] = 64
    dropout: Annotated[float, Field(ge=0, le=0.9, description="dropout probability")] = 0.0
    activation_dropout: Annotated[
        float, Field(ge=0, le=0.9, description="dropout probability after the activation of the feed-forward network")
    ] = 0.0
    norm: Annotated[
        Norm, Field(description="layer normalization after each sublayer, as in the paper (post), or before it (pre)")
    ] = "post"
    positions: Annotated[
        Positions,
        Field(
            description="positional encoding; alibi, relative-bias, rope and vo-rope are relative, for self-attention "
            "only"
        ),
    ] = "sinusoidal"
    position_period: Annotated[
        int,
        Field(
            ge=0,
            le=512,
            description="rope: positions repeat after this many tokens, so digits of like significance share one; "
            "0: never",
        ),
    ] = 0
    activation: Annotated[Activation, Field(description="activation function of the feed-forward network")] = "relu"
    tie_embeddings: Annotated[
        TieEmbeddings,
        Field(description="weight sharing: none; output layer and target embedding; or the source embedding too (all)"),
    ] = "none"
    scale_embeddings: Annotated[
        bool, Field(description="multiply the token embeddings by √d_model, as in the paper; BART does not"), FIXED
    ] = True
    embedding_norm: Annotated[
        bool, Field(description="layer normalization after the sum of token and position embeddings, as in BART"), FIXED
    ] = False
    norm_eps: Annotated[
        float,
        Field(
            ge=0,
            le=0.1,
            description="number added to the variance in every norm; 0: 1e-5, or 1e-6 of rms-norm",
        ),
        FIXED,
    ] = 0.0
    attention_temperature: Annotated[
        float,
        Field(
            ge=0.05,
            le=20,
            description="divides q·k / √d_k in all attention scores: below 1 attention is sharper, above 1 flatter",
        ),
    ] = 1.0
    embedding_gain: Annotated[
        float, Field(gt=0, le=10, description="initial scale of the token embeddings, beside the positional encoding")
    ] = 1.0
    sublayer_gain: Annotated[
        float, Field(ge=0, le=10, description="initial scale of what each sublayer adds to its input; 0 adds nothing")
    ] = 1.0
    attention_block: Annotated[
        str, Field(description="class of every attention: multi-head, or one that a plugin registers"), FIXED
    ] = "multi-head"
    feed_forward_block: Annotated[
        str,
        Field(
            description="class of the feed-forward networks: mlp; gated, a gated linear unit of the activation, as in "
            "T5 1.1; or one that a plugin registers"
        ),
        FIXED,
    ] = "mlp"
    norm_block: Annotated[
        str,
        Field(description="class of the layers' norms: layer-norm, rms-norm, or one that a plugin registers"),
        FIXED,
    ] = "layer-norm"
    embedding_block: Annotated[
        str, Field(description="class of the embeddings: table, or one that a plugin registers"), FIXED
    ] = "table"
    output_block: Annotated[
        str, Field(description="class of the output layer: linear, or one that a plugin registers"), FIXED
    ] = "linear"

    @model_validator(mode="after")
    def _check_widths(self) -> "BlocksConfig":
        if self.d_model % self.num_heads:
            raise ValueError(f"model.d_model={self.d_model} must be divisible by model.num_heads={self.num_heads}")
        if self.positions.startswith("sinusoidal") and self.d_model % 2:
            raise ValueError(f"model.d_model={self.d_model} must be even: positions are pairs of sine and cosine")
        if self.positions in ("rope", "vo-rope") and self.d_k % 2:
            raise ValueError(
                f"model.d_model={self.d_model} / model.num_heads={self.num_heads} must be even with "
                f"model.positions={self.positions!r}, which rotates pairs of dimensions"
            )
        return self

    @model_validator(mode="after")
    def _check_attention_temperature(self) -> "BlocksConfig":
        kind = getattr(self, "attention", "full")
        if self.attention_temperature != 1 and (kind == "linear" or self.attention_block != "multi-head"):
            raise ValueError(
                f"model.attention_temperature={self.attention_temperature:g} must be 1 with model.attention={kind!r} "
                f"and model.attention_block={self.attention_block!r}; only multi-head attention with a softmax uses it"
            )
        return self

    @model_validator(mode="after")
    def _check_position_period(self) -> "BlocksConfig":
        if self.position_period and self.positions != "rope":
            raise ValueError(
                f"model.position_period={self.position_period} must be 0 with model.positions={self.positions!r}; "
                "only 'rope' can repeat"
            )
        if self.position_period == 1:
            raise ValueError("model.position_period=1 must be 0 or at least 2: otherwise all positions are the same")
        return self

    @model_validator(mode="after")
    def _check_blocks(self) -> "BlocksConfig":
        for kind, blocks in BLOCKS.items():
            name = getattr(self, f"{kind}_block")
            if name not in blocks:
                raise ValueError(
                    f"model.{kind}_block={short_repr(name)} should be {' or '.join(map(repr, blocks))}; a block of "
                    "your own needs what registers it: --plugin FILE, or its cell in a notebook"
                )
        return self

    @property
    def own_blocks(self) -> tuple[BlockKind, ...]:
        """The kinds of blocks that a plugin builds."""
        return tuple(kind for kind, blocks in BLOCKS.items() if blocks[getattr(self, f"{kind}_block")])

    def build_block(self, kind: BlockKind, generator: Any, *sizes: int) -> Any:
        """Return a new block from the plugin that registered it; None if the block is built in.

        Args:
            sizes: for an embedding or an output layer, the size of its vocabulary.
        """
        build = BLOCKS[kind][getattr(self, f"{kind}_block")]
        return build(self, generator, *sizes) if build else None

    @property
    def d_k(self) -> int:
        """Width of one head's queries and keys."""
        return self.d_model // self.num_heads


class TransformerConfig(BlocksConfig):
    """The encoder-decoder Transformer of Vaswani et al. 2017 ("Attention Is All You Need")."""

    family: Literal["transformer"] = "transformer"
    num_encoder_layers: Annotated[int, Field(ge=1, le=24, description="encoder layers")] = 2
    num_decoder_layers: Annotated[int, Field(ge=1, le=24, description="decoder layers")] = 2
    attention: Annotated[
        Attention,
        Field(
            description="self-attention: softmax over all tokens, or over a window of them; or linear, without softmax"
        ),
    ] = "full"
    attention_window: Annotated[
        int,
        Field(ge=0, le=512, description="window: how many tokens before a token it attends to, and after it (encoder)"),
    ] = 0
    attention_scale: Annotated[
        AttentionScale,
        Field(
            description="attention scores: q·k / √d_k, as in the paper; or that times the logarithm of the number of "
            "keys, so that attention stays sharp on longer inputs"
        ),
    ] = "sqrt"
    final_norm: Annotated[
        Literal["pre-norm", "always"],
        Field(description="layer normalization after the last layer: in pre-norm stacks; or always, as nn.Transformer"),
        FIXED,
    ] = "pre-norm"
    source_bos: Annotated[
        bool,
        Field(description="the encoder reads the BOS of its source; otherwise nothing attends to it, as in Marian"),
        FIXED,
    ] = True
    source_eos: Annotated[
        bool,
        Field(description="the encoder reads the EOS of its source; otherwise nothing attends to it"),
        FIXED,
    ] = True
    position_stretch: Annotated[
        float,
        Field(ge=1, le=100, description="vo-rope: in training, positions are stretched by a random factor up to this"),
    ] = 1.0

    @model_validator(mode="after")
    def _check_position_stretch(self) -> "TransformerConfig":
        if self.position_stretch > 1 and self.positions != "vo-rope":
            raise ValueError(
                f"model.position_stretch={self.position_stretch} must be 1 with model.positions={self.positions!r}; "
                "only 'vo-rope' uses it"
            )
        return self

    @model_validator(mode="after")
    def _check_attention(self) -> "TransformerConfig":
        if self.attention == "window" and not self.attention_window:
            raise ValueError("model.attention_window=0 must be at least 1 with model.attention='window'")
        if self.attention_window and self.attention != "window":
            raise ValueError(
                f"model.attention_window={self.attention_window} must be 0 with model.attention={self.attention!r}; "
                "only 'window' uses it"
            )
        if self.attention == "linear" and self.attention_block != "multi-head":
            raise ValueError(
                f"model.attention='linear' needs model.attention_block='multi-head', not {self.attention_block!r}"
            )
        if self.attention_scale != "sqrt" and (self.attention == "linear" or self.attention_block != "multi-head"):
            raise ValueError(
                f"model.attention_scale={self.attention_scale!r} must be 'sqrt' with model.attention="
                f"{self.attention!r} and model.attention_block={self.attention_block!r}; only multi-head attention "
                "with a softmax uses it"
            )
        if self.attention == "linear" and self.positions in ("alibi", "relative-bias", "rope"):
            raise ValueError(
                f"model.attention='linear' has no scores that model.positions={self.positions!r} could change by "
                "distance; choose other positions"
            )
        return self

    @model_validator(mode="after")
    def _check_source_ends(self) -> "TransformerConfig":
        if not self.source_eos and self.attention == "linear":
            raise ValueError("model.source_eos=False needs model.attention='full' or 'window', not 'linear'")
        if not self.source_bos and self.attention == "linear":
            raise ValueError("model.source_bos=False needs model.attention='full' or 'window', not 'linear'")
        return self

    @property
    def summary(self) -> str:
        """The model's size in a few words."""
        return (
            f"{self.num_encoder_layers} + {self.num_decoder_layers} layers, {counted(self.num_heads, 'head')}"
            + f", {self.attention} attention" * (self.attention != "full")
        )


class DecoderOnlyConfig(BlocksConfig):
    """A causal language model that reads the source as a prefix of the sequence it continues."""

    family: Literal["decoder-only"] = "decoder-only"
    num_layers: Annotated[int, Field(ge=1, le=24, description="layers")] = 2
    source_eos: Annotated[
        bool,
        Field(description="the target follows the EOS of its source; otherwise it replaces EOS, which is masked"),
    ] = True
    source_bos: Annotated[
        bool, Field(description="the model reads the BOS of its source; otherwise nothing attends to it"), FIXED
    ] = True
    target_bos: Annotated[
        bool,
        Field(
            description="the model reads the BOS of the target; otherwise it reads the last token of the source in its "
            "place, so that the target continues the source as in GPT-2"
        ),
        FIXED,
    ] = True

    @model_validator(mode="after")
    def _check_target_bos(self) -> "DecoderOnlyConfig":
        if not self.target_bos and self.source_eos:
            raise ValueError("model.target_bos=False needs model.source_eos=False: the target continues the source")
        return self

    @property
    def summary(self) -> str:
        """The model's size in a few words."""
        return f"decoder-only, {counted(self.num_layers, 'layer')}, {counted(self.num_heads, 'head')}"


class EncoderOnlyConfig(BlocksConfig):
    """An encoder that scores a token at every position of its source, without generating: BERT (Devlin et al. 2019)."""

    family: Literal["encoder-only"] = "encoder-only"
    num_layers: Annotated[int, Field(ge=1, le=24, description="layers")] = 2
    tie_embeddings: Annotated[
        Literal["none", "all"], Field(description="weight sharing: none; or output layer and source embedding (all)")
    ] = "none"

    @property
    def summary(self) -> str:
        """The model's size in a few words."""
        return f"encoder-only, {counted(self.num_layers, 'layer')}, {counted(self.num_heads, 'head')}"


class GRUConfig(_ModelSection):
    """The recurrent encoder-decoder with attention of Bahdanau et al. 2015; its cell is a GRU by default."""

    family: Literal["gru"] = "gru"
    d_embedding: Annotated[int, Field(ge=2, le=1024, description="embedding size: width of every token's vector")] = 128
    d_hidden: Annotated[int, Field(ge=2, le=2048, description="hidden state size of every layer")] = 256
    cell: Annotated[
        Cell,
        Field(description="recurrent cell: GRU; LSTM; plain RNN with tanh, without gates; or stack RNN, with a stack"),
    ] = "gru"
    num_layers: Annotated[int, Field(ge=1, le=8, description="layers in the encoder, and in the decoder")] = 2
    attention_type: Annotated[
        RecurrentAttention,
        Field(
            description="additive; location-sensitive: the scores also depend on where the step before attended, so "
            "the decoder can move along the source; last-token: only the output layer reads the source, namely the "
            "encoder's final state (the merge architecture of Tanti et al. 2018); or none: the decoder starts from "
            "that state, and reads nothing else of the source (Sutskever et al. 2014)"
        ),
    ] = "additive"
    max_seq_len: Annotated[
        int, Field(ge=4, le=2_048, description="maximum sequence length in tokens, BOS and EOS included")
    ] = 64
    dropout: Annotated[float, Field(ge=0, le=0.9, description="dropout probability")] = 0.1
    mask_padding: Annotated[bool, Field(description="stop the encoder before PAD")] = True
    source_eos: Annotated[
        bool,
        Field(description="the encoder reads the EOS of its source; otherwise it stops before EOS"),
    ] = True

    @property
    def kind(self) -> str:
        """The cell, such as "lstm"."""
        return self.cell

    @property
    def summary(self) -> str:
        """The model's size in a few words."""
        return f"{self.kind.upper()}, {self.num_layers} layer{'s' * (self.num_layers > 1)} of {self.d_hidden}"


class WatchedModelConfig(_ModelSection):
    """A user's own module, which the lab cannot build; the ``task`` section names it."""

    max_seq_len: ClassVar[int] = 1_000_002  # of no consequence

    family: Literal["watched"] = "watched"

    @property
    def summary(self) -> str:
        """The model in a few words."""
        return "a module of your own"


ModelConfig = TransformerConfig | DecoderOnlyConfig | EncoderOnlyConfig | GRUConfig | WatchedModelConfig
