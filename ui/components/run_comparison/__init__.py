"""The page's browser components, each a `gr.HTML` with its own script.

Scripts, templates and styles live in `ui/assets/`. The templates are static: a value reaches the
browser as data and is put on the page as text by the script, never interpolated, because tokens and
run names are strangers' text.
"""

import gradio as gr

from ui.components.component import component


def run_comparison(*, elem_id: str = "run-comparison") -> gr.HTML:
    """Several runs compared on the same inputs.

    Value: ``core.reports.comparison.as_data``, or ``{"progress": {"done": fraction, "run": id}}`` while measuring.
    """
    scripts = ["history.js", "plot.js", "series_chart.js"]
    return component("run_comparison", elem_id=elem_id, scripts=scripts, styles=["series_chart.css"])
