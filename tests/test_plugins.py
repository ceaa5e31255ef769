"""What ``core.plugins`` registers stands where built-in tasks, blocks, metrics and presets do; errors say why not."""

import hashlib
import json
import sys
from pathlib import Path
from typing import ClassVar, Literal

import pytest
import torch

import app
from core import lab, plugins
from core.__main__ import main
from core.config import ConfigError, load_preset, parse_preset, preset_names, preset_to_yaml, read_preset
from core.config.preset import LoadedPlugin, section_classes
from core.config.sections import BLOCKS
from core.config.tasks import SequencesConfig
from core.evaluation.metrics import METRICS
from core.models.attention import MultiHeadAttention
from core.models.layers import FeedForward
from core.models.positions import NO_POSITIONS
from core.runs import RunError, RunFolder, check_resumable
from core.runs.info import recorded_plugin
from core.runs.load import load_run
from core.runs.model_card import model_card
from core.runs.plugin_versions import changed_plugins, missing_plugins
from core.storage.errors import InputError, LabError
from core.tasks import TASKS, build_task, fixed_pairs
from core.tasks.sequences import SequenceTask
from core.text.vocab import Vocab
from core.training.history import EVALUATION_COLUMNS, TRAINING_COLUMNS, History
from tests.support.command_output import last_json

EXAMPLE = Path(__file__).parents[1] / "docs/examples/rotated_letters.py"
BLOCKS_EXAMPLE = EXAMPLE.with_name("modern_blocks.py")
SMALL = {
    "training.steps": 8,
    "training.batch_size": 8,
    "training.warmup_steps": 2,
    "training.evaluate_every": 4,
    "training.validation_sequences": 16,
}
SETTINGS = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]
CHANGES = {"task.family": "letters", "task.transform": "rotate"}
LETTERS = [
    "--preset",
    "tiny",
    *(part for key, value in CHANGES.items() for part in ("--set", f"{key}={value}")),
    *SETTINGS,
]
HEADER = """\
from typing import ClassVar, Literal
from core import plugins
from core.config.tasks import SequencesConfig, TaskSection
class Mine(SequencesConfig):
    num_symbols: ClassVar[int] = 9
    family: Literal["mine"] = "mine"
    transform: Literal["copy"] = "copy"
"""

pytestmark = pytest.mark.usefixtures("own_plugins")


@pytest.fixture
def core(root, capsys):
    """Run a command below a folder of its own: (exit code, standard output, standard error)."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["--checkpoints", str(root), *arguments])
        return code, *capsys.readouterr()

    return run


def forget() -> None:
    """Register nothing, as in a new process."""
    sections = [each for each in section_classes("task") if each.__module__.startswith("core.")]
    models = [each for each in section_classes("model") if each.__module__.startswith("core.")]
    built_in = {kind: {name: None for name, build in named.items() if build is None} for kind, named in BLOCKS.items()}
    tasks = {section: built for section, built in TASKS.items() if section in sections}
    plugins.restore(((sections, models), built_in, tasks, {}, {}, {}, {}))


def test_a_task_and_a_metric_of_a_file_work_in_every_command(core, root):
    code, output, errors = core("--plugin", str(EXAMPLE), "train", *LETTERS, "--run", "mine", "--json")
    assert code == 0, errors
    trained = last_json(output)
    assert 0 <= trained["metrics"]["first_letter"] <= 1
    assert "first_letter" in output.splitlines()[0]
    for command in (
        ["decode", "--run", "mine", "a b c d", "--plugin", str(EXAMPLE)],
        ["report", f"--plugin={EXAMPLE}", "--run", "mine", "--sequences", "8"],
        ["resume", "--run", "mine", "--set", "training.steps=12", "--plugin", str(EXAMPLE)],
        ["describe", *LETTERS, "--plugin", str(EXAMPLE)],
        ["doctor", "--run", "mine", "--plugin", str(EXAMPLE)],
    ):
        forget()
        code, output, errors = core(*command)
        assert code == 0, errors
        if command[0] == "decode":
            assert "expected  b c d a" in output
    forget()
    code, output, _ = core("evaluate", "--plugin", str(EXAMPLE), "--run", "mine", "--sequences", "8", "--json")
    assert set(last_json(output)["metrics"]) == {"first_letter"}
    assert r"| first\_letter (metric of a plugin) |" in (root / "mine/report/report.md").read_text()


def test_a_run_names_the_plugin_it_was_trained_with_and_needs_it_again(core, root):
    core("train", "--plugin", str(EXAMPLE), *LETTERS, "--run", "mine")
    (session,) = RunFolder(root, "mine").read_info().provenance
    sha256 = hashlib.sha256(EXAMPLE.read_bytes()).hexdigest()
    assert [(each.name, each.sha256) for each in session.plugins] == [("rotated_letters.py", sha256)]
    assert session.command.startswith("--plugin rotated_letters.py train --preset tiny")
    forget()
    code, _, errors = core("decode", "--run", "mine", "a b c d")
    assert code == 2
    assert f"it was trained with --plugin rotated_letters.py (SHA-256 {sha256[:12]}…): task.family='letters'" in errors


def test_the_history_keeps_metrics_through_its_file_also_without_the_plugin(tmp_path):
    plugins.load(EXAMPLE)
    run = lab.train("tiny", changes=CHANGES | SMALL, name="mine", root=tmp_path)
    metrics = run.trained().evaluate(20).metrics
    assert 0 <= metrics["first_letter"] <= 1
    path = RunFolder(tmp_path, "mine").metrics
    recorded = History.load(path).evaluations()["first_letter"]
    assert len(recorded) == 3
    forget()
    history = History.load(path)
    assert history.evaluations()["first_letter"] == recorded
    history.save(tmp_path / "copy.jsonl")
    assert History.load(tmp_path / "copy.jsonl").evaluations() == history.evaluations()
    assert set(history.chart("evaluations")["columns"]) == {*EVALUATION_COLUMNS, *TRAINING_COLUMNS}


def test_metrics_in_a_damaged_file_are_no_columns(tmp_path):
    good = {"step": 1, "validation_loss": 1.0, "token_accuracy": 0.5, "exact_match": 0.5}
    lines = [good | {"metrics": each} for each in (["x"], {"<b>": 1.0}, {"a": "b"}, "a", {"step": 3.0})]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert History.load(tmp_path / "metrics.jsonl").evaluations() == {key: [value] for key, value in good.items()}


def test_a_metric_gets_the_texts_that_exact_match_compares(tiny):
    seen = []

    @plugins.metric("seen")
    def keep(outputs, references):
        seen.append((outputs, references))
        return float("nan")

    run_task = build_task(tiny.task)
    from core.evaluation.accuracy import evaluate
    from core.models import build_model

    model = build_model(tiny.model, run_task, torch.Generator().manual_seed(0))
    pairs = fixed_pairs(run_task, 12, split="test")
    evaluation = evaluate(model, pairs, task=run_task)
    assert evaluation.metrics == {}  # not a number: not measured
    ((outputs, references),) = seen
    assert len(outputs) == len(references) == 12
    first = run_task.src_vocab.decode([each for each in pairs.src[0].tolist() if each > 2])
    assert references[0] == run_task.answer_text(run_task.answer(first))
    assert evaluate(model, pairs).metrics == {}
    assert len(seen) == 1  # without the task there are no texts


def test_a_metric_without_its_name_is_refused():
    with pytest.raises(plugins.PluginError, match=r"^metric=<function .*> must start with a-z"):

        @plugins.metric
        def measure(outputs, references):
            return 1


def test_a_metric_that_fails_is_named(tiny, tmp_path):
    plugins.metric("broken")(lambda outputs, references: 1 / 0)
    where = r"metric='broken' failed, test_plugins.py line \d+: ZeroDivisionError"
    with pytest.raises(LabError, match=where) as failed:
        lab.train(tiny, root=tmp_path, name="mine")
    assert failed.value.exit_code == 1  # the run failed; nothing that was typed is wrong
    assert "metric='broken' failed" in RunFolder(tmp_path, "mine").read_info().message


def test_presets_of_a_plugins_family_are_validated_and_written_as_others_are(tiny):
    before = tiny.model_dump(), preset_to_yaml(tiny)
    plugins.load(EXAMPLE)
    assert (tiny.model_dump(), preset_to_yaml(tiny)) == before
    preset = tiny.with_changes(CHANGES | {"task.positions": 2})
    assert read_preset(preset_to_yaml(preset), name="x") == preset
    assert parse_preset(json.loads(preset.model_dump_json())) == preset
    with pytest.raises(ConfigError, match=r"^task\.positions=9 should be less than or equal to 8$"):
        tiny.with_changes(CHANGES | {"task.positions": 9})
    with pytest.raises(
        ConfigError, match=r"^task\.base is not a known key; known keys are family, transform, .*positions$"
    ):
        tiny.with_changes(CHANGES | {"task.base": 3})


def test_what_no_plugin_registered_is_refused_with_a_hint(tiny):
    for change in ({"task.family": "letters"}, {"model.family": "modern"}, {"model.norm_block": "rms"}):
        (value,) = change.values()
        with pytest.raises(ConfigError, match=f"={value!r} should be .* your own needs what .* FILE, or its cell"):
            tiny.with_changes(change)


def test_the_run_of_a_notebooks_block_needs_the_cell_again_and_is_not_called_damaged(tiny, root):
    plugins.block("norm", "mine")(torch.nn.Identity)
    folder = RunFolder.create(root, tiny.with_changes({"model.norm_block": "mine"}), name="a")
    forget()
    message = r"^run='a': its preset cannot be used: model\.norm_block='mine' should be .*, or its cell in a notebook$"
    with pytest.raises(RunError, match=message):
        folder.read_preset()


def test_a_bug_needs_built_in_blocks(tiny):
    plugins.load(BLOCKS_EXAMPLE)
    with pytest.raises(ConfigError, match=r"needs built-in blocks, not model\.norm_block='rms'"):
        tiny.with_changes({"model.norm_block": "rms"}).with_bug("no-residual")


def test_presets_of_plugins_stand_beside_those_that_ship(core):
    code, output, errors = core("presets", "--plugin", str(BLOCKS_EXAMPLE))
    assert code == 0, errors
    assert "modern-reversal" in output
    assert "modern-reversal" in preset_names()
    assert load_preset("modern-reversal").model.family == "modern"
    assert "num_kv_heads: 2" in core("presets", "modern-reversal")[1]
    with pytest.raises(plugins.PluginError, match="preset 'tiny' exists already"):
        plugins.preset(load_preset("tiny"))


FAULTS = {
    "x = (": "line 1: SyntaxError: '(' was never closed",
    "\n\nx = 1 / 0": "line 3: ZeroDivisionError: division by zero",
    "import nothing_of_this_name": "line 1: ModuleNotFoundError",
    f'{HEADER}\nplugins.task(Mine)(lambda config: None)\nplugins.metric("ok")(print)\nplugins.task(Mine)(print)': (
        "line 11: task family 'mine' exists already: it is registered by plugin.py"
    ),
    f"{HEADER}\nclass Other(Mine):\n    family: str = 'other'\nplugins.task(Other)": (
        'Other has no family: give it a field such as family: Literal["my-task"] = "my-task"'
    ),
    f"{HEADER}\nclass Less(TaskSection):\n    family: Literal['less'] = 'less'\nplugins.task(Less)": (
        "Less has no length_field, num_distinct, longest_source, longest_answer, summary"
    ),
    f"{HEADER}\nplugins.task(int)": "int must be a class derived from TaskSection",
    f"{HEADER}\nplugins.model(Mine)": "Mine must be a class derived from TransformerConfig or DecoderOnlyConfig or",
    f"{HEADER}\nplugins.block('mask', 'm')": "block kind='mask' is not one of attention, feed_forward, norm",
    f"{HEADER}\nplugins.block('norm', 'layer-norm')(print)": "norm block 'layer-norm' exists already: it is built in",
    f"{HEADER}\nplugins.metric('BLEU 4')": "metric='BLEU 4' must start with a-z",
    f"{HEADER}\nplugins.metric('exact_match')(print)": "metric 'exact_match' exists already: it is built in",
}


@pytest.mark.parametrize("source", FAULTS, ids=FAULTS.values())
def test_a_file_that_fails_is_refused_with_its_line_and_registers_nothing(core, tmp_path, source):
    file = tmp_path / "plugin.py"
    file.write_text(source)
    before = plugins.snapshot()
    code, _, errors = core("presets", "--plugin", str(file))
    assert code == 2
    assert FAULTS[source] in errors
    assert f"plugin={str(file)!r}, line " in errors
    assert errors.count("\n") == 1
    assert plugins.snapshot() == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py", "none.py' cannot be read: No such file"),
        ("notes.txt", "notes.txt' must be a Python file"),
        ("", "--plugin needs a file"),
    ],
)
def test_a_file_that_is_no_program_is_refused(core, tmp_path, name, message):
    (tmp_path / "notes.txt").write_text("")
    code, output, errors = core("presets", "--json", "--plugin", str(tmp_path / name) if name else "")
    assert code == 2
    assert message in errors
    assert message in last_json(output)["error"]


def test_what_builds_another_thing_is_refused(tiny):
    class Mine(SequencesConfig):
        num_symbols: ClassVar[int] = 9
        family: Literal["mine"] = "mine"
        transform: Literal["copy"] = "copy"

    plugins.task(Mine)(lambda config: "no task")
    plugins.block("attention", "none")(lambda config, generator: torch.nn.Identity())
    with pytest.raises(
        plugins.PluginError, match=r"task.family='mine' built an object of class str; it must be a core.tasks"
    ):
        build_task(tiny.with_changes({"task.family": "mine", "task.transform": "copy"}).task)
    with pytest.raises(
        plugins.PluginError,
        match=r"model.attention_block='none' built an object of class Identity; it must be a core.models.attention.Mul",
    ):
        lab.train(tiny, changes={"model.attention_block": "none"})
    plugins.block("norm", "none")(lambda config, generator: torch.zeros_like)
    with pytest.raises(plugins.PluginError, match=r"built an object of class .*; it must be a torch.nn.Module$"):
        lab.train(tiny, changes={"model.norm_block": "none"})


class Fused(MultiHeadAttention):
    def attend(self, query, keys_values, mask, bias=None):
        return torch.nn.functional.scaled_dot_product_attention(query, *keys_values, attn_mask=mask)


class WithoutHeads(MultiHeadAttention):
    def forward(self, x, keys_values, mask=None, positions=NO_POSITIONS):
        z = self.attend(self._split_heads(self.w_q(x)), keys_values, self.hook_mask(mask))
        return self.hook_out(self.w_o(z.transpose(1, 2).flatten(2)))


class WithoutMask(MultiHeadAttention):
    def forward(self, x, keys_values, mask=None, positions=NO_POSITIONS):
        z = self.hook_z(self.attend(self._split_heads(self.w_q(x)), keys_values, mask))
        return self.hook_out(self.w_o(z.transpose(1, 2).flatten(2)))


class Plain(FeedForward):
    def forward(self, x):
        return self.narrow(torch.relu(self.hook_post(self.widen(x))))


@pytest.mark.parametrize(
    ("kind", "block", "point"),
    [
        ("attention", Fused, "hook_pattern"),
        ("attention", WithoutHeads, "hook_z"),
        ("attention", WithoutMask, "hook_mask"),
        ("feed_forward", Plain, "hook_out"),
    ],
)
@pytest.mark.parametrize("family", ["transformer", "decoder-only"])
def test_a_block_that_forgets_a_hook_point_is_refused(tiny, root, kind, block, point, family):
    def build(config, generator):
        sizes = (config.d_model, config.num_heads, config.dropout) if kind == "attention" else (config,)
        return block(*sizes, generator)

    plugins.block(kind, "mine")(build)
    with pytest.raises(InputError, match=f"^model.{kind}_block='mine' does not call {point}, as its base class does"):
        lab.train(tiny, changes={f"model.{kind}_block": "mine", "model.family": family}, root=root)
    assert not list(root.glob("*"))


@pytest.mark.parametrize(
    ("symbols", "transform", "message"),
    [
        (
            "aeiou",
            "rotate",
            r"transform='rotate' is not one of reverse, copy, sort, deduplicate; a task with",
        ),
        ("aeiou", sorted, r"transform=<built-in function sorted> is not one of"),
        ("aeio", "copy", r"task.family='mine' draws from 4 symbols, and its settings have num_symbols=5; they must be"),
        ("", "copy", r"draws from 0 symbols, and its settings have num_symbols=5"),
    ],
)
def test_a_sequence_task_that_its_settings_do_not_describe_is_refused(tiny, root, symbols, transform, message):
    class Mine(SequencesConfig):
        num_symbols: ClassVar[int] = 5
        family: Literal["mine"] = "mine"
        transform: Literal["mine"] = "mine"

    @plugins.task(Mine)
    def build(config):
        return SequenceTask(Vocab(symbols), transform=transform, min_length=3, max_length=5, candidates=["a e i"])

    with pytest.raises(LabError, match=message):
        lab.train(tiny, changes={"task.family": "mine", "task.transform": "mine"}, root=root)
    assert not list(root.glob("*"))


def test_a_cell_of_a_notebook_may_run_twice_and_the_second_counts():
    for value in (1, 2):

        def measure(outputs, references, value=value):
            return value

        measure.__module__ = "__main__"
        plugins.metric("mine")(measure)
    assert METRICS["mine"]([], []) == 2
    with pytest.raises(plugins.PluginError, match="metric 'mine' exists already"):
        plugins.metric("mine")(lambda outputs, references: 3)


def test_a_plugin_imports_files_beside_it_and_loads_once(tmp_path):
    (tmp_path / "beside_a_plugin.py").write_text("value = 0.25")
    file = tmp_path / "mine.py"
    file.write_text(
        "from core import plugins\nimport beside_a_plugin\n"
        "plugins.metric('mine')(lambda outputs, references: beside_a_plugin.value)\n"
    )
    plugins.load(file)
    plugins.load(str(file))
    assert METRICS["mine"]([], []) == 0.25


def write_plugin(file: Path, source: str) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"from core import plugins\n{source}\n")
    return file


MEASURE = "import helper_of_plugins as util\nplugins.metric({!r})(lambda outputs, references: util.value)"


def test_plugins_of_two_folders_import_their_own_files(tmp_path):
    path = [*sys.path]
    for number, name in enumerate(("one", "two")):
        file = write_plugin(tmp_path / name / f"{name}.py", MEASURE.format(name))
        file.with_name("helper_of_plugins.py").write_text(f"value = {number}")
        plugins.load(file)
    assert [METRICS[name]([], []) for name in ("one", "two")] == [0, 1]
    assert sys.path == path
    assert "helper_of_plugins" not in sys.modules


def test_other_modules_that_a_plugin_imports_stay(tmp_path, monkeypatch):
    packages = tmp_path / "venv"  # below the plugin's folder
    write_plugin(packages / "installed_for_plugins.py", "value = 1")
    monkeypatch.syspath_prepend(str(packages))
    plugins.load(write_plugin(tmp_path / "mine.py", "import installed_for_plugins"))
    assert sys.modules.pop("installed_for_plugins").value == 1
    assert any(getattr(each, "__file__", None) == str(tmp_path / "mine.py") for each in [*sys.modules.values()])


def test_a_second_plugin_of_the_same_file_name_is_refused(tmp_path):
    plugins.load(write_plugin(tmp_path / "a/mine.py", ""))
    with pytest.raises(plugins.PluginError, match=r"b/mine.py': another plugin named 'mine.py' is loaded already"):
        plugins.load(write_plugin(tmp_path / "b/mine.py", "value = 1"))


def test_a_copy_of_a_plugin_is_the_same_plugin_unless_it_imports_others(tmp_path):
    text = "plugins.metric('counted')(len)"
    plugins.load(write_plugin(tmp_path / "a/mine.py", text))
    before = plugins.snapshot()
    plugins.load(write_plugin(tmp_path / "b/mine.py", text))
    assert plugins.snapshot() == before
    for folder, value in (("a", 1), ("b", 2)):  # whose helpers may differ
        write_plugin(tmp_path / folder / "helper_of_plugins.py", f"value = {value}")
        write_plugin(tmp_path / folder / "other.py", "import helper_of_plugins")
    plugins.load(tmp_path / "a/other.py")
    with pytest.raises(plugins.PluginError, match="another plugin named"):
        plugins.load(tmp_path / "b/other.py")


@pytest.mark.parametrize(
    ("fault", "raised"),
    [("1 / 0", plugins.PluginError), ("raise KeyboardInterrupt", KeyboardInterrupt), ("raise SystemExit", SystemExit)],
)
def test_a_plugin_that_failed_can_be_mended_and_loaded(tmp_path, fault, raised):
    write_plugin(tmp_path / "helper_of_plugins.py", "plugins.metric('helped')(print)")
    file = write_plugin(tmp_path / "mine.py", f"import helper_of_plugins\n{fault}")
    before, modules = plugins.snapshot(), {*sys.modules}
    with pytest.raises(raised):
        plugins.load(file)
    assert plugins.snapshot() == before
    assert {*sys.modules} == modules
    plugins.load(write_plugin(file, "import helper_of_plugins"))
    assert list(METRICS) == ["helped"]


def test_a_cell_may_add_its_preset_twice_and_no_other_replaces_it(tiny):
    cell = "plugins.preset(preset)"
    for steps in (4, 8):
        added = tiny.model_copy(update={"name": "mine"}).with_changes({"training.steps": steps})
        exec(cell, {"__name__": "__main__", "plugins": plugins, "preset": added})  # noqa: S102 - as a notebook does
        assert load_preset("mine") == added
    with pytest.raises(plugins.PluginError, match="preset 'mine' exists already: it is registered by"):
        plugins.preset(added.with_changes({"training.steps": 9}))
    with pytest.raises(plugins.PluginError, match="preset 'tiny' exists already: it is built in"):
        exec(cell, {"__name__": "__main__", "plugins": plugins, "preset": tiny})  # noqa: S102


@pytest.mark.parametrize("name", ["learning_rate", "gradient_norm"])
def test_a_metric_has_no_name_of_a_column_of_the_history(name):
    with pytest.raises(plugins.PluginError, match=f"metric '{name}' exists already: it is built in"):
        plugins.metric(name)(print)


@pytest.mark.parametrize("changes", [{}, {"model.norm": "pre"}], ids=["post", "pre"])
@pytest.mark.parametrize("family", ["transformer", "decoder_only", "encoder_only"])
def test_norm_blocks_get_the_generator_also_if_they_are_empty(tiny, family, changes):
    generator, seen = torch.Generator(), []

    @plugins.block("norm", "none")
    def empty(config, generator):
        seen.append(generator)
        return torch.nn.Sequential()  # is false

    from core.models import build_model

    sizes = {} if family == "transformer" else {"model.family": family.replace("_", "-")}
    preset = tiny.with_changes({"model.norm_block": "none"} | sizes | changes)
    model = build_model(preset.model, build_task(preset.task), generator)
    assert seen
    assert {id(each) for each in seen} == {id(generator)}
    norms = [each for name, each in model.named_modules() if "norm" in name.split(".")[-1]]
    assert norms
    assert not any(isinstance(each, torch.nn.LayerNorm) for each in norms)


def test_an_abbreviated_option_is_refused_instead_of_ignored(capsys):
    with pytest.raises(SystemExit):
        main(["--plug", str(EXAMPLE), "presets"])
    assert "--plug" in capsys.readouterr().err
    assert not METRICS


def train_stopped(tiny, root, plugin: Path) -> RunFolder:
    """Train with a plugin, and stop before the end."""
    plugins.load(plugin)
    lab.train(tiny, root=root, name="mine")
    folder = RunFolder(root, "mine")
    folder.write_info(folder.read_info().model_copy(update={"status": "stopped", "step": 4}))
    assert changed_plugins(folder.plugins()) == ""
    check_resumable(folder)
    forget()
    return folder


def train_and_change(tiny, root, file: Path) -> RunFolder:
    """Train with a plugin, stop, and load it again in another version."""
    folder = train_stopped(tiny, root, write_plugin(file, "plugins.metric('mine')(lambda outputs, references: 0.0)"))
    plugins.load(write_plugin(file, "plugins.metric('mine')(lambda outputs, references: 1.0)"))
    return folder


def test_a_plugin_that_has_changed_is_named_on_loading_and_refused_on_resuming(
    core, tiny, root, tmp_path, caplog, monkeypatch
):
    file = tmp_path / "mine.py"
    folder = train_and_change(tiny, root, file)
    old = folder.read_info().provenance[0].plugins[0].sha256
    new = hashlib.sha256(file.read_bytes()).hexdigest()
    changed = f"it was trained with another version of --plugin mine.py (SHA-256 {old[:12]}…, now {new[:12]}…)"
    lab.load("mine", root=root)
    assert f"run='mine': {changed}" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr("core.runs.plugin_versions.PLUGIN_FILES", {})
        with pytest.raises(RunError, match=r"cannot be resumed: it was trained with --plugin mine.py .*; load it with"):
            check_resumable(folder)
    code, _, errors = core("resume", "--run", "mine")
    assert code == 2
    assert f"run='mine' cannot be resumed: {changed}; load the earlier file, or train a new run" in errors


def sha256_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_file_that_a_plugin_imports_is_recorded_and_named_when_it_has_changed(tiny, root, tmp_path):
    file = write_plugin(tmp_path / "mine.py", f"import json, captum\n{MEASURE.format('mine')}")
    package, part = tmp_path / "helper_of_plugins/__init__.py", tmp_path / "helper_of_plugins/part.py"
    write_plugin(package, "from helper_of_plugins.part import value")
    write_plugin(part, "value = 0.0")
    hashes = {"helper_of_plugins": sha256_of(package), "helper_of_plugins.part": sha256_of(part)}
    folder = train_stopped(tiny, root, file)
    (recorded,) = folder.read_info().provenance[0].plugins
    assert {each.name: each.sha256 for each in recorded.imports} == hashes  # neither json nor captum
    assert f"its module helper_of_plugins.part, SHA-256 {sha256_of(part)}" in model_card(
        load_run(folder.path), folder.read_info(), title="mine"
    )
    new = sha256_of(write_plugin(part, "value = 10.0"))  # of another size: Python keeps what it has compiled
    plugins.load(file)
    assert METRICS["mine"]([], []) == 10
    changed = "it was trained with another version of --plugin mine.py (its module helper_of_plugins.part: SHA-256 "
    changed += f"{hashes['helper_of_plugins.part'][:12]}…, now {new[:12]}…)"
    assert changed_plugins(folder.plugins()) == changed
    with pytest.raises(RunError, match="cannot be resumed: it was trained with another version"):
        check_resumable(folder)


def test_of_many_imported_files_the_last_ones_have_a_joint_hash():
    loaded = LoadedPlugin(path="/a.py", sha256="a" * 64, imports={f"m{i:03}": f"{i:064}" for i in range(100)})
    changed = loaded.model_copy(update={"imports": loaded.imports | {"m099": "f" * 64}})
    one, other = (recorded_plugin("a.py", each).imports for each in (loaded, changed))
    assert len(one) == len(other) == 32
    assert one[:-1] == other[:-1]
    assert one[-1] != other[-1]


def test_a_plugin_whose_name_is_not_ascii_is_recognized(tiny, root, tmp_path):
    folder = train_and_change(tiny, root, tmp_path / "größe.py")
    assert folder.read_info().provenance[0].plugins[0].name == "gr e.py"
    assert changed_plugins(folder.plugins()).startswith("it was trained with another version of --plugin gr e.py")
    assert missing_plugins(folder.plugins()) == ""


def test_a_public_page_refuses_plugins(tmp_path):
    with pytest.raises(InputError, match=r"--plugin=.* cannot be combined with --public"):
        app.load_plugins([str(EXAMPLE)], public=True)
    assert not METRICS
    app.load_plugins([str(EXAMPLE)], public=False)
    assert list(METRICS) == ["first_letter"]


def test_training_takes_sections_as_a_mapping_or_as_yaml(tiny, tmp_path):
    document = tiny.model_dump()
    del document["name"]
    assert lab.train(document, root=tmp_path, name="a").preset == tiny.model_copy(update={"name": "notebook"})
    assert lab.train(preset_to_yaml(tiny), root=tmp_path, name="b").preset == tiny
    with pytest.raises(ConfigError, match="a preset must be a mapping"):
        lab.train("- 1\n- 2", root=tmp_path)
