"""The shape of the source: imports run one way, models are tensor operations, and nothing is unpickled."""

import ast
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# From the top down. A room imports from lower lines only.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("server", "reports"),
    ("runs",),
    ("teaching",),
    ("interpret", "training"),
    ("evaluation",),
    ("generation",),
    ("models",),
    ("tasks",),
    ("text", "config"),
    ("storage",),
)
HEIGHT = {room: len(LAYERS) - row for row, rooms in enumerate(LAYERS) for room in rooms}
MOST_ENTRIES, LONGEST_CHAIN = 16, 12
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


def sources(*folders: str) -> list[Path]:
    """All Python files in these folders of the repository, at any depth."""
    found = sorted(path for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))
    assert found
    return found


def imports(path: Path) -> Iterator[str]:
    """Dotted names of everything a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(path: Path) -> str:
    """The room of core/ that a file is in: a folder, or a file directly in core/."""
    return path.relative_to(REPOSITORY / "core").with_suffix("").parts[0]


def room_imports() -> dict[str, set[str]]:
    """The rooms of core/ that each room imports."""
    found: dict[str, set[str]] = {}
    for path in sources("core"):
        rooms = found.setdefault(room_of(path), set())
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "core" and parts[1] in HEIGHT and parts[1] != room_of(path):
                rooms.add(parts[1])
    return found


def test_core_knows_neither_the_page_nor_its_library():
    forbidden = {"gradio", "gradio_client", "ui", "app", "tests", "benchmarks"}
    assert [(path, name) for path in sources("core") for name in imports(path) if name.split(".")[0] in forbidden] == []


def test_core_has_few_rooms_and_every_room_has_its_layer():
    entries = {path.name for path in (REPOSITORY / "core").iterdir() if path.name != "__pycache__"}
    assert len(entries) <= MOST_ENTRIES
    assert {entry.removesuffix(".py") for entry in entries} - {"__init__"} == set(HEIGHT)


def test_imports_run_from_higher_to_lower_layers_only():
    upward = [(a, b) for a, rooms in room_imports().items() if a in HEIGHT for b in rooms if HEIGHT[b] >= HEIGHT[a]]
    assert upward == []


def test_the_longest_chain_of_rooms():
    below = room_imports()

    def length(room: str) -> int:
        return 1 + max((length(each) for each in below[room]), default=0)

    assert max(length(room) for room in below if room != "__main__") <= LONGEST_CHAIN


def test_modules_of_a_room_do_not_import_in_circles():
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
            assert free, f"a circle among {sorted(below)} in {folder}"
            below = {name: needed for name, needed in below.items() if name not in free}


def test_models_are_written_from_tensor_operations():
    for path in sources("core/models"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Attribute) and node.attr in NN_TRANSFORMER), f"{path}: {ast.unparse(node)}"
        assert not [
            name for name in imports(path) if name.startswith("torch") and name.split(".")[-1] in NN_TRANSFORMER
        ]


def test_nothing_is_unpickled_or_evaluated():
    for path in sources("core", "ui"):
        assert not {name.split(".")[0] for name in imports(path)} & UNPICKLERS, path
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            assert called not in FORBIDDEN_CALLS, f"{path}: {called}"
            assert not called.startswith("yaml.unsafe"), f"{path}: {called}"
            if called == "yaml.load":
                loader = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("Loader")
                assert (path.name, loader) == ("bounded_yaml.py", "_Loader")


def test_the_one_yaml_loader_is_a_safe_one():
    tree = ast.parse((REPOSITORY / "core/storage/bounded_yaml.py").read_text())
    bases = {
        node.name: [ast.unparse(base) for base in node.bases] for node in tree.body if isinstance(node, ast.ClassDef)
    }
    assert bases["_Loader"] == ["yaml.SafeLoader"]


def test_everything_public_has_a_docstring():
    missing = []
    for path in sources("core"):
        tree = ast.parse(path.read_text())
        public = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        ]
        missing += [f"{path}: {getattr(node, 'name', '')}" for node in (tree, *public) if not ast.get_docstring(node)]
    assert missing == []
