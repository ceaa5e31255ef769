"""A run that has hardly learned to translate, with the vocabulary and the maps of one that has."""

from core.config import Preset, load_preset

SENTENCE = "Press Ctrl+F5 in LibreOffice."


def small_translation() -> Preset:
    """Return the translation preset with a model that trains two steps in a moment."""
    return load_preset("translate-en-de").with_changes(
        {
            "model.d_model": 16,
            "model.d_ff": 16,
            "model.num_heads": 2,
            "model.num_encoder_layers": 1,
            "model.num_decoder_layers": 2,
            "training.steps": 2,
            "training.warmup_steps": 1,
            "training.evaluate_every": 1,
            "training.tokens_per_batch": 256,
            "training.validation_sequences": 4,
            "training.precision": "float32",
        }
    )
