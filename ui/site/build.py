"""Write the static site to a folder."""

import gzip
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from core.config import load_preset
from core.runs import DEFAULT_ROOT, RunFolder
from core.storage.errors import InputError
from ui.forms.preset_list import described_preset, family_label, family_of
from ui.serving.assets import assets
from ui.site.course import lesson_files, lesson_list
from ui.site.graph_files import cache_folder
from ui.site.labs import Lab, preset_lab, run_lab
from ui.site.runtime import runtime_files

HERE = Path(__file__).parent
COMPONENTS = HERE.parent / "components"
PRESETS = (
    "tiny",
    "digits-reversal-fast",
    "copy-digits",
    "deduplicate-digits",
    "sort-digits",
    "digits-reversal-decoder-only",
    "numbers-reversal",
    "words-reversal-transformer",
    "addition",
    "plurals",
)
RUNS = ("digits-reversal-shipped", "translate-en-de-shipped")
MARK = "site.json"  # a folder with it is a site, which may be replaced
Report = Callable[[str], None]


def build_site(
    out: Path,
    *,
    presets: Sequence[str] = PRESETS,
    runs: Sequence[str] = RUNS,
    root: Path | None = None,
    cache: Path | None = None,
    report: Report = print,
) -> int:
    """Write the site and return the number of its bytes.

    Args:
        out: a new folder, or that of an earlier site, which is replaced.
        presets: names of those that can be trained there.
        runs: names of runs that can be decoded with; the page opens with the first.
        root: the folder of these runs; None for the project's.
        cache: a folder that keeps graphs and ONNX Runtime for the next call; None for the user's.
        report: called with each step in words.

    Raises:
        InputError: the folder holds something else, or the site cannot train a preset.
        LabError: a package is missing, or ONNX Runtime cannot be fetched.
    """
    if out.exists() and not (out / MARK).is_file() and any(out.iterdir()):
        raise InputError(f"--out={str(out)[:200]} is not empty and not a site; choose a new folder")
    cache = cache or cache_folder()
    chosen = [load_preset(name) for name in presets]
    labs: dict[str, Lab] = {}
    for name in runs:
        report(f"run {name}")
        labs[name] = run_lab(RunFolder(root or DEFAULT_ROOT, name), cache)
    for preset in chosen:
        report(f"preset {preset.name}: data and graphs")
        labs[preset.name] = preset_lab(preset, cache)
    return _write(out, page_files(cache) | data_files(labs, presets=presets, runs=runs, cache=cache))


def data_files(labs: dict[str, Lab], *, presets: Sequence[str], runs: Sequence[str], cache: Path) -> dict[str, bytes]:
    """Return what the worker reads, by path, uncompressed: labs, graphs, and ONNX Runtime in WebAssembly."""
    files = {"ort/ort.wasm": runtime_files(cache)["ort.wasm"]}
    for name, lab in labs.items():
        facts = dict(lab.facts, files={})
        for file, content in lab.files.items():
            path = _path_of(name, file, content)
            files[path] = content
            facts["files"][file] = path
        files[f"labs/{name}/lab.json"] = _json(facts)
        if lab.record:
            files[f"labs/{name}/record.json"] = _json(lab.record)
    lessons = lesson_files(runs)
    index = _index(labs, presets, runs) | {"lessons": lesson_list(lessons)}
    return files | lessons | {"labs/index.json": _json(index)}


def _path_of(lab: str, name: str, content: bytes) -> str:
    """Return where a file is on the site; labs with one architecture share their graphs."""
    if not name.endswith(".onnx"):
        return f"labs/{lab}/{name}"
    return f"graphs/{name.removesuffix('.onnx')}-{hashlib.sha256(content).hexdigest()[:12]}.onnx"


def page_files(cache: Path) -> dict[str, bytes]:
    """Return page, styles and scripts by path; those of the components are the ones of the program's page."""
    page = (HERE / "index.html").read_text(encoding="utf-8")
    named = re.compile(r"<!-- component (\w+) -->")
    filled = named.sub(lambda found: (COMPONENTS / found[1] / f"{found[1]}.html").read_text(encoding="utf-8"), page)
    scripts = {f"site/{path.name}": path.read_bytes() for path in sorted((HERE / "scripts").glob("*.js"))}
    shared = {path: asset.content for path, asset in assets().items()}
    return {
        "index.html": filled.encode(),
        "site/site.css": (HERE / "site.css").read_bytes(),
        "ort/ort.mjs": runtime_files(cache)["ort.mjs"],
        "ort/ort.LICENSE.txt": (HERE / "ort.LICENSE.txt").read_bytes(),
        **shared,
        **scripts,
    }


def _index(labs: dict[str, Lab], presets: Sequence[str], runs: Sequence[str]) -> dict[str, Any]:
    """Return the lists of the page: presets by task, and runs."""
    families: dict[str, list[dict[str, str]]] = {}
    for name in presets:
        preset = load_preset(name)
        families.setdefault(family_of(preset), []).append(
            {
                "name": name,
                "about": preset.description,
                "example": described_preset(preset),
                "size": f"{preset.training.steps:,} updates",
            }
        )
    return {
        "families": [
            {"name": name, "label": family_label(name), "presets": listed} for name, listed in families.items()
        ],
        "first": "digits-reversal-fast" if "digits-reversal-fast" in presets else next(iter(presets), ""),
        "runs": list(runs),
        "translator": next((name for name in runs if labs[name].facts["task"]["translates"]), None),
        "labs": list(labs),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _write(out: Path, files: dict[str, bytes]) -> int:
    """Write files to a folder beside ``out`` and put it in its place; data are compressed, as many hosts do not."""
    new = out.with_name(out.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    size = 0
    for path, content in files.items():
        is_data = path.startswith(("labs/", "graphs/", "lessons/")) or path.endswith(".wasm")
        target = new / (f"{path}.gz" if is_data else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        size += target.write_bytes(gzip.compress(content, mtime=0) if is_data else content)
    (new / MARK).write_text(json.dumps({"files": len(files)}), encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    new.replace(out)
    return size
