"""Attention Lab in a browser: ``python app.py``."""

import argparse
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

# Read by Gradio when it is imported: no calls home, and no ever-growing record of events.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100000")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "200")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import gradio as gr
import torch

from core.runs import DEFAULT_ROOT, sweep
from core.server import Runs
from core.server.access import VisitorRuns
from core.server.cleanup import Cleanup
from core.server.limits import PREFIX, Limits, limits_from
from core.storage.errors import LabError
from ui.components import PAGE_CSS
from ui.downloads import download_route
from ui.log_lines import log_to_stderr
from ui.operations import around
from ui.page import build_page
from ui.sessions import keep_sessions_light
from ui.visitors import Presence, current_visitor

FONTS = ["system-ui", "sans-serif"]  # of the system: nothing to fetch
MONO_FONTS = ["ui-monospace", "monospace"]
# One shade darker than usual where text is to be read against it: at least 4.5 : 1.
THEME = gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=MONO_FONTS).set(
    body_text_color_subdued="*neutral_500",
    body_text_color_subdued_dark="*neutral_400",
    button_primary_background_fill="*primary_600",
    button_primary_background_fill_hover="*primary_700",
)
SECONDS_OF_A_TURN = 0.001  # of a thread for which others wait, a fifth of the usual: an answer waits several times
LAUNCH = {
    "css_paths": PAGE_CSS,
    "theme": THEME,
    "footer_links": ["api", "settings"],
    "run_history": False,
    "enable_monitoring": False,
    "ssr_mode": False,
    "prevent_thread_lock": True,
    "quiet": True,
}
_log = logging.getLogger("app")


def main() -> None:
    """Read the flags, serve the page until SIGTERM or Ctrl+C, and save what still trains."""
    parser = _parser()
    options = parser.parse_args()
    log_to_stderr(as_json=options.log_json or options.public)
    sys.setswitchinterval(SECONDS_OF_A_TURN)
    torch.set_num_threads(1)  # for handlers: two runs with a thread each already fill two cores
    try:
        limits = limits_from(vars(options), os.environ, public=options.public)
    except LabError as error:
        parser.error(str(error))
    sweep(options.checkpoints)
    runs, presence = Runs(options.checkpoints, limits=limits), Presence() if options.public else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl+C
    page = None
    try:
        page, address = serve(runs, presence, server_name=options.host, server_port=options.port)
        print(f"Attention Lab: {address}", flush=True)
        gc.freeze()  # what was imported and built stays; not looked through, garbage is found sooner and quicker
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        for each in (signal.SIGINT, signal.SIGTERM):  # once is enough: what trains is being saved
            signal.signal(each, signal.SIG_IGN)
    finally:
        _log.info("closing", extra=runs.counts())
        runs.close()
        if page is not None:
            page.close(verbose=False)


def serve(runs: Runs, presence: Presence | None = None, **launch: Any) -> tuple[gr.Blocks, str]:
    """Serve the page over some runs, in threads of its own; return it and its address.

    Args:
        presence: notes who is here, where visitors are told apart; None shows everybody everything.
        launch: what else Gradio is told, such as the port.
    """
    for_visitors = VisitorRuns(runs, current_visitor if presence is not None else None)
    page = build_page(for_visitors)
    # To tell all who wait, at every answer, how many are before them is half of the work when fifty ask.
    page.queue(default_concurrency_limit=8, max_size=64, status_update_rate=5.0)
    most = f"{runs.limits.max_upload_mb}mb"
    made = {"max_file_size": most, "app_kwargs": around(runs, presence, [download_route(for_visitors)])}
    _, address, _ = page.launch(**LAUNCH, **made, **launch)
    keep_sessions_light(page)
    if presence is not None:
        Cleanup(runs, presence.seconds_away).start()
    return page, address


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train small seq2seq models in the browser and look into them.")
    parser.add_argument("--host", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, help="port (default: the first free one from 7860)")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=os.environ.get(f"{PREFIX}CHECKPOINTS", DEFAULT_ROOT),
        help="where runs are kept (default: checkpoints/, or $ATTENTION_LAB_CHECKPOINTS)",
    )
    parser.add_argument(
        "--public",
        action="store_true",
        default=os.environ.get(f"{PREFIX}PUBLIC", os.environ.get("SPACE_ID", "")) not in ("", "0"),
        help="for strangers: each visitor sees their own runs, and the strict limits hold (or $ATTENTION_LAB_PUBLIC=1; "
        "usual on a Space, unless that is 0)",
    )
    parser.add_argument("--log-json", action="store_true", help="log a JSON object a line, as with --public")
    limits = parser.add_argument_group("limits", "whole numbers, or none for no limit; README has what is usual")
    for name, field in Limits.model_fields.items():
        limits.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=field.description.replace("%", "%%"))
    return parser


if __name__ == "__main__":
    main()
