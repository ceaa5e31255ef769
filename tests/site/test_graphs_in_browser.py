"""What the graphs compute in a browser is what PyTorch computes: losses, attention, answers and lessons' figures."""

import base64

import numpy as np
import pytest
import torch

from core.config import load_preset
from core.generation import generate
from core.models import forward_with_attention
from core.models.seq2seq import BLOCKS
from core.runs import DEFAULT_ROOT, Run, RunFolder
from core.tasks import fixed_pairs, unpadded_batches
from core.teaching.attention_lessons import attention_lessons
from core.teaching.bugs import new_state
from core.text.vocab import BOS_ID, EOS_ID, until_eos
from core.training.loop import StepEvent, train
from tests.site.conftest import COMPARED
from ui.components.lesson import live_figures

pytestmark = pytest.mark.slow
UPDATES = 25
INPUTS = 1_000
FIGURES = {
    "vectors": {},
    "scores": {},
    "decode": {},
    "orders": {"other": ""},
    "causality": {"masked": False},
    "padding": {"masked": False, "num_pad": 3},
    "ablation": {"ablate": "cross.2.2"},
}


def losses_of_the_loop(name, *, relative_change=0.0):
    """The first losses in PyTorch, where every weight is first changed by about this share of itself."""
    state, generator = new_state(load_preset(name)), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in state.model.parameters():
            weights.mul_(1 + relative_change * torch.randn(weights.shape, generator=generator))
    steps = (event for event in train(state) if isinstance(event, StepEvent))
    return np.array([event.loss for event, _ in zip(steps, range(UPDATES), strict=False)])


@pytest.mark.parametrize("name", COMPARED)
def test_first_losses_are_those_of_the_loop(page, name):
    found = page.evaluate(
        """async ([name, updates]) => {
          const { openLab } = await import("/site/model.js");
          const { Training } = await import("/site/training.js");
          const training = await Training.begin(await openLab(name), { seed: 0 });
          const losses = [];
          for (let at = 0; at < updates; at += 1) losses.push((await training.next()).loss);
          return losses;
        }""",
        [name, UPDATES],
    )
    expected = losses_of_the_loop(name)
    rounded = np.abs(losses_of_the_loop(name, relative_change=1e-7) - expected)
    print(f"{name}: {np.abs(found - expected).max():.1e} from PyTorch's, {rounded.max():.1e} with weights rounded")
    np.testing.assert_array_less(np.abs(found - expected), np.maximum(1e-5, 4 * np.maximum.accumulate(rounded)))


def test_answers_and_attention_of_a_thousand_inputs(page):
    trained = Run(RunFolder(DEFAULT_ROOT, "digits-reversal-shipped")).trained()
    model, pairs = trained.model, fixed_pairs(trained.task, INPUTS, split="test")
    furthest = 0.0
    for _, batch in unpadded_batches(pairs):
        found = page.evaluate(READ, batch.src.tolist())
        with torch.no_grad():
            answers = [[*until_eos(row), EOS_ID] for row in generate(model, batch.src, max_steps=64).tokens.tolist()]
        assert found["tokens"] == answers
        tgt_in = torch.tensor([[BOS_ID, *row[:-1]] for row in answers])
        with torch.no_grad():
            _, maps = forward_with_attention(model, batch.src, tgt_in)
        for block in BLOCKS:
            raw = np.frombuffer(base64.b64decode(found["maps"][block]), dtype="<f4")
            expected = getattr(maps, block).transpose(0, 1).numpy()  # (B, L, H, Tq, Tk)
            furthest = max(furthest, float(np.abs(raw.reshape(expected.shape) - expected).max()))
    assert furthest < 1e-5


READ = """async (rows) => {
  const { openLab, Model, weightsOf } = await import("/site/model.js");
  const { readWeights } = await import("/site/weights.js");
  const lab = await openLab("digits-reversal-shipped");
  const model = new Model(lab, weightsOf(lab.facts, await readWeights(lab.facts)));
  const tokens = (await model.greedy(rows, 64)).map((answer) => answer.tokens);
  const maps = await model.maps(rows, tokens);
  const packed = {};
  for (const block of Object.keys(maps[0])) {
    const bytes = new Uint8Array(maps.reduce((sum, each) => sum + each[block].data.byteLength, 0));
    let at = 0;
    for (const each of maps) {
      bytes.set(new Uint8Array(each[block].data.buffer), at);
      at += each[block].data.byteLength;
    }
    packed[block] = await new Promise((resolve) => {
      const reader = new FileReader();
      reader.onload = () => resolve(reader.result.split(",")[1]);
      reader.readAsDataURL(new Blob([bytes]));
    });
  }
  return { tokens, maps: packed };
}"""


@pytest.mark.parametrize("figure", FIGURES)
def test_figures_of_the_lessons_are_those_of_the_program(page, figure):
    lesson = attention_lessons()[0].name
    trained = Run(RunFolder(DEFAULT_ROOT, "digits-reversal-shipped")).trained()
    kinds = {"orders": live_figures.OrdersRequest, "causality": live_figures.MaskRequest}
    kinds |= {"padding": live_figures.PaddingRequest, "ablation": live_figures.AblationRequest}
    request = {"lesson": lesson, "input": "4 8 4 9 1", **FIGURES[figure]}
    asked = kinds.get(figure, live_figures.FigureRequest)(**request)
    expected = getattr(live_figures, figure)(trained.model, trained.task, asked)
    name = "lesson_decode" if figure == "decode" else figure
    found = page.evaluate(
        """async ([name, request]) => {
          const { lessonFunctions } = await import("/site/lessons.js");
          const { openRuns } = await import("/site/runs.js");
          await openRuns();
          const { functions } = await import("/site/functions.js");
          return lessonFunctions(functions.measure)[name](request);
        }""",
        [name, request],
    )
    assert_alike(found, expected, figure)


def assert_alike(found, expected, where):
    """Compare two values; numbers up to 2e-4, which is the rounding of both."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            assert_alike(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_alike(one, other, f"{where}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=2e-4 if abs(expected) < 2 else 2e-3), where
    else:
        assert found == expected, where
