"""The sections of a preset that say what learns, and how; those that say what is learned are in task_sections."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

FIXED = "fixed"  # on a field: it comes with the preset and is nothing to choose


class Section(BaseModel):
    """Base of every section: immutable, exact types, no unknown keys, only finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class TaskSection(Section):
    """Base of every section that says what is learned."""

    @property
    def own_data(self) -> str:
        """SHA-256 of the pairs that somebody brought for it, or ""."""
        return ""


class BlocksConfig(Section):
    """What models of Transformer blocks have in common."""

    family: str
    d_model: Annotated[int, Field(ge=4, le=1024, description="width of every token's vector")] = 64
    num_heads: Annotated[int, Field(ge=1, le=16, description="attention heads in every layer")] = 4
    d_ff: Annotated[int, Field(ge=4, le=4096, description="width inside the feed-forward network")] = 128
    max_seq_len: Annotated[int, Field(ge=4, le=512, description="most tokens a sequence may have, BOS and EOS in")] = 64
    dropout: Annotated[float, Field(ge=0, le=0.9, description="share of activations zeroed in training")] = 0.0
    norm: Annotated[
        Literal["post", "pre"], Field(description="layer norm behind each sublayer, as in the paper, or before it")
    ] = "post"
    positions: Annotated[
        Literal["sinusoidal", "learned", "none", "alibi", "vo-rope"],
        Field(description="how places are told apart; the last two, by distance, serve beyond the lengths trained on"),
    ] = "sinusoidal"
    activation: Annotated[
        Literal["relu", "gelu"], Field(description="between the two maps of the feed-forward network")
    ] = "relu"
    tie_embeddings: Annotated[
        Literal["none", "output", "all"],
        Field(description="what shares its weights: nothing, output and target embedding, or source embedding too"),
    ] = "none"
    embedding_gain: Annotated[
        float, Field(gt=0, le=10, description="how large token embeddings begin, beside the positions added to them")
    ] = 1.0
    sublayer_gain: Annotated[
        float, Field(ge=0, le=10, description="how large what each sublayer adds begins; 0 adds nothing at first")
    ] = 1.0

    @model_validator(mode="after")
    def _widths_fit(self) -> "BlocksConfig":
        if self.d_model % self.num_heads:
            raise ValueError(f"model.d_model={self.d_model} must be divisible by model.num_heads={self.num_heads}")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"model.d_model={self.d_model} must be even: positions are pairs of sine and cosine")
        if self.positions == "vo-rope" and self.d_k % 2:
            raise ValueError(
                f"model.d_model={self.d_model} / model.num_heads={self.num_heads} must be even with "
                "model.positions='vo-rope', which turns pairs of numbers"
            )
        return self

    @property
    def d_k(self) -> int:
        """Width of one head's queries and keys."""
        return self.d_model // self.num_heads


class TransformerConfig(BlocksConfig):
    """The encoder-decoder Transformer of Vaswani et al. 2017 ("Attention Is All You Need")."""

    family: Literal["transformer"] = "transformer"
    num_encoder_layers: Annotated[int, Field(ge=1, le=12, description="layers that read the input")] = 2
    num_decoder_layers: Annotated[int, Field(ge=1, le=12, description="layers that write the answer")] = 2
    position_stretch: Annotated[
        float, Field(ge=1, le=100, description="vo-rope: in training, places lie up to this far apart")
    ] = 1.0

    @model_validator(mode="after")
    def _places_can_be_stretched(self) -> "TransformerConfig":
        if self.position_stretch > 1 and self.positions != "vo-rope":
            raise ValueError(
                f"model.position_stretch={self.position_stretch} must be 1 with model.positions={self.positions!r}, which ignores it; "
                "'vo-rope' does not"
            )
        return self


class DecoderOnlyConfig(BlocksConfig):
    """A causal language model: it reads the input as the beginning of what it goes on to write."""

    family: Literal["decoder-only"] = "decoder-only"
    num_layers: Annotated[int, Field(ge=1, le=24, description="layers")] = 2


class GRUConfig(Section):
    """The GRU encoder-decoder with additive attention of Bahdanau et al. 2015."""

    family: Literal["gru"] = "gru"
    d_embedding: Annotated[int, Field(ge=2, le=1024, description="width of every token's vector")] = 128
    d_hidden: Annotated[int, Field(ge=2, le=2048, description="width of every layer's state")] = 256
    num_layers: Annotated[int, Field(ge=1, le=8, description="recurrent layers in the encoder and the decoder")] = 2
    max_seq_len: Annotated[int, Field(ge=4, le=512, description="most tokens a sequence may have, BOS and EOS in")] = 64
    dropout: Annotated[float, Field(ge=0, le=0.9, description="share of activations zeroed in training")] = 0.1
    mask_padding: Annotated[bool, Field(description="keep the encoder from running over PAD")] = True


ModelConfig = TransformerConfig | DecoderOnlyConfig | GRUConfig


class TrainingConfig(Section):
    """How the model is trained: data, optimiser, schedule, and how often it is evaluated."""

    steps: Annotated[int, Field(ge=1, le=1_000_000, description="optimiser updates")] = 1000
    batch_size: Annotated[int, Field(ge=1, le=4096, description="sequences in a batch")] = 64
    gradient_accumulation_steps: Annotated[
        int, Field(ge=1, le=256, description="batches an update, as if they were one large one, in less memory")
    ] = 1
    training_sequences: Annotated[
        int, Field(ge=0, le=100_000, description="a fixed set, gone through again and again; 0 draws fresh ones")
    ] = 0
    group_by_length: Annotated[
        bool, Field(description="batches of sequences of like lengths, with less padding to compute")
    ] = False
    optimizer: Annotated[
        Literal["adam", "adamw", "adam-by-hand", "muon"],
        Field(description="Adam, with decoupled weight decay (adamw), or written out here; Muon for layers' matrices"),
    ] = "adam"
    weight_decay: Annotated[
        float, Field(ge=0, le=1, description="adamw: share of every matrix taken off at each update, × learning rate")
    ] = 0.0
    learning_rate: Annotated[float, Field(gt=0, le=1, description="highest learning rate")] = 0.003
    muon_learning_rate: Annotated[
        float, Field(ge=0, le=1, description="muon: the same for the layers' matrices; all else has learning_rate")
    ] = 0.0
    schedule: Annotated[
        Literal["linear", "quadratic", "constant", "inverse-sqrt", "cosine", "one-cycle"],
        Field(description="after the warm-up: to zero in a line, its square, a cosine; by 1/√step; stay; or one cycle"),
    ] = "linear"
    warmup_steps: Annotated[int, Field(ge=0, le=100_000, description="steps in which the learning rate rises")] = 50
    max_gradient_norm: Annotated[
        float, Field(gt=0, le=1_000, description="longer gradients are scaled down to this norm")
    ] = 1.0
    label_smoothing: Annotated[
        float, Field(ge=0, le=0.99, description="share of each target spread over all tokens, in training only")
    ] = 0.0
    teacher_forcing_ratio: Annotated[
        float, Field(ge=0, le=1, description="share of decoder inputs that are true; the rest the model's own choices")
    ] = 1.0
    teacher_forcing_schedule: Annotated[
        Literal["constant", "linear"], Field(description="that share all along, or falling to it from 1 over the run")
    ] = "constant"
    precision: Annotated[
        Literal["float32", "bfloat16"], Field(description="of matrix products in training; weights stay float32")
    ] = "float32"
    evaluate_every: Annotated[int, Field(ge=1, le=100_000, description="steps between two evaluations")] = 50
    validation_sequences: Annotated[
        int, Field(ge=1, le=10_000, description="held-out sequences in each evaluation")
    ] = 256
    seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="start of every random number of the run")] = 0

    @property
    def sequences_per_step(self) -> int:
        """Sequences that one update learns from."""
        return self.batch_size * self.gradient_accumulation_steps

    @model_validator(mode="after")
    def _warmup_fits(self) -> "TrainingConfig":
        if self.schedule == "one-cycle":
            if self.warmup_steps:
                raise ValueError(
                    f"training.warmup_steps={self.warmup_steps} must be 0 with training.schedule='one-cycle', "
                    "which has a rise of its own"
                )
        elif self.schedule == "inverse-sqrt" and not self.warmup_steps:
            raise ValueError(
                "training.warmup_steps=0 must be at least 1 with training.schedule='inverse-sqrt', "
                "which falls by √(warmup_steps / step)"
            )
        if self.warmup_steps > self.steps:
            raise ValueError(f"training.warmup_steps={self.warmup_steps} must not be above training.steps={self.steps}")
        return self

    @model_validator(mode="after")
    def _decay_has_an_optimizer(self) -> "TrainingConfig":
        if self.weight_decay and self.optimizer != "adamw":
            raise ValueError(
                f"training.weight_decay={self.weight_decay} must be 0 with training.optimizer={self.optimizer!r}, "
                "which ignores it; 'adamw' does not"
            )
        return self

    @model_validator(mode="after")
    def _matrices_have_an_optimizer(self) -> "TrainingConfig":
        if self.optimizer == "muon" and not self.muon_learning_rate:
            raise ValueError(
                "training.muon_learning_rate=0.0 must be above 0 with training.optimizer='muon', such as 0.02"
            )
        if self.muon_learning_rate and self.optimizer != "muon":
            raise ValueError(
                f"training.muon_learning_rate={self.muon_learning_rate} must be 0 with "
                f"training.optimizer={self.optimizer!r}, which ignores it; 'muon' does not"
            )
        return self
