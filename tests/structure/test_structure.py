"""Rules of the source code: import order, module counts, models made of tensor operations, no unpickling."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from yaml.constructor import FullConstructor, SafeConstructor

from core.config.tasks import DigitsConfig
from core.storage import bounded_yaml
from core.tasks import TASKS

REPOSITORY = Path(__file__).resolve().parents[2]
# Top to bottom. A package imports only from lines below its own.
LAYERS = (
    ("__main__",),
    ("cli", "lab"),
    ("server", "reports"),
    ("runs",),
    ("teaching", "plugins", "graphs"),
    ("interpret", "training"),
    ("evaluation",),
    ("generation",),
    ("models",),
    ("tasks",),
    ("text", "config"),
    ("storage",),
)
HEIGHT = {package: len(LAYERS) - row for row, packages in enumerate(LAYERS) for package in packages}
MAX_CHAIN = 12
PAPER_FILES = [f"core/models/{name}.py" for name in ("attention", "layers", "transformer", "embeddings", "positions")]
MAX_PAPER_LINES, MAX_ARGUMENTS = 760, 5
NN_TRANSFORMER = {
    "Transformer",
    "TransformerEncoder",
    "TransformerDecoder",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "MultiheadAttention",
    "multi_head_attention_forward",
}
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "torch.load",
    "os.system",
    "yaml.full_load",
    "yaml.load_all",
}

LOADS_TENSORS = {REPOSITORY / "core/runs/model_files.py"}  # of the local user's own models, with weights_only


def sources(*folders: str) -> list[Path]:
    """All Python files in these folders of the repository, recursively."""
    paths = sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))
    assert paths
    return paths


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> list[str]:
    """Dotted names of everything a file imports, at any depth of its code."""
    names = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def package_of(path: Path) -> str:
    """The package of core/ that contains a file, or the file's own name if it is directly in core/."""
    return path.relative_to(REPOSITORY / "core").with_suffix("").parts[0]


def package_imports() -> dict[str, set[str]]:
    """The packages of core/ that each package imports."""
    imported: dict[str, set[str]] = {}
    for path in sources("core"):
        packages = imported.setdefault(package_of(path), set())
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "core" and parts[1] in HEIGHT and parts[1] != package_of(path):
                packages.add(parts[1])
    return imported


def test_core_imports_neither_the_page_nor_gradio():
    forbidden = {"gradio", "gradio_client", "ui", "app", "tests", "benchmarks"}
    assert [(path, name) for path in sources("core") for name in imports(path) if name.split(".")[0] in forbidden] == []


def test_every_test_file_runs_by_day_or_is_one_of_the_faults():
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    named = [REPOSITORY / name for name in [*options["testpaths"], "tests/faults"]]
    files = (REPOSITORY / "tests").rglob("test_*.py")
    assert [file for file in files if not any(each == file or each in file.parents for each in named)] == []


def test_every_room_of_core_has_a_layer():
    entries = {path.name.removesuffix(".py") for path in (REPOSITORY / "core").iterdir() if path.name != "__pycache__"}
    assert entries - {"__init__"} == set(HEIGHT)


def test_packages_import_only_from_lower_layers():
    upward = [
        (a, b) for a, packages in package_imports().items() if a in HEIGHT for b in packages if HEIGHT[b] >= HEIGHT[a]
    ]
    assert upward == []


def test_the_longest_import_chain_is_bounded():
    below = package_imports()

    def length(package: str) -> int:
        return 1 + max((length(each) for each in below[package]), default=0)

    assert max(length(package) for package in below if package != "__main__") <= MAX_CHAIN


def test_modules_of_a_package_have_no_circular_imports():
    folders = {path.parent for path in sources("core")} - {REPOSITORY / "core"}
    for folder in folders:
        prefix = ".".join(folder.relative_to(REPOSITORY).parts) + "."
        siblings = {path.stem for path in folder.glob("*.py")}
        below = {
            path.stem: {name.removeprefix(prefix).split(".")[0] for name in imports(path) if name.startswith(prefix)}
            & siblings
            for path in folder.glob("*.py")
            if path.stem != "__init__"
        }
        while below:
            free = {name for name, needed in below.items() if not needed & below.keys()}
            assert free, f"circular imports among {sorted(below)} in {folder}"
            below = {name: needed for name, needed in below.items() if name not in free}


def test_models_do_not_use_nn_transformer_modules():
    for path in sources("core/models"):
        for node in ast.walk(parsed(path)):
            assert not (isinstance(node, ast.Attribute) and node.attr in NN_TRANSFORMER), f"{path}: {ast.unparse(node)}"
        assert not [
            name for name in imports(path) if name.startswith("torch") and name.split(".")[-1] in NN_TRANSFORMER
        ]


def test_nothing_is_unpickled_or_evaluated():
    for path in [*sources("core", "ui"), REPOSITORY / "app.py"]:
        assert not {name.split(".")[0] for name in imports(path)} & UNPICKLERS, path
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called == "torch.load" and path in LOADS_TENSORS:
                settings = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert settings.get("weights_only") == "True", path
                continue
            assert called not in FORBIDDEN_CALLS, f"{path}: {called}"
            assert not called.startswith("yaml.unsafe"), f"{path}: {called}"
            if called == "yaml.load":
                loader = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("Loader")
                assert (path.name, loader) == ("bounded_yaml.py", "_Loader")


def test_gradio_serves_no_folder_besides_its_own():
    assert not [path for path in [*sources("ui"), REPOSITORY / "app.py"] if "allowed_paths" in path.read_text()]


def test_text_files_are_read_and_written_in_a_named_encoding():
    unnamed = []
    for path in [*sources("core", "ui"), REPOSITORY / "app.py"]:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                modes = [each.value for each in node.args if isinstance(each, ast.Constant)]
                is_text = called in ("read_text", "write_text") or (
                    called == "open" and modes[:1] in (["a"], ["w"], ["r"])
                )
                if is_text and "encoding" not in {keyword.arg for keyword in node.keywords}:
                    unnamed.append(f"{path}: {ast.unparse(node)}")
    assert unnamed == []  # Windows would choose one that lacks √ and →


def test_a_value_that_a_message_cuts_ends_with_an_ellipsis():
    """``short_repr`` shows that a value goes on; ``{value[:60]!r}`` and ``{value!r:.60}`` would show another value."""
    cut = []
    for path in sources("core", "ui"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FormattedValue) and node.conversion == ord("r"):
                is_part = isinstance(node.value, ast.Subscript) and isinstance(node.value.slice, ast.Slice)
                if is_part or (node.format_spec is not None and "." in ast.unparse(node.format_spec)):
                    cut.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert cut == []


def test_shares_are_written_by_percent():
    """``{share:.1%}`` rounds 0.9996 to all and 0.0004 to none."""
    rounded = []
    for path in sources("core", "ui"):
        for node in ast.walk(parsed(path)):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if re.search(r"^[^\s{}]*\.[0-9]%$|:[^\s{}]*\.[0-9]%\}", text):
                rounded.append(f"{path}:{node.lineno}: {text}")
    assert rounded == []


def test_the_only_yaml_loader_is_a_safe_loader():
    assert issubclass(bounded_yaml._Loader, SafeConstructor)
    assert not issubclass(bounded_yaml._Loader, FullConstructor)  # the base of those that build any object


def test_everything_public_has_a_docstring():
    missing = []
    for path in sources("core"):
        tree = parsed(path)
        public = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        ]
        missing += [f"{path}: {getattr(node, 'name', '')}" for node in (tree, *public) if not ast.get_docstring(node)]
    assert missing == []


def test_paper_files_are_short_and_their_functions_take_few_arguments():
    paths = [REPOSITORY / name for name in PAPER_FILES]
    assert sum(len(path.read_text().splitlines()) for path in paths) <= MAX_PAPER_LINES
    long = []
    for path in paths:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(each.arg not in ("self", "cls") for each in arguments)
                long += [f"{path.name}: {node.name}"] if count > MAX_ARGUMENTS else []
    assert long == []


def test_decoding_with_a_saved_run_imports_no_server_and_no_training():
    unused = ("core.server", "core.training", "core.teaching", "core.reports")
    assert not {name for name in decode_modules() if name.startswith(unused)}


def test_no_family_of_tasks_is_imported_but_that_of_the_run():
    families = {path.partition(":")[0] for path in TASKS.values()}
    assert families & decode_modules() == {TASKS[DigitsConfig].partition(":")[0]}


@cache
def decode_modules() -> frozenset[str]:
    """The modules of core that ``decode --run`` imports, packages included, found in a new process."""
    program = "import json, sys; from core.__main__ import main; code = main(sys.argv[1:]); " + (
        "print(json.dumps([code, *(name for name in sys.modules if name.split('.')[0] == 'core')]))"
    )
    command = [sys.executable, "-c", program, "decode", "--run", "digits-reversal-shipped", "4 8 2 9"]
    output = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True).stdout
    code, *modules = json.loads(output.splitlines()[-1])
    assert code == 0
    return frozenset(modules)
