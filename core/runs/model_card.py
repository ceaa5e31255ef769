"""What a run that is given away says of itself: a model card, and its vocabularies."""

import json

from core.config import Preset, preset_to_yaml
from core.runs import RunInfo
from core.tasks import Task

_CARD = """---
library_name: attention-lab
tags:
- attention-lab
- seq2seq
- {family}
---

# {name}

{description}

A small {family} model of {parameters:,} parameters, trained with Attention Lab to {summary}.

| | |
|---|---|
| weights | after {step:,} of {steps:,} updates, those with the lowest validation loss |
| validation, exact match of free-running greedy answers | {exact_match} |
| tokens of source and answer, special ones included | {src_tokens:,}, {tgt_tokens:,} |
| most tokens of a sequence | {max_seq_len} |
| data | {data} |

## Files

- `model.safetensors`: weights; JSON facts, the preset among them, are in its metadata. Nothing in it is code.
- `preset.yaml`: everything needed to build the model and to train it again.
- `vocabulary.json`: the tokens of both sides, in the order of their ids.
{more_files}
## Use

```
python -m core import FOLDER_OR_ZIP --run NAME
python -m core decode --run NAME "{example}"
python -m core evaluate --run NAME
```

## Limits

It is a model for experiments: it knows its own task only, and nothing is promised of inputs that are longer than those
it was trained on, or of other tokens.

## Preset

```yaml
{preset}```
"""


def model_card(name: str, preset: Preset, info: RunInfo, task: Task) -> str:
    """Write a run's model card, in Markdown with the metadata that hubs read."""
    exact = "not measured" if info.exact_match is None else f"{info.exact_match:.2%}"
    own = preset.task.own_data
    return _CARD.format(
        name=name,
        family=preset.model.family,
        description=preset.description,
        parameters=info.parameters,
        summary=preset.task.summary,
        step=info.best_step or info.step,
        steps=preset.training.steps,
        exact_match=exact,
        src_tokens=len(task.src_vocab),
        tgt_tokens=len(task.tgt_vocab),
        max_seq_len=preset.model.max_seq_len,
        data=f"somebody's own pairs, SHA-256 `{own}`" if own else "made or read by the program, from the preset alone",
        more_files="- `pairs.tsv`: the pairs it learned.\n" if own else "",
        example=task.examples[0].replace('"', "'").replace("`", "'"),
        preset=preset_to_yaml(preset),
    )


def vocabulary_json(task: Task) -> str:
    """Write the tokens of both sides, in the order of their ids."""
    tokens = {"source": task.src_vocab.tokens, "target": task.tgt_vocab.tokens}
    return json.dumps(tokens, ensure_ascii=False, indent=1) + "\n"
