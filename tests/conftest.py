"""What every test may ask for: a preset that trains in a blink, a folder for runs, and repeatable numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from core.config import Preset, load_preset
from core.models.heads import NO_INTERVENTIONS, Interventions
from core.models.seq2seq import DecoderOutput, Memory, Seq2Seq
from core.runs import RunFolder
from core.runs.recorder import train_recorded
from core.server import Runs
from core.server.limits import Limits
from core.teaching.bugs import new_state
from core.text.vocab import PAD_ID
from core.training.history import History

settings.register_profile("lab", deadline=None, derandomize=True, max_examples=50, database=None)
settings.load_profile("lab")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Share the whole suite among the cores; run a part of it, or what is to print (``-s``), in this process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return None if whole and config.option.capture != "no" else 0  # None: as many as there are cores


SMALL = {
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.max_seq_len": 16,
    "training.steps": 8,
    "training.batch_size": 8,
    "training.learning_rate": 0.01,
    "training.warmup_steps": 2,
    "training.evaluate_every": 4,
    "training.validation_sequences": 16,
}


@pytest.fixture(autouse=True)
def repeatable() -> Iterator[None]:
    """Fix PyTorch's global generator and its thread count, so that no test depends on another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny() -> Preset:
    """The tiny preset, made smaller still: 8 steps of 8 sequences, evaluated at 0, 4 and 8."""
    return load_preset("tiny").with_changes(SMALL)


@pytest.fixture(scope="session")
def tiny_gru(tiny: Preset) -> Preset:
    """The same with a GRU in place of the Transformer, with dropout."""
    sizes = {"model.d_embedding": 8, "model.d_hidden": 12, "model.num_layers": 2, "model.dropout": 0.1}
    return tiny.with_changes({"model.family": "gru"} | sizes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for runs that does not exist yet."""
    return tmp_path / "checkpoints"


@dataclass(frozen=True)
class Written:
    """How many tokens a scripted model has written so far."""

    past: int

    def rows(self, index: torch.Tensor) -> "Written":
        return self

    reordered = rows


class ScriptedModel(Seq2Seq):
    """Writes what ``answers`` says for each source, whatever it reads; for tests of what surrounds a model.

    ``answers`` maps src (B, S) to the tokens it is to produce, (B, T).
    """

    def __init__(
        self, answers: Callable[[torch.Tensor], torch.Tensor], max_seq_len: int = 64, vocab_size: int = 13
    ) -> None:
        super().__init__()
        self.answers, self.max_seq_len, self.vocab_size = answers, max_seq_len, vocab_size

    def encode(
        self, src: torch.Tensor, *, need_weights: bool = False, interventions: Interventions = NO_INTERVENTIONS
    ) -> Memory:
        return Memory(src, (src != PAD_ID)[:, None, None, :])

    def decode(
        self, tgt_in: torch.Tensor, memory: Memory, cache: Written | None = None, *, need_weights: bool = False
    ) -> DecoderOutput:
        past = cache.past if cache else 0
        end = past + tgt_in.shape[1]
        answers = self.answers(memory.states)
        answers = torch.nn.functional.pad(answers, (0, max(0, end - answers.shape[1])))[:, past:end]
        return DecoderOutput(torch.nn.functional.one_hot(answers, self.vocab_size) * 50.0, Written(end))


@pytest.fixture(scope="session")
def scripted() -> type[ScriptedModel]:
    """A model that answers as it is told to."""
    return ScriptedModel


@pytest.fixture
def make(root) -> Iterator[Callable[..., Runs]]:
    """Make ``Runs`` with some limits, which are closed at the end."""
    made: list[Runs] = []

    def new(**limits) -> Runs:
        made.append(Runs(root, limits=Limits(**limits)))
        return made[-1]

    yield new
    for runs in made:
        runs.close()


@pytest.fixture
def runs(make) -> Runs:
    return make()


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny) -> Path:
    """A folder with one finished run, ``done``."""
    root = tmp_path_factory.mktemp("trained")
    folder = RunFolder.create(root, tiny, name="done")
    train_recorded(folder, new_state(tiny), History(8), should_stop=lambda: False, on_event=lambda event: None)
    return root
