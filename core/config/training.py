"""The ``training`` section of a preset."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.config.sections import Section


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
    curriculum_steps: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="train on short sequences first: updates until all lengths are drawn, the longest admitted "
            "growing linearly; 0: all from the start",
        ),
    ] = 0
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
    gradient_checkpointing: Annotated[
        bool,
        Field(
            description="compute the activations of every layer again in the backward pass instead of keeping them: "
            "less memory, more time, same gradient"
        ),
    ] = False
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
    embedding_learning_rate: Annotated[
        float, Field(ge=0, le=1, description="peak learning rate of embeddings; 0: learning_rate")
    ] = 0.0
    adam_beta2: Annotated[
        float, Field(ge=0, lt=1, description="Adam's decay rate of squared gradients; 0: 0.99 with muon, else 0.999")
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
    def _check_curriculum(self) -> "TrainingConfig":
        if self.curriculum_steps and (not self.group_by_length or self.tokens_per_batch or self.training_sequences):
            raise ValueError(
                f"training.curriculum_steps={self.curriculum_steps} must be 0 with training.group_by_length="
                f"{self.group_by_length}, training.tokens_per_batch={self.tokens_per_batch} and "
                f"training.training_sequences={self.training_sequences}; a curriculum needs newly drawn sequences, in "
                "batches of batch_size grouped by length"
            )
        if self.curriculum_steps > self.steps:
            raise ValueError(
                f"training.curriculum_steps={self.curriculum_steps} must not be above training.steps={self.steps}"
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
