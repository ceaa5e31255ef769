"""The page's scripts and styles: how they are served, their size, and what no script does."""

import gzip
import re
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from ui.serving.assets import (
    STYLES,
    UI,
    asset_address,
    asset_route,
    assets,
    early_head,
    first_scripts,
    head,
    later_scripts,
    without_comments,
)

MAX_BYTES = 200_000  # uncompressed; other tabs load theirs when they are opened
SCRIPTS = [path for path in sorted(UI.rglob("*.js")) if "vendor" not in path.parts]
PARSES_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|srcdoc|document\.write|\beval\(|new Function|DOMParser|ContextualFragment"
)
TOUCHES_ADDRESS = re.compile(
    r"\b(window\.)?history\.\w+State|URLSearchParams\((window\.)?location|location\.(search|hash|href)\s*=[^=]"
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(Starlette(routes=[asset_route()])) as client:
        yield client


def other_version(path: str) -> str:
    """The address of a file as a page of another version asks for it."""
    return "/lab/000000000000/" + path


# ---- serving


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("web/page.js", "text/javascript"),
        ("components/bench/bench.js", "text/javascript"),
        ("web/vendor/uPlot.js", "text/javascript"),
        (STYLES, "text/css"),
        ("web/images/icon.svg", "image/svg+xml"),
    ],
)
def test_files_have_their_type_and_are_kept_by_the_browser(client: TestClient, path: str, kind: str):
    answer = client.get("/" + asset_address(path))
    assert answer.status_code == 200
    assert answer.headers["content-type"].partition(";")[0] == kind
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    outdated = client.get(other_version(path))
    assert outdated.content == answer.content  # a page that was opened before an update goes on working
    assert outdated.headers["cache-control"] == "no-cache"


def test_files_are_compressed_for_clients_that_accept_it(client: TestClient):
    for path, asset in assets().items():
        with client.stream("GET", "/" + asset_address(path), headers={"accept-encoding": "br, gzip"}) as packed:
            raw = b"".join(packed.iter_raw())
        plain = client.get("/" + asset_address(path), headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(raw) == plain.content == asset.content
        assert "content-encoding" not in plain.headers
        assert packed.headers["vary"] == plain.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "page.py",
        "../app.py",
        "web/../page.py",
        "web/../../app.py",
        "%2e%2e/app.py",
        "..%2f..%2fapp.py",
        "components/bench/__init__.py",
        "components/component.py",
        "components/bench/bench.html",
        "components/bench/bench.css",
        "serving/assets.py",
        "forms/download_preset.js",
        "web/vendor/uPlot.iife.min.js",
        "web",
        "/etc/passwd",
        "web/page.js/",
        "WEB/page.js",
    ],
)
def test_nothing_but_the_listed_files_is_served(client: TestClient, path: str):
    for address in ("/" + asset_address(path), other_version(path)):
        answer = client.get(address)
        assert answer.status_code == 404
        assert len(answer.content) < 100


def test_no_python_file_is_listed():
    assert {path.rpartition(".")[2] for path in assets()} <= {"js", "css", "svg", "png"}


def test_the_head_loads_only_files_that_are_served(client: TestClient):
    addresses = " ".join(re.findall(r'(?:href|src|content)="(lab/[^"]+)"', head() + early_head())).split()
    assert {asset_address(path) for path in later_scripts()} < set(addresses)
    assert len(addresses) == 4 + len(later_scripts())
    assert [each for each in addresses if client.get("/" + each).status_code != 200] == []


def test_every_module_that_a_script_imports_is_served():
    missing = []
    for path, asset in assets().items():
        if not path.endswith(".js") or "vendor" in path:
            continue
        for target in re.findall(r'from "(\.[^"]+)"', asset.content.decode()):
            resolved = (UI / path).parent.joinpath(target).resolve().relative_to(UI).as_posix()
            missing += [f"{path}: {target}"] if resolved not in assets() else []
    assert missing == []


def test_every_script_is_imported_or_is_a_components_own():
    text = "".join(asset.content.decode() for path, asset in assets().items() if path.endswith(".js"))
    own = {f"components/{each.name}/{each.name}.js" for each in (UI / "components").iterdir()}
    unused = [
        path
        for path in assets()
        if path.endswith(".js")
        and path not in own | {"web/page.js"}  # which is named in Python
        and not re.search(rf'"[^"]*/{re.escape(path.rpartition("/")[2])}"', text)
    ]
    assert unused == []


def test_the_scripts_and_styles_that_the_page_opens_with_are_small():
    sizes = {path: len(assets()[path].content) for path in [*first_scripts(), STYLES]}
    assert sum(sizes.values()) <= MAX_BYTES, sorted(sizes.items(), key=lambda each: -each[1])[:10]


# ---- what no script does


def test_scripts_show_values_as_text_only():
    found = {(path.name, parsed) for path in SCRIPTS for parsed in PARSES_TEXT.findall(path.read_text())}
    assert found <= {("report_view.js", "srcdoc")}  # a sandboxed frame for the report


def test_the_report_is_shown_in_a_sandbox():
    template = (UI / "components" / "report_view" / "report_view.html").read_text()
    script = (UI / "components" / "report_view" / "report_view.js").read_text()
    assert "sandbox" in template + script
    assert "allow-scripts" not in template + script


def test_no_template_literal_spans_lines():
    lines = [line for path in SCRIPTS for line in without_block_comments(path.read_text()).splitlines()]
    assert [line for line in lines if line.count("`") % 2] == []


def without_block_comments(script: str) -> str:
    without_blocks = re.sub(r"^\s*/\*\*.*?\*/$", "", script, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^\s*//.*$", "", without_blocks, flags=re.MULTILINE)


def test_every_marked_term_is_in_the_glossary():
    known = (UI / "web" / "glossary.js").read_text()
    marked = {term for path in UI.rglob("*.html") for term in re.findall(r'data-term="([^"]+)"', path.read_text())}
    assert len(marked) > 5
    assert [term for term in marked if not re.search(rf'^  "?{re.escape(term)}"?: "', known, re.MULTILINE)] == []


def test_only_one_script_changes_or_parses_the_address():
    found = [path.relative_to(UI).as_posix() for path in SCRIPTS if TOUCHES_ADDRESS.search(path.read_text())]
    assert found == ["web/address.js"]


def test_comments_are_removed_and_nothing_else():
    script = '  // why\nconst a = "//";\n\n/** What\n * it is. */\n  f(a); // kept\n'
    assert without_comments(script) == 'const a = "//";\nf(a); // kept\n'


def test_all_folds_are_marked_at_their_beginning():
    sheets = {path.name: path.read_text() for path in UI.rglob("*.css")}
    assert [name for name, sheet in sheets.items() if "summary::after" in sheet or "◀" in sheet] == []
