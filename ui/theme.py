"""The page's look: Gradio theme, page-wide style sheet, and the launch options that both belong to."""

from typing import Any

import gradio as gr

from ui.serving.assets import head

FONTS = ["system-ui", "sans-serif"]  # system fonts: nothing to fetch
MONO_FONTS = ["ui-monospace", "monospace"]
THEME = gr.themes.Default(font=FONTS, font_mono=MONO_FONTS)  # ui/web/theme.css has the colors
LAUNCH: dict[str, Any] = {
    "head": head(),
    "theme": THEME,
    "footer_links": ["api"],
    "run_history": False,
    "enable_monitoring": False,
    "ssr_mode": False,
    "prevent_thread_lock": True,
    "quiet": True,
}
"""Options for ``Blocks.launch``, which takes theme and style since Gradio 6."""
