"""Attention Lab in a browser: ``python app.py``."""

import argparse
import gc
import logging
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

# Gradio reads these when it is imported: no requests to its servers, and a bounded record of events.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "100000")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "200")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Gradio asks matplotlib for its backend at every event; without one, that imports pyplot, half a second.
os.environ.setdefault("MPLBACKEND", "agg")

import torch

from core import plugins
from core.runs import DEFAULT_ROOT, delete_leftovers
from core.runs.shipped import add_shipped_runs
from core.server import Runs
from core.server.limits import PREFIX, Limits, limits_from
from core.storage.error_messages import bounded
from core.storage.errors import InputError, LabError
from core.storage.folder_check import check_folder
from core.training.devices import DEVICES, device_named
from ui.serving.client_address import TRUSTED_PROXIES, trusted_proxies
from ui.serving.connections import raise_file_limit
from ui.serving.host_check import host_rules
from ui.serving.logs import log_to_stderr
from ui.serving.space import is_zero_gpu, prepare_space

SWITCH_INTERVAL = 0.001  # seconds, a fifth of Python's default: an answer waits for busy threads several times
_log = logging.getLogger("app")


def main() -> None:
    """Serve the page until SIGTERM or Ctrl+C, then save the runs that are training."""
    parser = _parser()
    options = parser.parse_args()
    log_to_stderr(as_json=options.log_json or options.public)
    raise_file_limit()
    sys.setswitchinterval(SWITCH_INTERVAL)
    torch.set_num_threads(1)  # of this process's handlers: two training runs already fill two cores
    try:
        limits = limits_from(vars(options), os.environ, public=options.public)
        prepare_space(os.environ)
        device = "cpu" if is_zero_gpu(os.environ) else device_named(options.device)
        load_plugins(options.plugin, public=options.public)
        hosts = host_rules(options.allowed_host, bound=options.host, public=options.public, environment=os.environ)
        if options.trusted_proxy or TRUSTED_PROXIES not in os.environ:
            os.environ[TRUSTED_PROXIES] = trusted_proxies(options.trusted_proxy, os.environ)
        root = folder_of_runs(options.checkpoints)
    except LabError as error:
        parser.error(bounded(str(error)))
    from ui.serving.launch import serve  # Gradio takes seconds to import: the options are checked before
    from ui.serving.visitors import Presence

    delete_leftovers(root)
    add_shipped_runs(root)
    runs = Runs(
        root,
        limits=limits,
        device=device,
        in_processes=True,
        prepare_process=partial(load_plugins, options.plugin, public=options.public),
    )
    presence = Presence() if options.public else None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # handled like Ctrl+C
    page = None
    try:
        network = {"server_name": options.host, "server_port": options.port}
        page, address = serve(runs, presence, hosts=hosts, mcp=options.mcp, **network)
        print(f"Attention Lab: {address}", flush=True)
        if options.mcp:
            print(f"MCP: {address.rstrip('/')}/gradio_api/mcp/", flush=True)
        runs.warm_up()
        gc.freeze()  # modules and page stay alive: the garbage collector need not scan them
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        for each in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt the saving
            signal.signal(each, signal.SIG_IGN)
    finally:
        _log.info("closing", extra=runs.counts())
        runs.close()
        if page is not None:
            page.close(verbose=False)


def load_plugins(files: list[str], *, public: bool) -> None:
    """Load the files of ``--plugin``.

    Raises:
        InputError: the page is public. Strangers' presets and inputs would reach code that is not covered by any limit.
        PluginError: a file cannot be loaded.
    """
    if files and public:
        raise InputError(
            f"--plugin={files[0]} cannot be combined with --public: strangers' presets and inputs would reach the "
            "plugin's code, for which no limits hold"
        )
    for file in files:
        plugins.load(file)


def folder_of_runs(named: Path | None) -> Path:
    """Return the folder to keep runs in, and log a warning if it cannot keep them for long.

    Args:
        named: the user's choice, used even if runs can only be viewed there. None is ``checkpoints/`` of the project,
            or a new temporary folder if nothing can be written there, as on a read-only disk.

    Raises:
        InputError: a crash would damage runs in the folder, see ``check_folder``.
    """
    root = named or DEFAULT_ROOT
    lost = check_folder(root)
    if lost and named is None:
        with suppress(OSError):  # no temporary folder can be written either
            root = Path(tempfile.mkdtemp(prefix="attention-lab-"))
            lost = check_folder(root) or (
                f"checkpoints={str(DEFAULT_ROOT)!r} cannot be written to: runs are kept in {root}, a temporary folder, "
                "and lost with it; --checkpoints names another one"
            )
    if lost:
        _log.warning(lost)
    return root


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Train small seq2seq models in the browser and inspect their attention."
    )
    parser.add_argument("--host", help="address to listen on (default: this machine only)")
    parser.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        default=[each.strip() for each in os.environ.get(f"{PREFIX}ALLOWED_HOSTS", "").split(",") if each.strip()],
        help="host name that browsers use for this machine, besides its addresses and localhost, or the whole address "
        "of a proxy that does not pass on the Host header, such as https://lab.example.org; can be given several times "
        "(or $ATTENTION_LAB_ALLOWED_HOSTS, separated by commas; default: none, or any with --public)",
    )
    parser.add_argument(
        "--trusted-proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="address or network of a proxy whose X-Forwarded-For names the visitor's address; can be given several "
        "times (default: this machine, and on a Space private networks)",
    )
    parser.add_argument("--port", type=int, help="port (default: the first free one from 7860)")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        default=os.environ.get(f"{PREFIX}CHECKPOINTS"),
        help="folder of the runs (default: $ATTENTION_LAB_CHECKPOINTS, else checkpoints/, else a temporary folder)",
    )
    parser.add_argument(
        "--public",
        action="store_true",
        default=os.environ.get(f"{PREFIX}PUBLIC", os.environ.get("SPACE_ID", "")) not in ("", "0"),
        help="for a public address: visitors see only their own runs, and strict limits apply (default on a Space; or "
        "set $ATTENTION_LAB_PUBLIC to 1 or 0)",
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="device to train on (default: auto, the fastest available)"
    )
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE",
        help="run a Python file that registers tasks, blocks, metrics or presets; not with --public; repeatable",
    )
    parser.add_argument(
        "--mcp",
        action="store_true",
        help="offer the API as tools to language models, at /gradio_api/mcp/",
    )
    parser.add_argument("--log-json", action="store_true", help="log one JSON object per line (implied by --public)")
    limits = parser.add_argument_group("limits", "whole numbers, or none for no limit; for the defaults see the docs")
    for name, field in Limits.model_fields.items():
        help_text = (field.description or "").replace("%", "%%")
        limits.add_argument(f"--{name.replace('_', '-')}", metavar="N", help=help_text)
    return parser


if __name__ == "__main__":
    main()
