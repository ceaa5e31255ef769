"""User-defined tasks, models, blocks, metrics and presets, registered from a notebook or a file given by ``--plugin``.

A name can be registered once. Only in a notebook or a script (``__main__``) may the same name be registered again, so
that a cell can run twice. A plugin is a program: it runs with all rights of the user who loads it.
"""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, cast, get_args

from torch import nn

from core.config.counting import counted
from core.config.preset import (
    ADDED_PRESETS,
    PLUGIN_FILES,
    LoadedPlugin,
    Preset,
    family_of,
    load_preset_file,
    preset_names,
    section_classes,
    set_section_classes,
)
from core.config.sections import BLOCKS, BlockKind, Section
from core.config.tasks import SequencesConfig, TaskSection
from core.evaluation.accuracy import Evaluation
from core.evaluation.metrics import METRIC_NAME, METRICS
from core.models.attention import MultiHeadAttention
from core.models.embeddings import Embedding, Output
from core.models.layers import FeedForward
from core.storage.error_messages import place_in, shown
from core.storage.errors import LabError
from core.tasks import TASKS, Task
from core.training.history import RESERVED_COLUMNS

__all__ = ["PluginError", "block", "load", "metric", "model", "preset", "task"]

_Registered = TypeVar("_Registered", bound=Callable[..., Any])
_Config = TypeVar("_Config", bound=Section)
_BASES: dict[BlockKind, type[nn.Module]] = {
    "attention": MultiHeadAttention,
    "feed_forward": FeedForward,
    "norm": nn.Module,
    "embedding": Embedding,
    "output": Output,
}
_NEEDED = ("length_field", "num_distinct", "longest_source", "longest_answer", "summary")  # see TaskSection
_owners: dict[tuple[str, str], str] = {}  # (what, name) → module that registered it
_preset_files: list[str] = []  # preset files in the order of their registration


class PluginError(LabError):
    """A plugin cannot be loaded, or registers something unusable; the message says what and why."""


def __dir__() -> list[str]:  # what Tab completes in a notebook
    return __all__


def task(section: type[TaskSection]) -> Callable[[_Registered], _Registered]:
    """Register a family of tasks: ``@plugins.task(MyConfig)`` above the class that ``MyConfig`` describes.

    Args:
        section: the settings, a ``TaskSection`` with its own ``family``, by which presets select it.

    Returns:
        A decorator of the ``Task``, or of a function that returns one; it is called with a ``section`` object.

    Raises:
        PluginError: the section lacks something, or its family exists.
    """
    _check_section("task", section, TaskSection)
    missing = [name for name in _NEEDED if not hasattr(section, name) and name not in section.model_fields]
    if missing:
        raise PluginError(f"{section.__name__} has no {', '.join(missing)}; see core.config.tasks.TaskSection")

    def register(build: _Registered) -> _Registered:
        def checked(config: TaskSection, pairs: Path | None) -> Task:  # the task of a plugin reads no pairs
            made = build(config)
            if not isinstance(made, Task):
                raise PluginError(
                    f"task.family={family_of(section)!r} built {_kind_of(made)}; it must be a core.tasks.Task"
                )
            from core.tasks.sequences import SequenceTask  # here, because other tasks do not need it

            if isinstance(made, SequenceTask) and isinstance(config, SequencesConfig):
                drawn = len(made.src_vocab.symbols)
                if drawn != config.num_symbols:
                    raise PluginError(
                        f"task.family={family_of(section)!r} draws from {counted(drawn, 'symbol')}, and its settings "
                        f"have num_symbols={config.num_symbols}; they must be equal"
                    )
            return made

        _add_family("task", section)
        TASKS[section] = checked
        return build

    return register


def model(section: type[_Config]) -> type[_Config]:
    """Register a family of models: a decorator of its settings, derived from those of a built-in family.

    The class of the built-in family builds it. The family adds fields, which blocks read, and defaults.

    Raises:
        PluginError: the section is not derived from a built-in one, has no ``family`` of its own, or the family exists.
    """
    _check_section("model", section, section_classes("model"))
    _add_family("model", section)
    return section


def block(kind: BlockKind, name: str) -> Callable[[_Registered], _Registered]:
    """Register a block of Transformers: presets select it by ``model.attention_block``, ``model.norm_block`` and so on.

    Args:
        kind: "attention", for a class derived from ``MultiHeadAttention``; "feed_forward", from ``FeedForward``;
            "embedding", from ``Embedding``; "output", from ``Output``; or "norm", any module that maps (B, T, D) to
            the same shape.
        name: its name in presets.

    Returns:
        A decorator of the class, or of a function that returns such a module. It is called with the preset's model
        section and the run's random generator, which dropout needs; an embedding or an output layer also with the
        number of tokens.

    Raises:
        PluginError: the kind does not exist, or the name does.
    """
    if kind not in BLOCKS:
        raise PluginError(f"block kind={kind!r} is not one of {', '.join(get_args(BlockKind))}")

    def register(build: _Registered) -> _Registered:
        def checked(config: Section, generator: Any, *sizes: int) -> nn.Module:
            made, base = build(config, generator, *sizes), _BASES[kind]
            if not isinstance(made, base):
                needed = "torch.nn.Module" if base is nn.Module else f"{base.__module__}.{base.__name__}"
                raise PluginError(f"model.{kind}_block={name!r} built {_kind_of(made)}; it must be a {needed}")
            return made

        _claim(f"{kind} block", name, _module_of(build), exists=name in BLOCKS[kind])
        BLOCKS[kind][name] = checked
        return build

    return register


def _kind_of(made: Any) -> str:
    return f"an object of class {type(made).__name__}"


def metric(name: str) -> Callable[[_Registered], _Registered]:
    """Register a metric: a function of a list of outputs and the list of their references, both as text.

    Every evaluation measures it on the same outputs as exact match. ``Evaluation.metrics``, the output of ``train``,
    ``metrics.jsonl``, ``evaluate`` and the report show it. A value that is not finite counts as not measured.

    Raises:
        PluginError: the name exists, or is not made of a-z, 0-9 and _.
    """
    if not isinstance(name, str) or not METRIC_NAME.fullmatch(name):
        raise PluginError(f"metric={name!r} must start with a-z, then at most 31 of a-z, 0-9 and _")

    def register(measure: _Registered) -> _Registered:
        is_built_in = name in RESERVED_COLUMNS or name in Evaluation.__dataclass_fields__
        _claim("metric", name, _module_of(measure), exists=is_built_in or name in METRICS)
        METRICS[name] = measure
        return measure

    return register


def preset(source: str | Path | Preset) -> Preset:
    """Add a preset to those that ship, under its name, so that the page and the command line list it.

    Args:
        source: a preset, or the path of its YAML file, such as ``Path(__file__).with_name("mine.yaml")``.

    Raises:
        ConfigError: the preset is not valid.
        PluginError: another preset of this name ships or comes from a file; a preset from a notebook is replaced.
    """
    added = source if isinstance(source, Preset) else load_preset_file(Path(source))
    if ADDED_PRESETS.get(added.name) != added:
        module = sys._getframe(1).f_globals.get("__name__", "")  # of the cell or the file that calls this
        _claim("preset", added.name, module, exists=added.name in preset_names())
    ADDED_PRESETS[added.name] = added
    if not isinstance(source, Preset):
        _preset_files.append(str(Path(source).resolve()))
    return added


def load(path: str | Path) -> None:
    """Run a file that registers something, as ``--plugin`` does.

    Loading the same file, or an identical copy, again has no effect. The file can import other files of its folder
    while it runs, but not later in its functions: afterwards the folder is no longer searched, so that another plugin
    can import its own files of the same name. ``PLUGIN_FILES`` has the hashes of all of them. If the file fails,
    everything that it registered is removed.

    Raises:
        PluginError: the file cannot be read, is not Python, has the name of another loaded file, or raises an
            exception; the message names its line.
    """
    path = Path(path)
    file = path.resolve()
    if file in _loaded_files():
        return
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PluginError(f"plugin={str(path)!r} cannot be read: {error.strerror or error}") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if file.name in PLUGIN_FILES:  # runs store the names of plugins without folders
        known = PLUGIN_FILES[file.name]
        if known.sha256 == sha256 and not known.imports:
            return
        raise PluginError(
            f"plugin={str(path)!r}: another plugin named {file.name!r} is loaded already; rename one of them"
        )
    name = f"plugin_{len(PLUGIN_FILES) + 1}_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"plugin={str(path)!r} must be a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    before, modules, folder = snapshot(), {*sys.modules}, str(file.parent)
    num_presets = len(_preset_files)
    sys.modules[name] = module  # classes look up their module there
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
        imports = _imported_from(file.parent, before={*modules, name})
        presets = tuple(_preset_files[num_presets:])
        PLUGIN_FILES[file.name] = LoadedPlugin(path=str(file), sha256=sha256, imports=imports, preset_files=presets)
    except BaseException as error:
        restore(before)
        if not isinstance(error, Exception):  # Ctrl+C, or sys.exit
            raise
        raise PluginError(f"plugin={str(path)!r}, {place_in(file, error)}: {shown(error)}") from error
    finally:
        for each in _modules_of(file.parent, before=modules):
            del sys.modules[each]
        if folder in sys.path:  # unless the plugin removed it
            sys.path.remove(folder)


def snapshot() -> tuple[Any, ...]:
    """Return everything that is registered now, for ``restore``."""
    blocks = {kind: dict(named) for kind, named in BLOCKS.items()}
    sections = section_classes("task"), section_classes("model")
    return sections, blocks, *map(dict, _registries())


def restore(state: tuple[Any, ...]) -> None:
    """Restore the registrations of a ``snapshot``."""
    sections, blocks, *registries = state
    set_section_classes("task", sections[0])
    set_section_classes("model", sections[1])
    for kind, named in blocks.items():
        _replace(BLOCKS[kind], named)
    for registry, content in zip(_registries(), registries, strict=True):
        _replace(registry, content)


def _loaded_files() -> set[Path]:
    return {Path(each.path) for each in PLUGIN_FILES.values()}


def _imported_from(folder: Path, *, before: set[str]) -> dict[str, str]:
    """Return the SHA-256 of the modules imported since ``before`` that were found in a folder, by name."""
    specs = {name: getattr(sys.modules[name], "__spec__", None) for name in _modules_of(folder, before=before)}
    files = {name: Path(spec.origin) for name, spec in sorted(specs.items()) if spec and spec.has_location}
    return {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}


def _modules_of(folder: Path, *, before: set[str]) -> list[str]:
    """Return the modules imported since ``before`` from a folder, except loaded plugins.

    Subfolders are not included: one may be a virtual environment.
    """
    since = sys.modules.keys() - before
    found = {name for name in since if "." not in name and _is_found_in(folder, sys.modules[name])}
    return [name for name in since if name.partition(".")[0] in found]


def _is_found_in(folder: Path, module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return False
    paths = [Path(each) for each in (spec.origin, *(spec.submodule_search_locations or ())) if each]
    return any(path.parent == folder for path in paths) and _loaded_files().isdisjoint(paths)


def _registries() -> tuple[dict[Any, Any], ...]:
    return TASKS, METRICS, ADDED_PRESETS, PLUGIN_FILES, _owners


def _replace(registry: dict[Any, Any], content: dict[Any, Any]) -> None:
    registry.clear()
    registry.update(content)


def _check_section(name: Literal["task", "model"], section: Any, bases: Any) -> None:
    """Check that a section is derived from a base and has a family of its own."""
    names = " or ".join(each.__name__ for each in (bases if isinstance(bases, tuple) else (bases,)))
    if not (isinstance(section, type) and issubclass(section, bases)):
        raise PluginError(f"{getattr(section, '__name__', section)!s:.60} must be a class derived from {names}")
    field = cast(type[Section], section).model_fields.get("family")
    if field is None or get_args(field.annotation) != (field.default,):
        raise PluginError(
            f'{section.__name__} has no family: give it a field such as family: Literal["my-{name}"] = "my-{name}"'
        )


def _add_family(name: Literal["task", "model"], section: type[Section]) -> None:
    family, others = cast(str, family_of(section)), section_classes(name)
    _claim(f"{name} family", family, section.__module__, exists=family in map(family_of, others))
    set_section_classes(name, [*(each for each in others if family_of(each) != family), section])


def _claim(what: str, name: str, module: str, *, exists: bool) -> None:
    """Note which module registers a name; PluginError if it is taken by another one, or twice by a file."""
    owner = _owners.get((what, name))
    if exists and not (owner == module == "__main__"):
        by = "built in" if owner is None else f"registered by {_file_of(owner)}"
        raise PluginError(f"{what} {name!r} exists already: it is {by}; choose another name")
    _owners[what, name] = module


def _module_of(registered: Any) -> str:
    return getattr(registered, "__module__", "")


def _file_of(module: str) -> str:
    return Path(getattr(sys.modules.get(module), "__file__", None) or module).name
