"""Attention Lab in a browser: ``python app.py``."""

import argparse
import os
from pathlib import Path

# Read by Gradio when it is imported: no calls home, and no ever-growing record of events.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100000")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "200")

import gradio as gr
import torch

from core.run_folder import DEFAULT_ROOT
from core.runs import Runs
from ui.components import PAGE_CSS
from ui.page import build_page

FONTS = ["system-ui", "sans-serif"]  # of the system: nothing to fetch
MONO_FONTS = ["ui-monospace", "monospace"]
LAUNCH = {
    "css_paths": PAGE_CSS,
    "theme": gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=MONO_FONTS),
    "footer_links": ["api", "settings"],
    "run_history": False,
    "ssr_mode": False,
    "max_file_size": "100kb",
}


def main() -> None:
    """Read the flags, build the page, serve it until Ctrl+C, and save what still trains."""
    options = _parser().parse_args()
    torch.set_num_threads(1)  # for handlers: two runs with a thread each already fill two cores
    runs = Runs(options.checkpoints, max_active=options.max_runs)
    page = build_page(runs).queue(default_concurrency_limit=8, max_size=64)
    try:
        _, address, _ = page.launch(
            server_name=options.host, server_port=options.port, prevent_thread_lock=True, quiet=True, **LAUNCH
        )
        print(f"Attention Lab: {address}", flush=True)
        page.block_thread()
    finally:
        runs.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train small seq2seq models in the browser and look into them.")
    parser.add_argument("--host", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, help="port (default: the first free one from 7860)")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=os.environ.get("ATTENTION_LAB_CHECKPOINTS", DEFAULT_ROOT),
        help="where runs are kept (default: checkpoints/, or $ATTENTION_LAB_CHECKPOINTS)",
    )
    parser.add_argument("--max-runs", type=int, default=2, help="runs that train at once; others wait (default: 2)")
    return parser


if __name__ == "__main__":
    main()
