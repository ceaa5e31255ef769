"""The translations component: the translation of a text of several sentences, and a button for each sentence."""

from collections.abc import Sequence
from typing import Any

import gradio as gr

from core.generation.translation import Translation
from ui.components.component import component


def translations() -> gr.HTML:
    """Build the component; hidden without a value. Value: ``translations_value``.

    Event: ``.pick(fn)`` with ``evt.text``, the sentence whose words the visitor asks for.
    """
    return component("translations", elem_id="translations", events=["pick"])


def translations_value(sentences: Sequence[str], results: Sequence[Translation]) -> dict[str, Any]:
    """Return sentences, each with the white space after it, and their translations as the component's value."""
    spaces = [sentence[len(sentence.rstrip()) :] for sentence in sentences]
    return {
        "text": "".join(result.output + space for result, space in zip(results, spaces, strict=True)).strip(),
        "sentences": [
            {"source": sentence.strip(), "output": result.output, "problem": result.problem}
            for sentence, result in zip(sentences, results, strict=True)
        ],
    }
