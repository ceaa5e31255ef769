"""The bench: loss, accuracy, answers and attention heads of the current run, moving together while it trains."""

import gradio as gr

from ui.components.component import component


def bench(*, elem_id: str = "bench-view") -> gr.HTML:
    """Build the component. It has no value: it shows what the run bar receives, see ``ui/web/run_feed.js``."""
    return component("bench", elem_id=elem_id)
