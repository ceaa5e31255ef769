"""``diagnose`` of language models: correct ones pass, in several styles, and each bug is named where it is seen."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from core import lab
from core.storage.errors import InputError
from core.teaching.doctor.black_box import SpecialIds
from core.teaching.doctor.data_checks import check_target_shift

PAD, BOS, EOS, NUM_TOKENS = 0, 1, 2, 20


class Model(nn.Module):
    """A small GPT; ``style`` says how its attention is written, ``bug`` what is wrong with it."""

    def __init__(self, style: str = "softmax", bug: str = "") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.positions = nn.Embedding(NUM_TOKENS, 32), nn.Embedding(64, 32)
        self.style, self.bug = style, bug
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False) if style == "torch" else None
        self.qkv, self.out, self.norm = nn.Linear(32, 96), nn.Linear(32, 32), nn.LayerNorm(32)
        self.logits = nn.Linear(32, NUM_TOKENS)
        if self.layers is not None:
            del self.qkv, self.out, self.norm

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits (B, T, V)."""
        length = ids.shape[1]
        states = self.tokens(ids) + self.positions(torch.arange(length))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        if self.layers is not None:
            return self.logits(self.layers(states, mask=later))
        split = (len(ids), length, 4, 8)
        q, k, v = (each.view(split).transpose(1, 2) for each in self.qkv(self.norm(states)).chunk(3, dim=-1))
        if self.style == "fused":
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.bug != "no mask")
        else:
            scores = q @ k.transpose(-2, -1) / (1 if self.bug == "no scale" else 8**0.5)
            hidden = later.triu(2) if self.bug == "one ahead" else later
            scores = scores if self.bug == "no mask" else scores.masked_fill(hidden, -1e9)
            mixed = scores.softmax(dim=-2 if self.bug == "wrong axis" else -1) @ v
        return self.logits(states + self.out(mixed.transpose(1, 2).reshape(states.shape)))


@pytest.fixture
def ids() -> torch.Tensor:
    """(8, 16) int64: chunks of text, and two rows that end earlier."""
    found = torch.randint(3, NUM_TOKENS, (8, 16), generator=torch.Generator().manual_seed(0))
    found[2:4, 11], found[2:4, 12:] = EOS, PAD
    return found


def shifted(model: Callable, ids: torch.Tensor, **options: int) -> torch.Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), **options)


def right(model: Callable, ids: torch.Tensor) -> torch.Tensor:
    return shifted(model, ids, ignore_index=PAD)


def as_transformers(model: Callable, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)


def greedy(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    def decode(prompts: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            prompts = torch.cat([prompts, model(prompts)[:, -1:].argmax(dim=-1)], dim=1)
        return prompts

    return decode


@pytest.mark.parametrize("style", ["softmax", "fused", "torch"])
@pytest.mark.parametrize("loss", [right, as_transformers])
def test_a_correct_model_passes(ids: torch.Tensor, style: str, loss: Callable):
    model = Model(style)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    found = lab.diagnose(model, None, ids, pad=PAD, eos=EOS, loss=loss, optimizer=optimizer, decode=greedy(model))
    assert found.ok, found
    passed = {each.check for each in found.findings if each.light == "green"}
    expected = "causal leak,prompt order,target shift,EOS in the targets,PAD in the loss,greedy decoding,attention rows"
    assert set(expected.split(",")) <= passed
    assert not any("source" in each.check for each in found.findings)


@pytest.mark.parametrize(
    ("bug", "check", "words"),
    [
        ("no mask", "causal leak", "the causal mask is missing"),
        ("one ahead", "causal leak", "at most 1 ahead: the causal mask is shifted"),
        ("wrong axis", "attention rows", ""),
        ("no scale", "score scaling", ""),
    ],
)
def test_a_bug_is_named(ids: torch.Tensor, bug: str, check: str, words: str):
    found = lab.diagnose(Model(bug=bug), None, ids, pad=PAD, eos=EOS, loss=right)
    failed = {each.check: each.sentence for each in found.failed}
    assert words in failed[check], found


class Conv1D(nn.Module):
    """The layer of GPT-2 in transformers."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(layer.weight.detach().mT.clone()), layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x.flatten(0, 1), self.weight).view(*x.shape[:2], -1)


@pytest.mark.parametrize(("bug", "light"), [("", "green"), ("no scale", "red")])
def test_scores_are_traced_to_the_layers_of_gpt2_and_gpt_neo_does_not_divide_them(ids: torch.Tensor, bug, light):
    model = Model(bug=bug)
    model.qkv = Conv1D(model.qkv)
    for each, expected in (("gpt2", light), ("gpt_neo", "gray")):
        model.config = SimpleNamespace(model_type=each)
        found = lab.diagnose(model, None, ids, pad=PAD, eos=EOS)
        assert {each.check: each.light for each in found.findings}["score scaling"] == expected


def test_sequences_that_do_not_begin_with_bos_pass(ids: torch.Tensor):
    packed, left = ids.clone(), ids.clone()
    packed[:4, 0] = BOS
    left[:, 0], left[:4, :3], left[:4, 3] = BOS, PAD, BOS
    for given in (packed, left):
        found = lab.diagnose(Model(), None, given, pad=PAD, bos=BOS, eos=EOS, loss=right)
        assert {each.check: each.light for each in found.findings}["target shift"] == "green"


def test_the_first_token_after_pad_is_bos():
    left, special = torch.tensor([[BOS, 5, 6, EOS], [PAD, BOS, 5, EOS]]), SpecialIds(PAD, PAD, BOS, EOS)
    assert check_target_shift(left[:, :-1], left[:, 1:], special).light == "green"
    assert check_target_shift(left[:, 1:-1], left[:, 2:], special).light == "red"


def test_bugs_of_data_loss_and_decoding_are_named(ids: torch.Tensor):
    def unshifted(model: Callable, ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten(), ignore_index=PAD)

    def off_by_one(prompts: torch.Tensor) -> torch.Tensor:
        longer = torch.cat([prompts[:, :1], prompts], dim=1)
        return greedy(model)(longer)[:, longer.shape[1] :]

    def two_ahead(model: Callable, ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(ids)[:, :-2].flatten(0, 1), ids[:, 2:].flatten(), ignore_index=PAD)

    model = Model()
    endless = ids.where(ids != EOS, 5)
    cases = (
        ({"loss": unshifted}, ids, "target shift"),
        ({"loss": shifted}, ids, "PAD in the loss"),
        ({"loss": right}, endless, "EOS in the targets"),
        ({"decode": off_by_one}, ids, "greedy decoding"),
        ({"loss": two_ahead}, ids, "target shift"),  # not "EOS does not count"
    )
    for options, given, check in cases:
        found = lab.diagnose(model, None, given, pad=PAD, eos=EOS, **options)
        assert [each.check for each in found.failed] == [check], found


@pytest.mark.parametrize("hides", [True, False])
def test_a_masked_language_model_need_not_be_causal(ids: torch.Tensor, hides: bool):
    is_hidden = (torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.3) & (ids > EOS)

    def loss(model: Callable, given: torch.Tensor) -> torch.Tensor:
        read = given.where(~is_hidden[: len(given)], 3) if hides else given
        labels = given.where(is_hidden[: len(given)], -100)
        return F.cross_entropy(model(read).flatten(0, 1), labels.flatten())

    found = lab.diagnose(Model(bug="no mask"), None, ids, pad=PAD, eos=EOS, loss=loss)
    not_checked = {each.check for each in found.unchecked if "a masked language model" in each.sentence}
    causal = {"causal leak", "target shift", "tokens in the loss", "PAD after the target"}
    assert (not_checked, found.bugs) == ((causal, []) if hides else (set(), ["targets-not-shifted", "no-causal-mask"]))
    assert found.ok == hides
    (leak,) = [each for each in found.findings if each.check == "causal leak"]
    assert "pass its loss=" not in leak.sentence
    alone = lab.diagnose(Model(bug="no mask"), None, ids, pad=PAD, eos=EOS)
    (leak,) = [each for each in alone.failed if each.check == "causal leak"]
    assert leak.sentence.endswith("reads both sides: pass its loss=, and this is not checked.")


class TinyForMaskedLM(Model):
    """Named and called as those of Hugging Face: the loss is computed inside, from labels."""

    def __init__(self, *, is_decoder: bool = False) -> None:
        super().__init__(bug="no mask")
        self.config = SimpleNamespace(is_decoder=is_decoder)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = super().forward(input_ids)
        loss = logits.sum() if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_masked_language_model_of_hugging_face_is_known(ids: torch.Tensor, is_decoder: bool):
    """By its labels whatever its name, and by its name without a loss."""
    is_hidden = (torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.15) & (ids > EOS)

    def loss(model: Callable, given: torch.Tensor) -> torch.Tensor:
        hidden = is_hidden[: len(given)]
        return model(input_ids=given.masked_fill(hidden, 3), labels=given.masked_fill(~hidden, -100))["loss"]

    model = TinyForMaskedLM(is_decoder=is_decoder)
    assert lab.diagnose(model, None, ids, pad=PAD, eos=EOS, loss=loss).ok
    assert lab.diagnose(model, None, ids, pad=PAD, eos=EOS).bugs == (["no-causal-mask"] if is_decoder else [])


def test_a_masked_language_model_whose_loss_counts_all_tokens_is_warned_about(ids: torch.Tensor):
    is_hidden = (torch.rand(ids.shape, generator=torch.Generator().manual_seed(0)) < 0.3) & (ids > 3)

    def loss(model: Callable, given: torch.Tensor) -> torch.Tensor:
        read = given.masked_fill(is_hidden[: len(given)], 3)
        return F.cross_entropy(model(read).flatten(0, 1), given.flatten(), ignore_index=PAD)

    found = lab.diagnose(Model(bug="no mask"), None, ids, pad=PAD, eos=EOS, loss=loss)
    assert (found.ok, [each.check for each in found.alarms]) == (True, ["tokens in the loss"]), found
    copied = 1 - is_hidden.sum() / (ids != PAD).sum()
    assert f"{100 * copied:.0f} % of the tokens that count in it are not hidden" in found.alarms[0].sentence


def test_documents_in_one_sequence_need_not_predict_each_other():
    ids = torch.randint(3, NUM_TOKENS, (8, 16), generator=torch.Generator().manual_seed(0))
    ids[:, [4, 9]] = EOS
    for columns, light in (([5, 10], "amber"), ([5, 11], "red")):
        left_out = torch.isin(torch.arange(16), torch.tensor(columns))

        def loss(model: Callable, given: torch.Tensor, left_out: torch.Tensor = left_out) -> torch.Tensor:
            labels = given.masked_fill(left_out, -100)
            return F.cross_entropy(model(given)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

        found = lab.diagnose(Model(), None, ids, eos=EOS, loss=loss)
        (finding,) = (each for each in found.findings if each.check == "tokens in the loss")
        assert (finding.light, "those after EOS" in finding.sentence) == (light, light == "amber")


def test_a_prompt_need_not_count_in_the_loss(ids: torch.Tensor):
    """As in fine-tuning on completions and chats; what is left out elsewhere, or in some rows only, still fails."""
    first = torch.tensor([5, 6, 4, 5, 6, 5, 6, 5])[:, None]
    positions = torch.arange(ids.shape[1])
    cases = (
        (positions < first, "but the first 3 to 5 tokens of each, as of a prompt"),
        (positions < 2, "but the first 1 token of each"),
        ((positions < first) & (first > 5), ""),
        ((positions < first) | (positions == 8), ""),
        ((positions < first) | (first == 4), ""),
        ((positions < first) | ((positions >= 7) & (positions < 9)), "and 8 later turns, as of a chat. Check that"),
        ((positions < first) | (ids == 5), ""),
        ((positions < first) | (positions >= 7), ""),
    )
    for is_left_out, words in cases:

        def loss(model: Callable, given: torch.Tensor, is_left_out: torch.Tensor = is_left_out) -> torch.Tensor:
            labels = given.masked_fill(is_left_out | (given == PAD), -100)
            return F.cross_entropy(model(given)[:, :-1].flatten(0, 1), labels[:, 1:].flatten())

        found = lab.diagnose(Model(), None, ids, pad=PAD, eos=EOS, loss=loss)
        assert [each.check for each in found.failed] == ([] if words else ["tokens in the loss"]), found
        assert words in next(each.sentence for each in found.findings if each.check == "tokens in the loss")


def test_without_special_tokens_what_needs_them_is_gray(ids: torch.Tensor):
    found = lab.diagnose(Model(), None, ids, loss=right)
    reasons = {each.check: each.sentence for each in found.unchecked}
    assert found.ok
    assert "pass pad=0 if it is PAD" in reasons["tokens in the loss"]
    assert "eos= was not passed" in reasons["EOS in the targets"]
    assert "pad= was not passed" in reasons["PAD after the target"]
    with pytest.raises(InputError, match="bos and eos must be passed"):
        lab.diagnose(Model(), ids, ids, pad=PAD)
    with pytest.raises(InputError, match=r"^pad, bos and eos must be passed"):
        lab.diagnose(Model(), ids, ids)
    with pytest.raises(InputError, match="src is a tensor"):
        lab.diagnose(Model(), ids.float(), ids)
    with pytest.raises(InputError, match="tgt is None; of a language model, pass its ids as tgt"):
        lab.diagnose(Model(), ids, None)
    for length, counted in ((1, "1 token"), (3, "3 tokens")):
        with pytest.raises(InputError, match=f"a sequence of {counted}; a language model needs 4 or more"):
            lab.diagnose(Model(), None, ids[:, :length], loss=right)


def test_a_model_that_returns_the_last_logits_only_is_not_examined(ids: torch.Tensor):
    model = Model()
    found = lab.diagnose(lambda read: model(read)[:, -1:], None, ids, model=model)
    assert not found.ok
    assert "logits of shape (8, 1, 20)" in found.findings[0].sentence


def test_gpt2_of_transformers_passes(ids: torch.Tensor):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=NUM_TOKENS, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).eval()

    def loss(call: Callable, read: torch.Tensor) -> torch.Tensor:
        return as_transformers(lambda each: call(each).logits, read)

    found = lab.diagnose(model, None, ids, pad=PAD, eos=EOS, loss=loss)
    assert found.ok, found
