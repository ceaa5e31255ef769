"""The recipes that own pairs are proposed: a model and a training for each kind of pairs and their number."""

import math
from typing import Any

from core.config import SPECIAL_TOKENS, Preset, parse_preset
from core.config.tasks import OwnPairsConfig
from core.tasks.ingest.pairs import MAX_TOKENS, IngestResult, SubwordSizes

_SMALL, _LARGE = 3_000, 30_000  # sources; a small data set gets fewer steps, a large one a larger model
_FEW_SENTENCES, _MANY_SENTENCES = 5_000, 20_000  # training pairs of subwords
_LENGTHS_TIMES_UPDATES = 75_000  # tokens of the longest source and target, times updates: two minutes of one core
_FEWEST_POSITIONS = 4  # of a model, also where all pairs are shorter
_EPOCHS = 50  # over sentences: few enough steps for many, so that no preset trains for hours


def task_for(result: IngestResult) -> OwnPairsConfig:
    """Return the task section for imported pairs; its lengths are the largest possible until they are counted."""
    longest = result.longest if result.source_lengths else (MAX_TOKENS, MAX_TOKENS)
    document = {
        "data": result.sha256,
        "num_sources": result.sources,
        "source_tokens": result.kinds[0],
        "answer_tokens": result.kinds[1],
        "source_case": result.source_case,
        "longest_source": longest[0],
        "longest_answer": longest[1],
    }
    if result.sources > _LARGE:
        document["validation_percent"] = 2  # hundreds of sources, which measure the loss well enough
    if result.subwords:
        document |= {"vocabulary_size": result.subwords.vocabulary_size, "joint_vocabulary": result.subwords.joint}
    return OwnPairsConfig.model_validate(document)


def preset_for(result: IngestResult, *, name: str, like: Preset | None = None) -> Preset:
    """Return a preset for imported pairs, with a model and training that fit their number or are those of a preset.

    Args:
        like: that preset; its model reads longer sequences if the pairs have some. If it shares the embeddings of both
            sides, subwords have one vocabulary for both.

    Raises:
        ConfigError: the model of ``like`` cannot learn these pairs.
    """
    task = task_for(result)
    positions = min(512, max(_FEWEST_POSITIONS, max(task.longest_source, task.longest_answer) + SPECIAL_TOKENS))
    if like is not None:
        model, training = like.model.model_dump(), like.training.model_dump()
        model["max_seq_len"] = max(positions, like.model.max_seq_len)
        if task.has_subwords and model.get("tie_embeddings") == "all":
            task = task.model_copy(update={"joint_vocabulary": True})
    else:
        model, training = _for_sentences(result, result.subwords) if result.subwords else _for_sequences(result)
        model = {"family": "transformer", "norm": "pre", "num_heads": 4, "max_seq_len": positions} | model
        training = {"group_by_length": True, "learning_rate": 0.002} | training
    document = {
        "name": name,
        "description": f"Own data: {result.pairs:,} pairs with {result.sources:,} different sources.",
        "task": task.model_dump(exclude_defaults=True) | {"family": task.family},
        "model": model,
        "training": training,
    }
    return parse_preset(document)


def _for_sequences(result: IngestResult) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return model and training for pairs of characters, words or symbols; ``bench recipes`` trains what is proposed.

    Batches are not grouped by length: on SCAN, 800 updates with random ones do what 2,000 with grouped ones do not.
    Dropout costs tasks with a rule most, such as sums; few pairs need it.
    """
    if result.sources > _LARGE:
        return _for_many_sequences()
    is_small = result.training_pairs <= _SMALL
    updates = _LENGTHS_TIMES_UPDATES // (sum(result.longest) + 2 * SPECIAL_TOKENS)  # long pairs take longer
    steps = 100 * (min(3_000, max(1_000, updates)) // 100)
    model = {
        "d_model": 64,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "d_ff": 256,
        "dropout": 0.1 if is_small else 0.0,
        "positions": "rope",
        "activation": "gelu",
    }
    training = {
        "steps": steps,
        "batch_size": 64,
        "group_by_length": False,
        "optimizer": "muon",
        "muon_learning_rate": 0.05,
        "learning_rate": 0.0045,
        "schedule": "polynomial",
        "decay_power": 2.4,
        "warmup_steps": 100,
        "max_gradient_norm": 0.5,
        "label_smoothing": 0.0 if is_small else 0.1,
        "evaluate_every": 100,
        "validation_sequences": 500,
    }
    return model, training


def _for_many_sequences() -> tuple[dict[str, Any], dict[str, Any]]:
    model = {"d_model": 128, "num_encoder_layers": 3, "num_decoder_layers": 2, "d_ff": 512, "dropout": 0.1}
    training = {
        "steps": 6_000,
        "batch_size": 64,
        "warmup_steps": 100,
        "label_smoothing": 0.1,
        "evaluate_every": 100,
        "validation_sequences": 500,
    }
    return model, training


def _for_sentences(result: IngestResult, subwords: SubwordSizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return model and training for pairs of subwords: those of ``translate-en-de``, smaller for fewer pairs.

    Fewer pairs get more dropout, smaller batches and a smaller model, as Sennrich & Zhang (2019) find best.
    """
    few, many = result.training_pairs <= _FEW_SENTENCES, result.training_pairs > _MANY_SENTENCES
    d_model, layers, budget = (128, 2, 1_024) if few else (192, 3, 4_096)
    tokens = max(
        sum(length * count for length, count in side.items()) for side in (result.source_lengths, result.target_lengths)
    )
    steps = min(3_000, max(300, 100 * math.ceil(_EPOCHS * tokens / budget / 100)))
    model = {
        "d_model": d_model,
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "d_ff": 4 * d_model,
        "dropout": 0.3 if few else 0.15 if many else 0.2,
        "activation": "gelu",
        "tie_embeddings": "all" if subwords.joint else "output",
    }
    training = {
        "steps": steps,
        "tokens_per_batch": budget,
        "optimizer": "muon",
        "muon_learning_rate": 0.016,
        "schedule": "linear",
        "warmup_steps": steps // 10 if few else 200,
        "label_smoothing": 0.1,
        "evaluate_every": steps // 10,
        "validation_sequences": 300,
    }
    return model, training
