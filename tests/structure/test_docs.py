"""The documentation is true: generated parts are current, links lead somewhere, and every command runs."""

import ast
import contextlib
import io
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from core.__main__ import command_parser, main
from core.cli.arguments import preset_from
from core.config import read_preset
from core.runs import DEFAULT_ROOT
from core.runs.sweeps.sweep import parse_sweep
from core.storage import bounded_yaml
from docs.documents import anchors, problem_of_pytest
from docs.generate import generated_pages
from tests.runs.sweeps.conftest import ThreadProcess
from tests.support.foreign_models import write_marian_text_model

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = "digits-reversal-shipped"
PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
Command = tuple[str, ...]
PROGRAMS = ("python", "pytest", "torchrun", "pip", "attention-lab", "docker", "ruff", "mypy", "pre-commit", ".")


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


# --- pages ------------------------------------------------------------------------------------------------------


def test_generated_parts_are_current():
    stale = [path.name for path, text in generated_pages() if path.read_text() != text]
    assert stale == [], "run: python -m docs.generate"


def test_links_and_paths_lead_somewhere():
    broken = []
    for page in [*PAGES, REPOSITORY / "CHANGELOG.md", REPOSITORY / "SECURITY.md"]:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if target.startswith(("http://", "https://")):
                continue
            linked = (page.parent / path).resolve() if path else page
            if not linked.exists() or (anchor and anchor not in anchors(linked)):
                broken.append(f"{page.name}: {target}")
        prose = FENCE.sub("", text)
        for path in re.findall(r"`((?:core|ui|tests|presets|benchmarks|docs|checkpoints)/[\w/.-]+)`", prose):
            if not (REPOSITORY / path).exists():
                broken.append(f"{page.name}: {path}")
    assert broken == []


def test_every_page_is_linked_from_the_readme():
    readme = (REPOSITORY / "README.md").read_text()
    assert [path.name for path in PAGES[1:] if f"({path.relative_to(REPOSITORY)})" not in readme] == []


def test_every_option_is_documented():
    page = (REPOSITORY / "docs/command-line.md").read_text()
    assert set(re.findall(r"^### `(\S+)`$", page, re.MULTILINE)) == set(commands())


def commands() -> dict[str, str]:
    from core.cli import COMMANDS

    return COMMANDS


def test_every_endpoint_of_the_api_is_documented():
    tree = ast.parse((REPOSITORY / "ui/api.py").read_text())
    (api,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Api"]
    endpoints = {node.name for node in api.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    section = (REPOSITORY / "docs/deployment.md").read_text().partition("## API")[2].partition("```")[0]
    assert endpoints
    assert set(re.findall(r"`([a-z_]+)`", section)) - {"gradio_client"} == endpoints


# --- commands ---------------------------------------------------------------------------------------------------


def shell_commands(page: Path) -> list[list[str]]:
    """The commands of a page in order: from ``sh`` blocks, and from table cells that begin with code."""
    text = page.read_text()
    lines = []
    for match in re.finditer(rf"{FENCE.pattern}|^\|.*\|$", text, re.MULTILINE | re.DOTALL):
        if match[1] == "sh":
            lines += match[2].replace("\\\n", " ").splitlines()
        elif match[0].startswith("|"):
            cells = [cell.strip() for row in match[0].split("\n") for cell in re.split(r"(?<!\\)\|", row)]
            spans = [span for cell in cells if cell.startswith("`") for span in re.findall(r"`([^`]+)`", cell)]
            lines += filter(is_command, spans)
    parts = [part for line in lines for part in re.split(r"&&|;", line)]
    commands = [re.sub(r"\s[<>]\s*\S+", "", part) for part in parts]  # without files that the shell opens
    return [words for command in commands if (words := shlex.split(command, comments=True))]


def is_command(text: str) -> bool:
    """Whether a table's cell is a command line, and not a name or an option."""
    program, _, rest = text.partition(" ")
    return program in PROGRAMS and bool(rest)


def shrunk(words: list[str], root: Path) -> list[str] | None:
    """The arguments of a command of ``python -m core``, made quick; None where it is only parsed."""
    command, arguments = words[0], list(words)
    if (
        command in ONLY_PARSED
        or (command == "deploy" and "--dry-run" not in arguments)
        or {"--all-bugs", "--times", "--html"} & {*arguments}
        or (command == "lesson" and len(arguments) > 1)
    ):
        return None
    if any(argument.endswith(".onnx") for argument in arguments) and not find_spec("onnx"):
        return None
    if "--preset" in arguments and arguments[arguments.index("--preset") + 1] in LONG_PRESETS:
        return None
    if "--run" in arguments and command != "train" and not (root / arguments[arguments.index("--run") + 1]).exists():
        return None if arguments[arguments.index("--run") + 1] in NEVER_TRAINED else arguments
    training = {"steps": 2, "evaluate_every": 2, "warmup_steps": 1, "validation_sequences": 4, "batch_size": 4}
    if command == "train":
        arguments += ["--seeds", "2"] if "--seeds" in arguments else []
        changes = {f"training.{key}": value for key, value in training.items()}
        changes |= SMALLER_MODEL if "translate-en-de" in arguments else {}
        return [*arguments, *[part for key, value in changes.items() for part in ("--set", f"{key}={value}")]]
    if command in ("evaluate", "analyze", "report"):
        return [*arguments, "--sequences", "4"]
    if command == "sweep":
        return ["sweep", str(shrunk_sweep(REPOSITORY / words[1], root)), *words[2:]]
    if command == "compare":
        return [*arguments, "--sequences", "4", "--per-length", "1"]
    if command == "perplexity":
        return [*arguments, "--order", "2"]
    return arguments


SMALLER_MODEL = {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "model.d_model": 32, "model.d_ff": 32}


def shrunk_sweep(file: Path, root: Path) -> Path:
    """A sweep of the same name with the first value of each list, one seed, at most two trials and few updates."""
    document = bounded_yaml.load(file.read_text())
    axes = {key: axis[:1] if isinstance(axis, list) else axis for key, axis in document["axes"].items()}
    axes.pop("training.steps", None)  # the goal below has the number of updates
    few = {"training.evaluate_every": 4, "training.warmup_steps": 1, "training.validation_sequences": 4}
    trials = {"trials": 2} if "trials" in document else {}
    goal = document["goal"] | {"updates": 4}
    path = root.parent / file.name
    path.write_text(yaml.safe_dump(document | trials | {"axes": axes, "seeds": 1, "set": few, "goal": goal}))
    return path


# `bench`, `lesson NAME`, `doctor --all-bugs` and `presets --times` take minutes, `resume` needs a stopped run, `push`,
# `pull` and `deploy` a server, `site` and `export --html` npm, `translate` its standard input. Their arguments are
# parsed here; tests/cli, tests/teaching, tests/runs and tests/site run them.
ONLY_PARSED = ("bench", "resume", "push", "pull", "translate", "site")
# Reading their data takes half a minute; tests/tasks covers them. Commands on their runs are parsed.
LONG_PRESETS = ("g2p-english", "psalms")
NEVER_TRAINED = ("g2p", "psalms")


def run_core(words: list[str], root: Path) -> None:
    arguments = shrunk(words, root)
    if arguments is None:
        options = command_parser(words[0]).parse_args(without_plugins(words[1:]))
        if getattr(options, "preset", None):
            preset_from(options)  # its names and --set are valid
        return
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(["--checkpoints", str(root), *arguments])
    assert code == 0, f"{shlex.join(words)}\n{errors.getvalue()[-500:]}"


def without_plugins(words: list[str]) -> list[str]:
    """The words of a command without ``--plugin FILE``, which the program reads before the command's own parser."""
    files = {i + 1 for i, word in enumerate(words) if word == "--plugin"}
    return [word for i, word in enumerate(words) if word != "--plugin" and i not in files]


def check_pytest(words: list[str], _: Path) -> None:
    assert problem_of_pytest(words) == "", words


def check_pip(words: list[str], _: Path) -> None:
    files = [words[i + 1] for i, word in enumerate(words) if word in ("-r", "-c")]
    assert all((REPOSITORY / file).exists() for file in files), words
    if "-e" in words:
        package = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        extras = re.fullmatch(r"\.(?:\[(.+)\])?", words[words.index("-e") + 1])[1] or ""
        assert set(filter(None, extras.split(","))) <= set(package["optional-dependencies"]), words
    assert files or "-e" in words or words[2:] == ["pip-audit"], words


def check_tool(words: list[str], _: Path) -> None:
    assert words[0] in (REPOSITORY / "requirements-dev.txt").read_text(), words


def check_python(words: list[str], root: Path) -> None:
    match words[1:]:
        case ["-m", "core", *arguments]:
            run_core(arguments, root)
        case ["-m", "venv", _]:
            pass
        case ["-m", module, *_]:
            assert find_spec(module), words
        case ["app.py", *arguments]:
            import app

            app._parser().parse_args(arguments)
        case _:
            pytest.fail(f"unknown command: {shlex.join(words)}")


def check_torchrun(words: list[str], root: Path) -> None:
    """Run in one process what torchrun would start in several."""
    separator = words.index("--")
    assert words[separator + 1] == "core"
    run_core(words[separator + 2 :], root)


def check_docker(words: list[str], _: Path) -> None:
    assert words[1] in ("build", "run")
    assert (REPOSITORY / "Dockerfile").exists()


CHECKS: dict[str, Callable[[list[str], Path], None]] = {
    "python": check_python,
    "attention-lab": lambda words, root: run_core(words[1:], root),
    "torchrun": check_torchrun,
    "pytest": check_pytest,
    "pip": check_pip,
    "ruff": check_tool,
    "mypy": check_tool,
    "pre-commit": check_tool,
    "docker": check_docker,
    ".": lambda words, _: None,  # activates the environment
}


class Reader:
    """Works as a reader of a page does: in a folder with the run that ships, pairs and a model of others.

    Attributes:
        done: the commands that have run there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "checkpoints"
        self.done: set[Command] = set()
        shutil.copytree(DEFAULT_ROOT / SHIPPED, self.root / SHIPPED)
        words = [f"{first}{second}" for first in "abcdefgh" for second in "abcdefghij"]
        (folder / "pairs.tsv").write_text("".join(f"{word}\t{word[::-1]}\n" for word in words))
        write_marian_text_model(folder / "opus-mt-en-de")
        shutil.copytree(REPOSITORY / "docs/examples", folder / "docs/examples")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Reader]:
    """Return a function: the reader of a page in all cases of a test."""
    return cache(lambda test, page: Reader(tmp_path_factory.mktemp("reader")))


@pytest.fixture
def reader(
    request: pytest.FixtureRequest,
    page: str,
    readers: Callable[[str, str], Reader],
    monkeypatch: pytest.MonkeyPatch,
    own_plugins: None,
) -> Reader:
    """The page's reader, in their folder."""
    reader = readers(request.function.__name__, page)
    monkeypatch.chdir(reader.folder)
    monkeypatch.setattr("core.runs.sweeps.driver.RunProcess", ThreadProcess)
    monkeypatch.setattr("core.cli.sweep.usable_cores", lambda: 4)
    return reader


COMMANDS_OF = {page.name: [*dict.fromkeys(map(tuple, shell_commands(page)))] for page in PAGES}  # each once
RUN_NIGHTLY = ("command-line.md", "extending.md", "results.md")  # half a minute each


@pytest.mark.parametrize(
    ("page", "words"),
    [
        pytest.param(
            page, words, marks=[pytest.mark.slow] if page in RUN_NIGHTLY else [], id=f"{page}: {shlex.join(words)}"
        )
        for page, commands in COMMANDS_OF.items()
        for words in commands
    ],
)
def test_every_command_runs(page: str, words: Command, reader: Reader):
    commands = COMMANDS_OF[page]
    for command in commands[: commands.index(words) + 1]:  # those before it leave runs that it may need
        if command not in reader.done:
            reader.done.add(command)
            assert command[0] in CHECKS, f"unknown command: {shlex.join(command)}"
            CHECKS[command[0]]([*command], reader.root)


def test_no_block_of_commands_is_left_out():
    assert [page.name for page in PAGES if "```sh" in page.read_text() and not COMMANDS_OF[page.name]] == []


def python_blocks(page: Path) -> Iterator[str]:
    yield from (match[2] for match in FENCE.finditer(page.read_text()) if match[1] == "python")


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/extending.md"])
def test_every_python_block_runs(page: str, reader: Reader, capsys: pytest.CaptureFixture):
    namespace: dict = {"__name__": "__main__"}
    for block in python_blocks(REPOSITORY / page):
        exec(compile(block, page, "exec"), namespace)  # noqa: S102 - of our own documentation
    assert capsys.readouterr().out or page == "docs/extending.md"


def test_the_sweeps_that_are_shown_are_those_that_ship():
    blocks = [match[2] for match in FENCE.finditer((REPOSITORY / "docs/sweeps.md").read_text()) if match[1] == "yaml"]
    shipped = [bounded_yaml.load(path.read_text()) for path in sorted((REPOSITORY / "presets/sweeps").iterdir())]
    assert [bounded_yaml.load(block) for block in blocks] == shipped
    assert all(parse_sweep(each) for each in shipped)


def test_the_preset_that_is_shown_is_valid():
    (block,) = [
        match[2] for match in FENCE.finditer((REPOSITORY / "docs/extending.md").read_text()) if match[1] == "yaml"
    ]
    assert read_preset(block, name="example").task.family == "digits"
