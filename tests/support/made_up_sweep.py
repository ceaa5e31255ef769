"""A sweep on disk with made-up figures, of as many trials as a test needs."""

from pathlib import Path

from core.config import Preset, preset_to_yaml
from core.runs import RunInfo, ValidationFigures
from core.runs.sweeps.folder import SweepFile, SweepFolder, TrialRecord
from core.runs.sweeps.sweep import parse_sweep
from core.runs.sweeps.trials import grid_trials

RATES = [round(0.0001 * 1.2**i, 6) for i in range(25)]


def made_up_sweep(root: Path, base: Preset, *, trials: int = 1_000, seeds: int = 1, name: str = "large") -> SweepFolder:
    """Write a finished sweep over learning rate, width and dropout; the loss depends on the first two.

    Args:
        trials: number of trials, a multiple of 25.
    """
    widths = [8 * (i + 1) for i in range(min(8, trials // 25))]
    dropouts = [i / 100 for i in range(trials // 25 // len(widths))]
    axes = {"training.learning_rate": RATES, "model.d_ff": widths, "model.dropout": dropouts}
    document = {"name": name, "preset": "tiny", "axes": {key: values for key, values in axes.items() if values}}
    sweep = parse_sweep(document | {"seeds": seeds})
    folder = SweepFolder(root, name)
    folder.prepare(SweepFile(sweep=sweep, base=base), extend=False)
    (folder.path / "trials").mkdir(exist_ok=True)
    for trial in grid_trials(sweep, base):
        record = TrialRecord(settings=trial.settings)
        (folder.path / "trials" / f"{trial.name}.json").write_text(record.model_dump_json())  # atomic ones take seconds
        rate, width = float(trial.settings["training.learning_rate"]), float(trial.settings["model.d_ff"])
        for seed in range(seeds):
            loss = abs(rate - 0.002) * 100 + 1 / width + 0.001 * seed
            figures = ValidationFigures(validation_loss=loss, token_accuracy=0.5, exact_match=0.25)
            info = RunInfo(status="finished", validation=figures, seconds=2.0, parameters=1234)
            run = root / trial.run(seed)
            run.mkdir(parents=True)
            (run / "run.json").write_text(info.model_dump_json())
            (run / "preset.yaml").write_text(preset_to_yaml(trial.run_preset(seed)), encoding="utf-8")
    return folder
