"""What notebooks use: ``from core import lab``, then ``lab.load("digits-reversal-shipped").decode("4 8 2 9").output``.

docs/python.md shows every name of ``__all__``; they stay as they are from version to version.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.config import Preset, load_preset, load_preset_file, pairs_beside, parse_preset, read_preset
from core.config.listing import listed_presets
from core.interpret.any_module.calling import described
from core.interpret.any_module.tables import attention
from core.interpret.trained import Trained
from core.runs.folder import DEFAULT_ROOT
from core.runs.run import Run, Runs
from core.runs.watching.watch import Watch, watch
from core.storage.error_messages import short_repr
from core.storage.errors import InputError
from core.teaching.doctor import diagnose
from core.training.gradient_statistics import gradients
from core.training.loop import EndEvent, EvaluationEvent, Event, StepEvent

if TYPE_CHECKING:  # a tenth of a second to import
    import pandas as pd
    import torch
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

__all__ = [
    "EndEvent",
    "EvaluationEvent",
    "Run",
    "Runs",
    "StepEvent",
    "Trained",
    "Watch",
    "attention",
    "diagnose",
    "gradients",
    "import_model",
    "load",
    "plot_attention",
    "presets",
    "runs",
    "train",
    "watch",
]

Root = str | Path


def __dir__() -> list[str]:  # what Tab completes in a notebook
    return __all__


def presets() -> list[str]:
    """Return the names of all presets, the quickest to train first."""
    return [preset.name for preset in listed_presets()]


def runs(root: Root = DEFAULT_ROOT) -> Runs:
    """Return the runs in a folder by name, newest first: ``runs()["digits-reversal-3"]``."""
    return Runs(root)


def load(name: str | Path, root: Root = DEFAULT_ROOT) -> Trained:
    """Load the best weights of a run: ``runs(root)[name].trained()``.

    Args:
        name: of the run, such as ``"digits-reversal-shipped"``.
        root: the folder of runs.

    Raises:
        RunError: there is no such run, it has no weights yet, or they cannot be read.
    """
    return runs(root)[str(name)].trained()


def plot_attention(table: "pd.DataFrame", ax: "Axes | None" = None) -> "AxesImage":
    """Draw an attention map with matplotlib: the darker, the more attention; the colors cover 0 to 1.

    Args:
        table: one head's weights, (queries, keys) float, as ``Trained.attention`` returns them.
        ax: the axes to draw into; None is pyplot's current axes.

    Returns:
        The image, for ``figure.colorbar``.

    Raises:
        InputError: ``table`` is no table, or ``ax`` no axes.
    """
    import pandas as pd
    from matplotlib import pyplot
    from matplotlib.axes import Axes

    from core.reports.plotting import draw_attention

    if not isinstance(table, pd.DataFrame):
        raise InputError(f"table is {described(table)}; it must be the table of one head: attention(…)['cross.1.1']")
    if not isinstance(ax, Axes | None):
        raise InputError(f"ax is {described(ax)}; it must be one axes object of matplotlib, such as axes[0]")
    axes = pyplot.gca() if ax is None else ax
    return draw_attention(axes, table.to_numpy(), rows=list(table.index), columns=list(table.columns))


def train(
    preset: str | Path | Mapping[str, Any] | Preset | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    name: str | None = None,
    root: Root = DEFAULT_ROOT,
    on_event: Callable[[Event], None] = lambda event: None,
    start_from: str | None = None,
) -> Run:
    """Train a preset to its end, and save it as a run that the page and the command line know too.

    Warns if training takes more memory than this machine has, or if sequences may be longer than 1,024 tokens.

    Args:
        preset: a preset or its name; the ``Path`` of its file, beside which are its own pairs, if it has any; or its
            sections, as a mapping or as YAML text of several lines. With ``start_from``, None is that run's.
        changes: settings by key, such as ``{"training.steps": 500}``; as ``--set`` on the command line.
        name: of the new run; None is the preset's with a number.
        root: the folder of runs.
        on_event: called with every ``StepEvent``, ``EvaluationEvent`` and, at last, ``EndEvent``. An exception that it
            raises ends the training.
        start_from: name of a run in ``root`` whose best weights the training begins with, instead of random ones.

    Returns:
        The run; ``trained()`` has its best weights.

    Raises:
        ConfigError: there is no such preset, or a setting is not valid; or the preset does not fit the run to start
            from.
        RunError: there is a run of that name; or there is no run to start from, or it has no weights yet.
        InputError: an argument is of another kind.
        TypeError: there is neither a preset nor a run to start from.
    """
    from core.runs.training import training  # not needed to look at a run
    from core.teaching.bugs import new_state
    from core.training.memory import memory_warning

    known = runs(root)
    if not isinstance(changes, Mapping | None) or not all(isinstance(key, str) for key in changes or {}):
        raise InputError(f"changes={short_repr(changes)} must be settings by key, such as {{'training.steps': 500}}")
    if not callable(on_event):
        raise InputError(f"on_event={short_repr(on_event)} must be a function of an event")
    if preset is not None:
        base = _preset_of(preset)
    elif start_from is not None:
        base = known[start_from].preset
    else:
        raise TypeError("train() needs a preset, or start_from")
    chosen = base.with_changes(dict(changes or {}))
    pairs = pairs_beside(preset) if isinstance(preset, Path) and chosen.task.own_data else None
    if warning := memory_warning(chosen, "cpu", pairs):
        warnings.warn(warning, stacklevel=2)
    state = None if start_from else new_state(chosen, pairs=pairs)  # raises before the folder is there
    created = known.create(chosen, name=name, pairs=pairs, start_from=start_from)
    with training(created.folder, state) as run:
        for event in run:
            on_event(event)
    return known[created.name]


def import_model(
    module: Callable[..., Any],
    src: "torch.Tensor",
    tgt_in: "torch.Tensor",
    *,
    model: "torch.nn.Module | None" = None,
    name: str | None = None,
    root: Root = DEFAULT_ROOT,
    source_tokens: Iterable[str] | Mapping[str, int] = (),
    target_tokens: Iterable[str] | Mapping[str, int] = (),
    pairs: str | Path | None = None,
    batch_first: bool | None = None,
    pad: int | None = None,
    bos: int | None = None,
    eos: int | None = None,
    unk: int | None = None,
    src_pad: int | None = None,
    src_bos: int | None = None,
    src_eos: int | None = None,
) -> Run:
    """Make a run of your own model that is built on ``nn.Transformer``, after comparing its logits.

    Heads, norm, activation and dropout are read from the module; embeddings, scale and positions are measured on the
    batch. PAD, BOS and EOS are what every row of the batch is filled up with, begins with and ends with.

    Args:
        module: ``module(src, tgt_in)`` returns the logits, (B, T, V) float; an ``nn.Module``, or a function that adds
            masks.
        src: (B, S) int64, sources as the model reads them, padded on the right.
        tgt_in: (B, T) int64, decoder inputs.
        model: the module with the parameters, if ``module`` is a function.
        name: of the new run; None is the module's class with a number.
        root: the folder of runs.
        source_tokens, target_tokens: names of tokens, by id; or ids by name. Without them, tokens are their numbers.
        pairs: a file of pairs to measure the model on.
        batch_first: False if ids are (S, B) and (T, B), and logits (T, B, V); None finds out by where BOS is.
        pad, bos, eos, unk: ids of special tokens; None reads them off the batch, which never shows ``unk``.
        src_pad, src_bos, src_eos: those of sources, if the batch does not show them; -1 for no BOS or EOS.

    Returns:
        The run; ``info.message`` says what was compared, and the ids of special tokens. A warning says what is
        doubtful.

    Raises:
        LabError: the model is of another kind, its logits differ, by how much and from which layer on; or a special
            token is neither passed nor shown by the batch.
    """
    from core.runs.importing_models import import_module
    from core.runs.torch_module import ModuleBatch, tokens_by_id

    special = {"pad": pad, "bos": bos, "eos": eos, "unk": unk}
    special |= {"src_pad": src_pad, "src_bos": src_bos, "src_eos": src_eos}
    names = tokens_by_id("source_tokens", source_tokens), tokens_by_id("target_tokens", target_tokens)
    batch = ModuleBatch(module, src, tgt_in, model=model, batch_first=batch_first, special=special, names=names)
    folder, doubts = import_module(runs(root).root, batch, name=name, pairs=None if pairs is None else Path(pairs))
    for doubt in doubts:
        warnings.warn(doubt, stacklevel=2)
    return runs(root)[folder.name]


def _preset_of(given: str | Path | Mapping[str, Any] | Preset) -> Preset:
    if isinstance(given, Preset):
        return given
    if isinstance(given, Path):
        return load_preset_file(given)
    if isinstance(given, Mapping):
        return parse_preset(dict(given), name="notebook")
    if not isinstance(given, str):
        raise InputError(f"preset is {described(given)}; it must be a preset, its name, its sections or a Path")
    if "\n" in given:
        return read_preset(given, name="notebook")
    if given.endswith((".yaml", ".yml")):
        raise InputError(f"preset={short_repr(given)} is no name of a preset; pass a file as Path({short_repr(given)})")
    return load_preset(given)
