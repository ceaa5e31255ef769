"""The page's HTML: it names what the page opens with, and leaves out what only clients of the API read."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from ui.serving.assets import asset_address, asset_route, first_scripts, head
from ui.serving.gradio_files import component_files, file_route, files_in_page, opening_files
from ui.serving.page_opening import PageOpening, first_types, quick_page, remove_endpoints

ROOT = Path(__file__).parents[2]
FRONTEND = Path(gr.__file__).parent / "templates/frontend"


def repeat(text: str) -> str:
    return text


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    with gr.Blocks() as page:
        gr.api(repeat, api_name="repeat")
        gr.HTML("<p>above the tabs</p>")
        with gr.Tabs(selected="one"):
            with gr.Tab("One", id="one"):
                gr.Button("Press", elem_id="press")
                with gr.Column(visible=False):
                    gr.File()
            with gr.Tab("Two", id="two"):
                gr.Dropdown([])
    page.queue()
    config = json.loads(json.dumps(page.get_config_file(), default=str))
    layout = json.loads(json.dumps(config["layout"]))  # the parts of a page are copies when Gradio serves them
    pages = {"": {"components": [each["id"] for each in config["components"]], "layout": layout}}
    return config | {"head": head(), "theme_hash": "abc", "page": pages}


@pytest.fixture(scope="module")
def page(config: dict[str, Any]) -> str:
    template = (FRONTEND / "index.html").read_text(encoding="utf-8")
    start = template[: template.index("<script>")]
    script = f"<script>window.gradio_config = {json.dumps(config)};</script>"
    return quick_page(f'{start}{script}<link rel="stylesheet" href="{files_in_page()[-1]}"></head><body></body></html>')


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Starlette(routes=[asset_route(), file_route()])) as client:
        yield client


def test_the_first_components_are_those_above_the_tabs_and_on_the_open_tab(config: dict[str, Any]):
    types = first_types(config)
    assert {"html", "tabs", "tabitem", "button", "column"} <= types
    assert not types & {"dropdown", "file"}


def test_endpoints_are_not_built_by_the_browser(config: dict[str, Any]):
    changed = json.loads(json.dumps(config))
    assert "api" in {each["type"] for each in changed["components"]}
    remove_endpoints(changed)
    kept = {each["id"] for each in changed["components"]}
    assert "api" not in {each["type"] for each in changed["components"]}
    assert set(changed["page"][""]["components"]) == kept
    for layout in (changed["layout"], changed["page"][""]["layout"]):
        assert ids_in(layout) <= kept | {layout["id"]}
    assert changed["dependencies"] == config["dependencies"]


def ids_in(layout: dict[str, Any]) -> set[int]:
    return {layout["id"]}.union(*(ids_in(each) for each in layout.get("children", [])))


def test_gradio_names_the_files_that_this_version_opens_with():
    names = [Path(each).name.partition("-")[0] for each in opening_files()]
    assert {"index", "Index", "core", "Blocks"} <= set(names)
    assert all((FRONTEND / each).is_file() for each in opening_files())
    assert opening_files()[0] == files_in_page()[0]
    assert {Path(each).suffix for each in component_files({"button", "html", "tabs"})} == {".js", ".css"}
    assert component_files(set()) == []


def test_the_page_names_all_scripts_and_styles_that_it_opens_with(page: str, client: TestClient):
    preloaded = re.findall(r'<link rel="(?:modulepreload|preload" as="style)" href="([^"]+)">', page)
    scripts = [each for each in opening_files() if each.endswith(".js")]
    assert {*scripts, *map(asset_address, first_scripts())} <= set(preloaded)
    assert preloaded[0] == "./theme.css?v=abc"
    missing = [each for each in preloaded[1:] if client.get(each.removeprefix(".")).status_code != 200]
    assert missing == []


def test_style_sheets_are_joined_in_the_order_in_which_gradio_loads_them(page: str, client: TestClient):
    page = page.replace("\\u003c", "<").replace('\\"', '"')  # some are in the configuration, which is JSON
    sheets = re.findall(r'<link rel="stylesheet"[^>]* ?href="(\./assets/[^"]+)">', page)
    assert len(sheets) == 3  # the one in Gradio's HTML, those before the theme, and those of components
    joined = [client.get(each[1:]).text for each in sheets]
    replaced = re.findall(r'href="([^"]+)" disabled', page)
    assert len(replaced) == len(set(replaced)) > 5
    for each in replaced:
        content = (FRONTEND / each).read_text(encoding="utf-8")
        assert sum(content in text for text in joined) == 1
        assert "url(" not in content.replace("url(data:", "")  # relative to the sheet, so that it may move


def test_gradios_files_are_kept_and_compressed_and_one_of_them_is_mended(client: TestClient):
    mended = []
    for address in (*opening_files(), *component_files({"html"})):
        response = client.get(address[1:], headers={"accept-encoding": "gzip"})
        assert response.headers["content-encoding"] == "gzip"
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        if response.content != (FRONTEND / address).read_bytes():
            mended.append(address)
    assert [Path(each).stem.partition("-")[0] for each in mended] == ["statustracker"]


@pytest.mark.parametrize("name", ["", "nothing.js", "../index.html", "..%2findex.html", "%2e%2e/index.html", "a/b.js"])
def test_nothing_but_gradios_files_is_served(client: TestClient, name: str):
    assert client.get("/assets/" + name).status_code == 404


def test_only_the_page_is_changed():
    def made(request):
        return HTMLResponse('<base href="./" /><head></head>', status_code=int(request.query_params.get("status", 200)))

    routes = [Route(path, made) for path in ("/", "/config")]
    client = TestClient(Starlette(routes=routes, middleware=[Middleware(PageOpening)]))
    assert "modulepreload" in client.get("/").text
    for path in ("/config", "/?status=404"):
        assert client.get(path).text == '<base href="./" /><head></head>'


def test_what_the_first_visitor_waits_for_imports_neither_pyplot_nor_pytorchs_compiler():
    program = """if True:
        import sys
        import app  # sets the environment
        import matplotlib
        from core.config.listing import listed_presets
        from core.models import outline_model
        from core.tasks import build_task

        matplotlib.get_backend()  # as Gradio does around every event
        for preset in {(each.task.family, each.model.family): each for each in listed_presets()}.values():
            outline_model(preset.model, build_task(preset.task))
        print([name for name in ("torch._dynamo", "sympy", "matplotlib.pyplot") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"
