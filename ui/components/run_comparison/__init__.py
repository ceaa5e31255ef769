"""The run comparison: metrics, paired tests, differing settings and curves of several runs."""

import gradio as gr

from ui.components.component import component


def run_comparison() -> gr.HTML:
    """Build the component.

    Value: ``core.reports.comparison.as_data``; while measuring, ``{"progress": {"done": fraction, "run": title}}``.
    """
    return component("run_comparison", elem_id="run-comparison")
