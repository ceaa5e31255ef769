"""Model card (README.md) and vocabulary file of an exported run."""

import json
from datetime import UTC

from core.config import preset_to_yaml
from core.config.counting import percent
from core.config.tasks import TaskConfig
from core.interpret.trained import Trained
from core.runs.info import RunInfo, TrainingSession
from core.tasks import Task

_CARD = """---
library_name: attention-lab
tags:
- attention-lab
- seq2seq
- {kind}
---

# {title}

{description}

A small {kind} model of {parameters:,} parameters, {origin}.

| | |
|---|---|
| weights | after {step:,} of {steps:,} updates, those with the lowest validation loss |
| began with | {start} |
| {metric}, free-running greedy decoding | {score} |
| source and target vocabulary size, special tokens included | {src_tokens:,}, {tgt_tokens:,} |
| maximum sequence length, tokens | {max_seq_len} |
| data | {data} |

## Files

- `model.safetensors`: weights, with the preset and metrics as JSON in the metadata. It contains no code.
- `preset.yaml`: everything needed to build the model and to train it again.
- `vocabulary.json`: source and target tokens, in the order of their ids.
{more_files}
## Training

{training}
## Use

```
python -m core import FOLDER_OR_ZIP --run NAME
python -m core decode --run NAME "{example}"
python -m core evaluate --run NAME
```

## Limits

This is a model for experiments. It knows only its own task; its answers to inputs longer than those it was trained on,
or with other tokens, are not reliable.

## Preset

```yaml
{preset}```
"""


_FORMATS = {"bleu": ".1f", "perplexity": ".2f"}  # of the figures that decide; all others are shares


def model_card(loaded: Trained, info: RunInfo, *, title: str) -> str:
    """Return a run's model card: Markdown with the YAML metadata that the Hugging Face Hub reads."""
    preset, task = loaded.preset, loaded.task
    scores = {
        each.name: f"{each.value:{_FORMATS[each.measure]}}" if each.measure in _FORMATS else percent(each.value, 2)
        for each in info.figures
    }
    if info.quality:
        scores["chrF"] = f"{info.quality.chrf:.1f}"
    metric = f"validation {' and '.join(scores) or 'exact match'}"
    score = " and ".join(scores.values()) or "not measured"
    own = preset.task.own_data
    return _CARD.format(
        title=title,
        kind=preset.model.kind,
        description=preset.description,
        parameters=info.parameters,
        origin=(
            "trained by another program and imported into Attention Lab"
            if preset.task.family == "imported"
            else f"trained with Attention Lab to {preset.task.summary}"
        ),
        step=loaded.step,
        steps=preset.training.steps,
        start=f"the weights of {info.start.text}" if info.start else "random weights",
        metric=metric,
        score=score,
        src_tokens=len(task.src_vocab),
        tgt_tokens=len(task.tgt_vocab),
        max_seq_len=preset.model.max_seq_len,
        data=_data(preset.task) if own else "generated or read by the program, from the preset",
        more_files="- `pairs.tsv`: the pairs it was trained and tested on.\n" if own and task.has_pairs else "",
        example=task.examples[0].replace('"', "'").replace("`", "'"),
        training=_training(info),
        preset=preset_to_yaml(preset),
    )


def _data(config: TaskConfig) -> str:
    """Return where pairs come from, in words."""
    origin = config.data_origin or "the user's own pairs"
    return f"{origin}, SHA-256 `{config.own_data}`"


def _training(info: RunInfo) -> str:
    """Return the run's provenance, one entry per session."""
    if not info.provenance:
        return "Program, machine and time of the training were not recorded.\n"
    return "".join(f"- {_session(session)}\n" for session in info.provenance)


def _session(session: TrainingSession) -> str:
    started = {"": "Python code", "page": "the page"}.get(session.command, f"`python -m core {session.command}`")
    start, end = (f"{each.astimezone(UTC):%Y-%m-%d %H:%M}" for each in (session.start, session.end))
    program = f"Attention Lab {session.version}" + (f", commit `{session.commit}`" if session.commit else "")
    software = f"Python {session.python}, PyTorch {session.torch}, NumPy {session.numpy}"
    for plugin in session.plugins:
        software += f"; plugin {plugin.name}, SHA-256 {plugin.sha256}"
        software += "".join(f"; its module {each.name}, SHA-256 {each.sha256}" for each in plugin.imports)
    threads = f"{session.threads} thread{'s' * (session.threads != 1)}"
    processes = f"{session.processes} processes of {threads}" if session.processes > 1 else threads
    machine = f"CPU {session.cpu}, {session.system}, {processes}"
    hardware = machine if session.device == "cpu" else f"{session.gpu or session.device.upper()} ({machine})"
    return f"{start} to {end} UTC, from step {session.step:,}, by {started}: {program}; {software}; on {hardware}"


def vocabulary_json(task: Task) -> str:
    """Return source and target tokens as JSON, in the order of their ids."""
    tokens = {"source": task.src_vocab.tokens, "target": task.tgt_vocab.tokens}
    return json.dumps(tokens, ensure_ascii=False, indent=1) + "\n"
