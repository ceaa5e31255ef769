"""Builds and serves the page with its middleware, downloads and cleanup."""

import os
from typing import Any

import gradio as gr
import httpx

from core.server import Runs
from core.server.access import VisitorRuns
from core.server.cleanup import Cleanup
from ui.page import build_page
from ui.serving.assets import asset_route
from ui.serving.call_limits import MAX_WAITING, FairQueue
from ui.serving.connections import limit_connections, max_connections
from ui.serving.downloads import download_route
from ui.serving.gradio_files import file_route
from ui.serving.host_check import HostRules, host_rules, is_own_computer
from ui.serving.mcp_tools import closed_routes, use_visitors_requests
from ui.serving.middleware import server_options
from ui.serving.sessions import use_light_sessions
from ui.serving.visitors import Presence, current_visitor
from ui.theme import LAUNCH


def serve(
    runs: Runs,
    presence: Presence | None = None,
    *,
    hosts: HostRules | None = None,
    mcp: bool = False,
    **launch: Any,
) -> tuple[gr.Blocks, str]:
    """Serve the page in background threads.

    Args:
        runs: the runs on the page.
        presence: records which visitors are connected; None gives all visitors access to all runs.
        hosts: the names that the server answers under; None for the default of its mode.
        mcp: whether to offer the endpoints as tools too, see ``ui.serving.mcp_tools``.
        launch: further options of ``gr.Blocks.launch``, such as ``server_port``.

    Returns:
        The page and its address.
    """
    visitor_runs = VisitorRuns(runs, current_visitor if presence is not None else None)
    rules = hosts or host_rules(public=presence is not None, environment=os.environ)
    is_private = presence is None and rules.is_local and is_own_computer(launch.get("server_name"))
    page = build_page(visitor_runs, reads_paths=is_private)
    # A slow status rate: reporting the queue position to 50 waiting clients at every event takes half the CPU.
    page.queue(default_concurrency_limit=8, max_size=MAX_WAITING, status_update_rate=5.0)
    page._queue = FairQueue(page._queue, presence)
    routes = [download_route(visitor_runs), asset_route(), file_route(), *(closed_routes() if mcp else [])]
    options = {"app_kwargs": server_options(runs, presence, rules, routes), "mcp_server": mcp} | launch
    # Gradio asks for the page itself and gives up after three seconds, which a busy machine may need to make it.
    options["_frontend"] = False
    _, address, _ = page.launch(**LAUNCH, max_file_size=f"{runs.limits.max_upload_mb}mb", **options)
    httpx.get(page.local_url, timeout=600, trust_env=False)  # make it before the first visitor asks
    use_light_sessions(page)
    if mcp:
        use_visitors_requests(page)
    limit_connections(page.server, most=max_connections())
    if presence is not None:
        Cleanup(runs, presence.seconds_away).start()
    return page, address
