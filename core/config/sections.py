"""The ``model`` and ``training`` sections of a preset. The ``task`` section is in ``core.config.tasks``."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

FIXED = "fixed"  # marks fields that the preset sets and the user does not edit

Norm = Literal["post", "pre"]
Activation = Literal["relu", "gelu", "silu"]
Attention = Literal["full", "window", "linear"]
AttentionScale = Literal["sqrt", "log-length"]
Cell = Literal["gru", "lstm", "rnn"]
TieEmbeddings = Literal["none", "output", "all"]
Positions = Literal["sinusoidal", "sinusoidal-halves", "learned", "none", "alibi", "rope", "vo-rope"]
"""Positional encoding of the attention models.

- ``sinusoidal``: fixed sines and cosines, added to the embeddings (Vaswani et al. 2017, section 3.5).
- ``sinusoidal-halves``: the same numbers in another order, all sines before all cosines, as in Marian.
- ``learned``: a trained embedding per position, added to the token embeddings.
- ``none``: no positional encoding.
- ``alibi``: a linear penalty on distance, added to the attention scores (Press et al. 2022).
- ``rope``: queries and keys are rotated by their positions, so scores depend on relative positions only (Su et al.
  2021).
- ``vo-rope``: values are rotated by their own position, and the head's output is rotated back by the query's position,
  so what a head reads depends on relative positions only. Queries and keys stay unrotated. This is VO-RoPE (Su 2025,
  "the second type of rotary position embedding", https://kexue.fm/archives/10862); compare RoVE (García-Castellanos
  et al. 2026).
"""
RELATIVE_POSITIONS = ("alibi", "rope", "vo-rope")  # used by self-attention, not added to the embeddings

BlockKind = Literal["attention", "feed_forward", "norm", "embedding", "output"]
BLOCKS: dict[BlockKind, dict[str, Callable[..., Any] | None]] = {
    "attention": {"multi-head": None},
    "feed_forward": {"mlp": None},
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


class BlocksConfig(Section):
    """Fields shared by all models that consist of Transformer blocks."""

    family: str
    d_model: Annotated[int, Field(ge=4, le=1024, description="embedding size: width of every token's vector")] = 64
    num_heads: Annotated[int, Field(ge=1, le=16, description="attention heads per layer")] = 4
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
        Field(description="positional encoding; alibi, rope and vo-rope are relative, for self-attention only"),
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
        str, Field(description="class of the feed-forward networks: mlp, or one that a plugin registers"), FIXED
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
                    f"model.{kind}_block={name[:60]!r} should be {' or '.join(map(repr, blocks))}; a block of your own "
                    "needs the file that registers it: --plugin FILE"
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
    num_encoder_layers: Annotated[int, Field(ge=1, le=12, description="encoder layers")] = 2
    num_decoder_layers: Annotated[int, Field(ge=1, le=12, description="decoder layers")] = 2
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
        if self.attention == "linear" and self.positions in ("alibi", "rope"):
            raise ValueError(
                f"model.attention='linear' has no scores that model.positions={self.positions!r} could change by "
                "distance; choose other positions"
            )
        return self

    @model_validator(mode="after")
    def _check_source_ends(self) -> "TransformerConfig":
        if not self.source_eos and self.attention == "linear":
            raise ValueError("model.source_eos=False needs model.attention='full' or 'window', not 'linear'")
        if not self.source_bos and (self.attention == "linear" or self.positions in RELATIVE_POSITIONS):
            raise ValueError(
                f"model.source_bos=False needs model.attention='full' or 'window' and positions that are added to the "
                f"embeddings, not model.attention={self.attention!r} with model.positions={self.positions!r}"
            )
        return self

    @property
    def summary(self) -> str:
        """The model's size in a few words."""
        return (
            f"{self.num_encoder_layers} + {self.num_decoder_layers} layers, {self.num_heads} heads"
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

    @property
    def summary(self) -> str:
        """The model's size in a few words."""
        return f"decoder-only, {self.num_layers} layers, {self.num_heads} heads"


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
        return f"encoder-only, {self.num_layers} layers, {self.num_heads} heads"


class GRUConfig(Section):
    """The recurrent encoder-decoder with additive attention of Bahdanau et al. 2015; its cell is a GRU by default."""

    family: Literal["gru"] = "gru"
    d_embedding: Annotated[int, Field(ge=2, le=1024, description="embedding size: width of every token's vector")] = 128
    d_hidden: Annotated[int, Field(ge=2, le=2048, description="hidden state size of every layer")] = 256
    cell: Annotated[Cell, Field(description="recurrent cell: GRU; LSTM; or plain RNN with tanh, without gates")] = "gru"
    num_layers: Annotated[int, Field(ge=1, le=8, description="layers in the encoder, and in the decoder")] = 2
    max_seq_len: Annotated[
        int, Field(ge=4, le=2_048, description="maximum sequence length in tokens, BOS and EOS included")
    ] = 64
    dropout: Annotated[float, Field(ge=0, le=0.9, description="dropout probability")] = 0.1
    mask_padding: Annotated[bool, Field(description="stop the encoder before PAD")] = True

    @property
    def summary(self) -> str:
        """The model's size in a few words."""
        return f"{self.cell.upper()}, {self.num_layers} layer{'s' * (self.num_layers > 1)} of {self.d_hidden}"


ModelConfig = TransformerConfig | DecoderOnlyConfig | EncoderOnlyConfig | GRUConfig


class TrainingConfig(Section):
    """Settings of the training: data, optimizer, learning rate schedule and evaluation."""

    steps: Annotated[int, Field(ge=1, le=1_000_000, description="optimizer updates")] = 1000
    batch_size: Annotated[
        int, Field(ge=1, le=4096, description="sequences per batch; unused with tokens_per_batch")
    ] = 64
    gradient_accumulation_steps: Annotated[
        int, Field(ge=1, le=256, description="gradient accumulation steps: batches per optimizer update")
    ] = 1
    training_sequences: Annotated[
        int, Field(ge=0, le=100_000, description="size of a fixed training set; 0 draws new sequences for every batch")
    ] = 0
    group_by_length: Annotated[
        bool, Field(description="put sequences of similar length into one batch, for less padding")
    ] = False
    tokens_per_batch: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="token budget of a batch, for sources and for targets, PAD included; 0: batch_size sequences",
        ),
    ] = 0
    micro_batch_tokens: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="split each batch into parts of at most this many tokens per side: less memory, same gradient; "
            "0: no split",
        ),
    ] = 0
    optimizer: Annotated[
        Literal["adam", "adamw", "adam-by-hand", "muon"],
        Field(description="Adam; AdamW; Adam written out in this project; Muon for the matrices of the layers"),
    ] = "adam"
    weight_decay: Annotated[
        float, Field(ge=0, le=1, description="adamw: decoupled weight decay of all matrices, times the learning rate")
    ] = 0.0
    learning_rate: Annotated[float, Field(gt=0, le=1, description="peak learning rate")] = 0.003
    muon_learning_rate: Annotated[
        float, Field(ge=0, le=1, description="muon: its peak learning rate; other parameters use Adam's learning_rate")
    ] = 0.0
    schedule: Annotated[
        Literal["linear", "polynomial", "constant", "inverse-sqrt", "cosine", "one-cycle"],
        Field(description="learning rate after warm-up: decay to zero, constant, decay by 1/√step; or one cycle"),
    ] = "linear"
    decay_power: Annotated[
        float, Field(gt=0, le=10, description="polynomial: power of the linear decay; 1 is linear, 2 is quadratic")
    ] = 1.0
    warmup_steps: Annotated[int, Field(ge=0, le=100_000, description="steps of linear learning rate warm-up")] = 50
    max_gradient_norm: Annotated[
        float, Field(gt=0, le=1_000, description="gradient clipping: maximum norm of the gradient")
    ] = 1.0
    gradient_clipping: Annotated[
        Literal["global", "per-parameter"],
        Field(description="apply max_gradient_norm to the norm of all gradients together, or of each parameter's"),
    ] = "global"
    label_smoothing: Annotated[float, Field(ge=0, le=0.99, description="label smoothing, in training only")] = 0.0
    teacher_forcing_ratio: Annotated[
        float, Field(ge=0, le=1, description="fraction of decoder inputs from the target; the rest are predictions")
    ] = 1.0
    teacher_forcing_schedule: Annotated[
        Literal["constant", "linear"],
        Field(description="use that ratio throughout, or decrease it linearly from 1 over the run"),
    ] = "constant"
    precision: Annotated[
        Literal["float32", "bfloat16", "auto"],
        Field(
            description="precision of matrix products, not of weights; auto: bfloat16 where the hardware is made for it"
        ),
    ] = "float32"
    evaluate_every: Annotated[int, Field(ge=1, le=100_000, description="steps between evaluations")] = 50
    validation_sequences: Annotated[int, Field(ge=1, le=10_000, description="held-out sequences per evaluation")] = 256
    free_running_validation: Annotated[
        bool,
        Field(description="also measure the validation loss on the model's own output, to choose the best weights"),
    ] = False
    guided_alignment: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            description="weight of a term of the training loss that teaches head 1 of the cross-attention in the layer "
            "before the last the gold alignment; 0: none",
        ),
    ] = 0.0
    patience: Annotated[
        int,
        Field(
            ge=0,
            le=10_000,
            description="stop after this many evaluations without a better validation loss; 0: never",
        ),
    ] = 0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="random seed of the run")] = 0

    @property
    def summary(self) -> str:
        """Length and optimizer of the training in a few words."""
        return f"{self.steps:,} steps, {self.optimizer}"

    @model_validator(mode="after")
    def _check_schedule(self) -> "TrainingConfig":
        if self.schedule == "one-cycle":
            if self.warmup_steps:
                raise ValueError(
                    f"training.warmup_steps={self.warmup_steps} must be 0 with training.schedule='one-cycle', "
                    "which has its own warm-up"
                )
        elif self.schedule == "inverse-sqrt" and not self.warmup_steps:
            raise ValueError(
                "training.warmup_steps=0 must be at least 1 with training.schedule='inverse-sqrt', "
                "which decays by √(warmup_steps / step)"
            )
        if self.decay_power != 1 and self.schedule != "polynomial":
            raise ValueError(
                f"training.decay_power={self.decay_power} must be 1 with training.schedule={self.schedule!r}; "
                "only 'polynomial' uses it"
            )
        if self.warmup_steps > self.steps:
            raise ValueError(
                f"training.warmup_steps={self.warmup_steps} must not be above training.steps={self.steps}; "
                f"set both, such as training.steps={self.steps} and training.warmup_steps={max(1, self.steps // 10)}"
            )
        return self

    @model_validator(mode="after")
    def _check_tokens_per_batch(self) -> "TrainingConfig":
        if self.tokens_per_batch and not self.group_by_length:
            raise ValueError(
                f"training.tokens_per_batch={self.tokens_per_batch} must be 0 with training.group_by_length=False; "
                "a token budget is filled with sequences of similar length"
            )
        return self

    @model_validator(mode="after")
    def _check_weight_decay(self) -> "TrainingConfig":
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError(
                f"training.weight_decay={self.weight_decay} must be 0 with training.optimizer={self.optimizer!r}; "
                "only 'adamw' uses it"
            )
        return self

    @model_validator(mode="after")
    def _check_muon_learning_rate(self) -> "TrainingConfig":
        if self.optimizer == "muon" and not self.muon_learning_rate:
            raise ValueError(
                "training.muon_learning_rate=0.0 must be above 0 with training.optimizer='muon', such as 0.02"
            )
        if self.muon_learning_rate and self.optimizer != "muon":
            raise ValueError(
                f"training.muon_learning_rate={self.muon_learning_rate} must be 0 with "
                f"training.optimizer={self.optimizer!r}; only 'muon' uses it"
            )
        return self
