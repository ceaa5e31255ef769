"""The shape of the source: imports run one way, files stay short, and some words never appear."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# From the top down. A module imports from lower lines only; a package counts as one module.
LAYERS = (
    ("__main__",),
    ("benchmarks",),  # loaded by name, as commands are
    ("commands",),
    ("comparison",),
    ("report",),
    ("runs",),
    ("exchange", "lessons"),
    ("doctor",),
    ("run_folder", "estimate", "inspection", "description", "flow"),
    ("checkpoint", "figures"),
    ("training", "metrics"),
    ("bugs",),
    ("objective", "probes"),
    ("analysis",),
    ("evaluation",),
    ("decoding", "optim", "schedules", "divergence", "pair_files"),
    ("models", "parallel"),
    ("tasks",),
    ("vocab", "config", "devices", "muon"),
    ("optional",),
    ("faults", "typed_text", "files"),
    ("errors",),
)
HEIGHT = {name: len(LAYERS) - row for row, names in enumerate(LAYERS) for name in names}
MAX_LINES = 320


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def identified(paths: list[Path]):
    return pytest.mark.parametrize("path", paths, ids=[str(path.relative_to(REPOSITORY)) for path in paths])


def imports(path: Path) -> Iterator[str]:
    """Dotted names of everything a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(path: Path) -> str:
    return path.relative_to(REPOSITORY / "core").with_suffix("").parts[0]


CORE = sources("core")


@identified(CORE)
def test_core_knows_neither_the_page_nor_its_library(path):
    assert not {name.split(".")[0] for name in imports(path)} & {"gradio", "gradio_client", "ui", "app", "tests"}


@identified([path for path in CORE if path.parent.name != "core" or path.name != "__init__.py"])
def test_imports_run_from_higher_to_lower_layers_only(path):
    own = layer_of(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "core" and len(parts) > 1 and parts[1] != own:
            assert HEIGHT[parts[1]] < HEIGHT[own], f"{own} imports {name}"


PACKAGES = sorted({path.parent.name for path in CORE} - {"core"})


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_inside_a_package_do_not_import_in_circles(package):
    folder = REPOSITORY / "core" / package
    prefix = f"core.{package}."
    below = {
        path.stem: {
            name.removeprefix(prefix).split(".")[0]
            for name in imports(path)
            if name.startswith(prefix) and (folder / f"{name.removeprefix(prefix).split('.')[0]}.py").exists()
        }
        for path in folder.glob("*.py")
        if path.stem != "__init__"
    }
    while below:
        free = {name for name, needed in below.items() if not needed & below.keys()}
        assert free, f"a circle among {sorted(below)}"
        below = {name: needed for name, needed in below.items() if name not in free}


def test_every_module_of_core_has_its_layer():
    assert {layer_of(path) for path in CORE} - {"__init__"} == set(HEIGHT)


@identified(sources("core/models"))
def test_models_are_written_from_tensor_operations(path):
    tree = ast.parse(path.read_text())
    forbidden = {"Transformer", "TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer"}
    forbidden |= {"TransformerDecoderLayer", "MultiheadAttention", "multi_head_attention_forward"}
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.Attribute) and node.attr in forbidden), ast.unparse(node)
    assert not [name for name in imports(path) if name.startswith("torch") and name.split(".")[-1] in forbidden]
    assert "nn.Transformer" not in path.read_text()
    assert "nn.MultiheadAttention" not in path.read_text()


@identified(sources("core", "ui"))
def test_nothing_is_unpickled_or_evaluated(path):
    tree = ast.parse(path.read_text())
    for module in imports(path):
        assert module.split(".")[0] not in {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        assert called not in {"eval", "exec", "compile", "__import__", "torch.load", "os.system"}, called
        assert not called.startswith("yaml.unsafe"), called
        assert called not in {"yaml.full_load", "yaml.load_all"}, called
        if called == "yaml.load":
            loader = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("Loader")
            assert path.name == "bounded_yaml.py"
            assert loader == "_Loader"


def test_the_one_yaml_loader_is_a_safe_one():
    tree = ast.parse((REPOSITORY / "core/files/bounded_yaml.py").read_text())
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    assert bases["_Loader"] == ["yaml.SafeLoader"]


@identified(sources("core", "ui", "tests"))
def test_no_file_is_too_long_to_be_read(path):
    assert len(path.read_text().splitlines()) <= MAX_LINES


@identified(CORE)
def test_every_module_and_everything_public_says_what_it_is_for(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name
