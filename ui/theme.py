"""The page's look: Gradio theme, page-wide style sheet, and the launch options that both belong to."""

from typing import Any

import gradio as gr

from ui.serving.assets import head

FONTS = ["system-ui", "sans-serif"]  # system fonts: nothing to fetch
MONO_FONTS = ["ui-monospace", "monospace"]
# One shade darker than Gradio's default where needed for a text contrast of at least 4.5 : 1.
THEME = gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=MONO_FONTS).set(
    body_text_color_subdued="*neutral_500",
    body_text_color_subdued_dark="*neutral_400",
    button_primary_background_fill="*primary_600",
    button_primary_background_fill_hover="*primary_700",
)
LAUNCH: dict[str, Any] = {
    "head": head(),
    "theme": THEME,
    "footer_links": ["api", "settings"],
    "run_history": False,
    "enable_monitoring": False,
    "ssr_mode": False,
    "prevent_thread_lock": True,
    "quiet": True,
}
"""Options for ``Blocks.launch``, which takes theme and style since Gradio 6."""
