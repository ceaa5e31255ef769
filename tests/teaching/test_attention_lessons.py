"""The lessons on attention: their files, and every number and answer in them, checked against the shipped run."""

import re
from collections.abc import Callable
from math import exp
from typing import get_args
from urllib.parse import parse_qs

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from core.interpret.ablation import exact_match_with
from core.interpret.inspection import Inspection, inspect
from core.interpret.interventions import Interventions
from core.interpret.trained import Trained
from core.models.decoder_only import DecoderOnly
from core.models.transformer import Transformer
from core.runs import DEFAULT_ROOT
from core.runs.run import Runs
from core.storage.errors import InputError, LabError
from core.tasks import fixed_pairs
from core.teaching.attention_lessons import ATTENTION_LESSON_FOLDER, attention_lessons, load_attention_lesson
from core.teaching.attention_lessons.attention_scores import attention_scores
from core.teaching.attention_lessons.lesson import FigureKind, Question
from core.teaching.attention_lessons.removed_parts import (
    MAX_PADDING,
    check_causality,
    decode_padded,
    inspect_without_positions,
)
from core.teaching.attention_lessons.token_vectors import token_vectors
from core.teaching.attention_lessons.whole_text import text_attention
from core.teaching.lessons import lesson_names

RUN = "digits-reversal-shipped"
TRANSLATOR = "translate-en-de-shipped"
REPEATER = "induction-shipped"
NAMES = ["tokens", "queries", "positions", "masks", "heads", "alignment", "induction"]
EXAMPLE = "4 8 2 9"
TABS = {"train", "decode", "attention", "report", "compare", "lessons"}
# Numbers whose truth can be read off a result: decimals and percentages
STATED = re.compile(r"\d+\.\d+|\d+ %")


@pytest.fixture(scope="module")
def loaded() -> Trained:
    return Runs(DEFAULT_ROOT)[RUN].trained()


@pytest.fixture(scope="module")
def model(loaded: Trained) -> Transformer:
    assert isinstance(loaded.model, Transformer)
    return loaded.model


@pytest.fixture(scope="module")
def decoded(loaded: Trained) -> Inspection:
    return inspect(loaded.model, loaded.task, EXAMPLE)


@pytest.fixture(scope="module")
def exact_match(loaded: Trained) -> Callable[[str], float]:
    """Exact match on the same held-out inputs as on the page, without a head or a layer."""
    pairs = fixed_pairs(loaded.task, 500, split="test")

    def measure(name: str) -> float:
        return exact_match_with(
            loaded.model, loaded.task, pairs, Interventions.parse(loaded.model.heads, ablate=[name])
        )

    return measure


# ---- the files


def test_the_seven_lessons_come_in_order_with_three_or_four_questions_each():
    lessons = attention_lessons()
    assert [lesson.name for lesson in lessons] == NAMES
    assert [lesson.number for lesson in lessons] == [1, 2, 3, 4, 5, 6, 7]
    assert [path.name for path in sorted(ATTENTION_LESSON_FOLDER.iterdir())] == [
        f"{lesson.number}-{lesson.name}.yaml" for lesson in lessons
    ]
    assert {len(lesson.questions) for lesson in lessons} <= {3, 4}
    assert not set(NAMES) & set(lesson_names())  # both kinds share the address
    used = {section.figure.kind for lesson in lessons for section in lesson.sections if section.figure}
    assert used == set(get_args(FigureKind))


@pytest.mark.parametrize("name", NAMES)
def test_the_links_of_a_lesson_lead_to_what_exists(name: str):
    lesson = load_attention_lesson(name)
    assert lesson.runs <= {RUN, TRANSLATOR, REPEATER}
    loaded = Runs(DEFAULT_ROOT)[lesson.run].trained()
    links = [link for section in lesson.sections for link in section.links]
    assert links
    for link in links:
        assert {key: [str(value)] for key, value in link.query.items()} == parse_qs(link.href[1:])
        assert link.query["tab"] in TABS
        if link.query["tab"] == "lessons":
            assert link.query["lesson"] in [*NAMES, *lesson_names()]
            continue
        if link.query["run"] == TRANSLATOR:
            assert link.query["tab"] == "decode"
            continue
        assert link.query["run"] == lesson.run
        if "input" not in link.query:
            continue
        symbols = loaded.task.tokenize(str(link.query["input"]))
        if link.query["tab"] == "attention":
            rows, columns = len(symbols) + (2 if link.query["block"] == "encoder" else 1), len(symbols) + 2
            rows = min(rows, len(inspect(loaded.model, loaded.task, str(link.query["input"])).steps))
            assert f"{link.query['block']}.{link.query['layer']}.{link.query['head']}" in map(str, loaded.model.heads)
            assert 1 <= int(link.query.get("row", 1)) <= rows
            assert 1 <= int(link.query.get("column", 1)) <= columns


@pytest.mark.parametrize(
    ("question", "rule"),
    [
        ({}, "either choices or a number"),
        ({"choices": [{"text": "a", "reason": "b"}]}, "exactly one correct"),
        ({"choices": [{"text": "a", "reason": "b", "correct": True}] * 2}, "exactly one correct"),
        (
            {
                "choices": [{"text": "a", "reason": "b", "correct": True}],
                "number": {"value": 1.0, "right": "r", "wrong": "w"},
            },
            "either choices or a number",
        ),
        ({"choices": [{"text": "a", "reason": "", "correct": True}]}, "at least 1 character"),
    ],
)
def test_a_question_has_one_correct_answer_with_reasons(question: dict, rule: str):
    with pytest.raises(ValidationError, match=rule):
        Question.model_validate({"id": "one", "text": "?"} | question)


def test_a_file_that_is_no_lesson_is_named(tmp_path):
    (tmp_path / "1-x.yaml").write_text("name: x\nnumber: 1\n")
    with pytest.raises(LabError, match=r"1-x\.yaml"):
        attention_lessons(tmp_path)


def test_an_unknown_lesson_is_refused():
    with pytest.raises(InputError, match="not one of tokens"):
        load_attention_lesson("../../etc")


# ---- what they say

CLAIMS: dict[str, list[str]] = {name: [] for name in NAMES}


def claim(lesson: str, *quotes: str) -> Callable[[Callable], Callable]:
    """Register quotes from a lesson, which the decorated test checks."""

    def register(check: Callable) -> Callable:
        CLAIMS[lesson] += quotes
        return check

    return register


def words(lesson: str) -> str:
    """All text of a lesson, as it is read."""
    return " ".join(re.sub(r"\s+", " ", text) for text in _texts(load_attention_lesson(lesson).model_dump()))


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in values for text in _texts(each)]


def number(lesson: str, question: str) -> tuple[float, float]:
    """The answer of a question and its tolerance."""
    (answer,) = [each.number for each in load_attention_lesson(lesson).questions if each.id == question]
    assert answer is not None
    return answer.value, answer.tolerance


def shown_head(lesson: str, kind: FigureKind) -> int:
    """Index of the head of layer 2 that a lesson's figure shows first."""
    sections = load_attention_lesson(lesson).sections
    (figure,) = [each.figure for each in sections if each.figure and each.figure.kind == kind]
    assert figure.layer == 2
    return figure.head - 1


@claim(
    "tokens",
    "the vocabulary, has 13 tokens: first three special tokens",
    "a vector of 64 numbers",
    "it reads `4 8 4 9` and writes `9 4 8 4`",
)
def test_the_tokens_and_their_ids(loaded: Trained, model: Transformer):
    tokens = loaded.task.src_vocab.tokens
    assert (len(tokens), model.config.d_model) == (13, 64)
    assert tokens == ("<PAD>", "<BOS>", "<EOS>", *"0123456789")
    assert inspect(model, loaded.task, "4 8 4 9").output == list("9484")
    assert token_vectors(model, loaded.task, "4 8 4 9").ids == [1, 7, 11, 7, 12, 2]
    assert number("tokens", "rows-of-sevens") == (len(set(token_vectors(model, loaded.task, "7 7 7 7").ids)), 0)


@claim(
    "tokens",
    "so their cosine is 1. Different digits have cosines near 0",
    "whose cosine was 1, are still at about 0.9 after the first step, and below 0.5 after the second",
)
def test_the_similarity_of_tokens(loaded: Trained, model: Transformer):
    found = token_vectors(model, loaded.task, "4 8 4 9")
    assert found.similarity("embedding")[1, 3].item() == pytest.approx(1, abs=1e-6)
    assert found.similarity("sum")[1, 3].item() == pytest.approx(0.9, abs=0.05)
    assert found.similarity("encoder")[1, 3] < 0.5
    digits = token_vectors(model, loaded.task, "0 1 2 3 4 5 6 7 8 9").similarity("embedding")[1:-1, 1:-1]
    assert digits.fill_diagonal_(0).abs().max() < 0.35


@claim(
    "queries",
    "in this model d_k is 16",
    "a score that is larger by 1 gets 2.7 times the weight",
    "In step 2 of the example, head 1 of layer 2 puts more than half of its attention on the 2",
    "the largest weight of that row rises above 80 %",
    "It gets more than 90 %, the first one less than 1 %",
)
def test_the_scores_of_a_row(loaded: Trained, model: Transformer):
    found = attention_scores(model, loaded.task, EXAMPLE)
    assert found.d_k == 16
    assert exp(1) == pytest.approx(2.7, abs=0.05)
    row = found.scores["cross"][1, 0, 1]
    assert found.produced[1] == found.source[3] == "2"
    assert row.softmax(-1)[3] > 0.5
    assert (row * 4).softmax(-1)[3] > max(0.8, row.softmax(-1)[3])
    twice = attention_scores(model, loaded.task, "4 2 8 2")
    first, last = (twice.scores["cross"][1, 0, 0].softmax(-1)[at] for at in (2, 4))
    assert twice.produced[0] == twice.source[2] == twice.source[4] == "2"
    assert first < 0.01 < 0.9 < last


@claim("queries", "The sum of 16 such terms does not have 16, but √16 = 4", "With d_k terms it is √d_k")
@pytest.mark.parametrize("d_k", [4, 16, 64])
def test_the_standard_deviation_of_a_dot_product_is_the_root_of_d_k(d_k: int):
    query, key = torch.randn(2, 20_000, d_k, generator=torch.Generator().manual_seed(1))
    assert (query * key).sum(-1).std().item() == pytest.approx(d_k**0.5, rel=0.03)


@claim("queries", "Nearly all weight would go to one key, and the gradient would be close to 0")
def test_extreme_scores_have_small_gradients():
    def gradient(scale: float) -> float:
        scores = (scale * torch.tensor([1.0, 0.0, -1.0])).requires_grad_()
        scores.softmax(-1)[0].backward()
        assert scores.grad is not None
        return scores.grad.abs().max().item()

    assert gradient(16) < 1e-3 < 0.1 < gradient(1)


@claim("positions", "its answers without them are wrong", "else than to 4 8 2 9, and the same for every order")
def test_without_positions_the_order_does_not_matter(loaded: Trained, model: Transformer):
    one, other = (inspect_without_positions(model, loaded.task, text) for text in (EXAMPLE, "9 2 8 4"))
    assert one.output == other.output
    assert one.output not in (one.expected, other.expected)
    assert [step.probability for step in one.steps] == pytest.approx([step.probability for step in other.steps])
    assert inspect(model, loaded.task, "9 2 8 4").output == list("4829")
    twice, again = (inspect_without_positions(model, loaded.task, text).output for text in ("4 8 2 2 9", "2 9 8 2 4"))
    assert twice == again != one.output


@claim("positions", "it holds one number all along, 0.97", "The cosine depends on the distance alone")
def test_the_similarity_of_positions(loaded: Trained, model: Transformer):
    similarity = token_vectors(model, loaded.task, EXAMPLE).similarity("position")
    for distance in range(1, len(similarity)):
        assert similarity.diagonal(distance).std(correction=0) < 1e-6
    assert similarity[0, 1].item() == pytest.approx(0.97, abs=0.005)
    assert similarity[0].argsort(descending=True)[1] == 1


@claim(
    "positions",
    "Step 1 attends mostly to the last digit, step 2 to the one before it",
    "Other heads of this layer may miss it in a step or two",
    "With 7 7 7 7, does this head still",
)
def test_a_head_follows_the_diagonal_with_equal_digits_too(loaded: Trained):
    for text in (EXAMPLE, "7 7 7 7"):
        heads = inspect(loaded.model, loaded.task, text).maps.cross[1, 0, :, :4]
        shown = heads[shown_head("positions", "map")]
        assert shown.argmax(dim=-1).tolist() == [4, 3, 2, 1], text
        assert ((heads.argmax(dim=-1) == torch.tensor([4, 3, 2, 1])).sum(dim=-1) >= 2).all()
        assert heads.mean(dim=0).argmax(dim=-1).tolist() == [4, 3, 2, 1], text


@claim("masks", "Predict which steps move with the mask, and which without it", "All earlier steps move by 0 %")
def test_the_causal_mask_hides_the_future(loaded: Trained, model: Transformer):
    masked, opened = (check_causality(model, loaded.task, EXAMPLE, masked=each) for each in (True, False))
    assert masked.changes[:-1] == [0] * 4
    assert masked.changes[-1] > 0.01
    assert masked.produced == [*"9284", "<EOS>"]
    assert max(opened.changes[:-1]) > 0.01
    assert masked.weights.triu(1).abs().max() == 0
    assert opened.weights[1, shown_head("masks", "causal")].triu(1).max() > 0.1


@claim(
    "masks",
    "you can add as much PAD as you like: the answer stays",
    "the heads spend attention on tokens that mean nothing, and the answer goes wrong",
)
def test_the_mask_hides_pad(loaded: Trained, model: Transformer):
    for num_pad in range(MAX_PADDING + 1):
        masked = decode_padded(model, loaded.task, EXAMPLE, num_pad=num_pad, masked=True)
        assert masked.produced == [*"9284", "<EOS>"]
        assert masked.mass_on_pad == 0
        opened = decode_padded(model, loaded.task, EXAMPLE, num_pad=num_pad, masked=False)
        assert (opened.mass_on_pad > 0.1) == (opened.produced != masked.produced) == (num_pad > 0)
        assert opened.source.count("<PAD>") == num_pad


@claim("masks", "sees only <BOS>, and always has a 1 there")
def test_the_first_row_of_a_causal_map_is_1(decoded: Inspection):
    assert decoded.maps.decoder[:, 0, :, 0, 0].tolist() == [[1.0] * 4] * 2


@claim(
    "heads",
    "This model's vectors have 64 numbers and its layers 4 heads, so each head works with 16 numbers",
    "Some spread their attention evenly, others put most of it on one token",
    "Find one with most of it on `<EOS>`, the end of the input",
)
def test_the_heads_of_the_encoder(decoded: Inspection, model: Transformer):
    config = model.config
    assert (config.d_model, config.num_heads, config.d_k) == (64, 4, 16)
    assert number("heads", "width") == (64 / 8, 0)
    heads = decoded.maps.encoder[:, 0].flatten(end_dim=1)
    assert heads.amax(dim=(-2, -1)).min() < 0.25  # even weights would be 1/6
    assert ((heads[..., -1] > 0.5).float().mean(dim=-1) > 0.5).any()


@claim("heads", "The four heads of layer 2 draw nearly the same map")
def test_the_heads_of_a_layer_draw_nearly_the_same_map(decoded: Inspection):
    maps = F.normalize(decoded.maps.cross[1, 0].flatten(start_dim=1), dim=-1)
    assert (maps @ maps.T).min() > 0.9


@claim("heads", "exact match stays above 90 %; without all four it is 0 %")
@claim(
    "alignment",
    "Exact match falls below 50 %, while without any one head of layer 2",
    "it stays above 90 %",
)
def test_what_a_head_is_worth(exact_match: Callable[[str], float]):
    assert min(exact_match(f"cross.2.{head}") for head in (1, 2, 3, 4)) > 0.9
    assert exact_match("cross.2") < 0.005
    assert exact_match("cross.1.2") < 0.5


@claim(
    "heads", "At step 0, all rows of a map except the first are nearly alike", "the diagonal appears, in all four heads"
)
def test_the_heads_through_training():
    snapshots = Runs(DEFAULT_ROOT)[RUN].replay.snapshots()
    packed = snapshots[0].outputs[0].maps["cross"]
    weights = torch.frombuffer(bytearray(packed.data), dtype=torch.uint8).view(packed.shape)[1] / 255
    assert snapshots[0].outputs[0].tokens != snapshots[-1].outputs[0].tokens
    assert weights[:, 1:].std(dim=1).max() < 0.05
    assert max(snapshots[0].attention_mass[1]) < 0.2
    assert min(snapshots[-1].attention_mass[1]) > 0.5


@claim(
    "alignment",
    "In each head of layer 2 it is more than half",
    "Head 2 of layer 1 has less than a tenth, less than a head that attends evenly to all tokens",
    "Without it the answer to `4 8 2 9` is `9 2 2 8 4`",
)
def test_the_alignment_of_the_heads(decoded: Inspection, loaded: Trained):
    mass = {(score.layer, score.head): score.attention_mass for score in decoded.scores}
    assert min(mass[2, head] for head in (1, 2, 3, 4)) > 0.5
    assert mass[1, 2] < 0.1
    assert mass[1, 2] < decoded.scores[0].uniform_mass
    without = Interventions.parse(loaded.model.heads, ablate=["cross.1.2"])
    assert inspect(loaded.model, loaded.task, EXAMPLE, interventions=without).output == list("92284")


@claim(
    "alignment",
    "one verb, gave",
    "two parts, hat and gegeben, with three words between them",
    "the line from gave to gegeben crosses those of me, this and book",
)
def test_two_words_of_the_translation_read_one_of_the_source():
    lesson = load_attention_lesson("alignment")
    (figure,) = (each.figure for each in lesson.sections if each.figure and each.figure.kind == "reading")
    assert figure.run == lesson.run_of("reading") != lesson.run
    translator = Runs(DEFAULT_ROOT)[figure.run].trained()
    found = inspect(translator.model, translator.task, figure.input)
    assert " ".join(step.produced for step in found.steps) == "▁Tom ▁hat ▁mir ▁dieses ▁Buch ▁gegeben . <EOS>"
    head = found.maps.cross[1, 0, 0]  # the one that the ribbon opens with; see tests/browser/test_learn.py
    read = [found.source_labels[at].strip("▁") for at in head[:6].argmax(dim=-1)]
    assert read == ["Tom", "gave", "me", "this", "book", "gave"]
    places = head[:6].argmax(dim=-1).tolist()
    assert [word for word, place in zip(read[:5], places[:5], strict=True) if place > places[5]] == [
        "me",
        "this",
        "book",
    ]
    assert head[[1, 5], found.source_labels.index("▁gave")].min() > 0.8


@pytest.fixture(scope="module")
def repeater() -> Trained:
    return Runs(DEFAULT_ROOT)[REPEATER].trained()


@pytest.mark.parametrize("letters", ["c a d b . a", "f k b d . f", "x q z m e . z"])
@claim(
    "induction",
    "row 10 is the first letter of the answer, the `a` that the model reads to produce `d`",
    "Row 10 has nearly all its attention on the `d` of the input",
    "The input becomes f k b d . f. Where does row 10, now the f of the answer, have most of its attention?",
)
def test_an_induction_head_attends_to_the_token_after_an_earlier_occurrence(repeater: Trained, letters: str):
    assert isinstance(repeater.model, DecoderOnly)
    found = text_attention(repeater.model, repeater.task, letters)
    *shown, stop, first = letters.split()
    assert found.tokens[: found.source_length] == ["<BOS>", *shown, stop, first, "<EOS>"]
    assert found.tokens[found.source_length :] == ["<BOS>", *found.produced[:-1]]
    assert found.produced == [*shown[shown.index(first) :], stop, "<EOS>"]
    row = found.source_length + 1  # the letter to begin with, as the answer has it
    assert found.tokens[row] == first
    assert found.weights[1, 0, row, 1 + shown.index(first) + 1] > 0.95
    if len(shown) == 4:
        assert row + 1 == 10


def test_a_text_has_the_weights_of_the_decode_below_those_of_its_source(repeater: Trained):
    assert isinstance(repeater.model, DecoderOnly)
    found = text_attention(repeater.model, repeater.task, "c a d b . a")
    decoded = inspect(repeater.model, repeater.task, "c a d b . a").maps.decoder[:, 0]
    torch.testing.assert_close(found.weights[:, :, found.source_length :], decoded, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.weights.sum(dim=-1), torch.ones_like(found.weights[..., 0]))
    assert found.weights.triu(1).abs().max() == 0


@claim("induction", "has 83 % of its attention on the `a` before it, and the `b` has 90 % on the `d` before it")
def test_the_letters_of_the_input_attend_to_the_one_before(repeater: Trained):
    assert isinstance(repeater.model, DecoderOnly)
    first, second = text_attention(repeater.model, repeater.task, "c a d b . a").weights[0]
    assert second[3, 2].item() == pytest.approx(0.83, abs=0.005)
    assert second[4, 3].item() == pytest.approx(0.90, abs=0.005)
    assert first[2:5].argmax(dim=-1).tolist() == [1, 2, 3]


@claim(
    "induction",
    "fewer than one in twenty",
    "Without head 1 more than half of them are wrong, without head 2 hardly any",
    "Both heads of layer 2 attend to the token that the step has to write",
)
def test_what_the_heads_of_the_repeater_are_worth(repeater: Trained):
    pairs = fixed_pairs(repeater.task, 500, split="test")

    def without(name: str) -> float:
        return exact_match_with(
            repeater.model, repeater.task, pairs, Interventions.parse(repeater.model.heads, ablate=[name])
        )

    assert without("decoder.1") < 0.05
    assert without("decoder.2.1") < 0.5 < 0.98 < without("decoder.2.2")
    scores = inspect(repeater.model, repeater.task, "c a d b . a").scores
    assert min(score.attention_mass for score in scores if score.layer == 2) > 0.7


@claim(
    "induction",
    "from less than half of its attention on the correct token to more than two thirds",
    "From step 100 to step 120 it falls from 1.10 to 0.09. In the twenty steps before, it falls from 1.72 to 1.10",
    "At step 90 fewer than one in ten validation inputs is answered correctly, at step 120 more than nine in ten",
)
def test_the_loss_falls_while_the_head_forms():
    run = Runs(DEFAULT_ROOT)[REPEATER]
    best = {each.step: max(each.attention_mass[1]) for each in run.replay.snapshots() if each.attention_mass}
    assert best[100] < 0.5 < 2 / 3 < best[120]
    evaluations = run.history.evaluations()
    loss, exact = (
        dict(zip(evaluations["step"], evaluations[name], strict=True)) for name in ("validation_loss", "exact_match")
    )
    assert [round(loss[step], 2) for step in (80, 100, 120)] == [1.72, 1.10, 0.09]
    assert exact[90] < 0.1 < 0.9 < exact[120]


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_is_in_the_text_and_every_number_in_a_claim(name: str):
    text = words(name)
    assert [quote for quote in CLAIMS[name] if quote not in text] == []
    stated = set(STATED.findall(text))
    assert stated == {each for quote in CLAIMS[name] for each in STATED.findall(quote)}


# ---- the figures' numbers


def test_scores_become_the_recorded_weights(loaded: Trained, model: Transformer, decoded: Inspection):
    found = attention_scores(model, loaded.task, EXAMPLE)
    assert found.produced == [step.produced for step in decoded.steps]
    assert found.read == [step.read for step in decoded.steps]
    for block in ("encoder", "cross"):
        recorded = getattr(decoded.maps, block)[:, 0]
        torch.testing.assert_close(found.scores[block].softmax(dim=-1), recorded, atol=1e-5, rtol=1e-4)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    decoder = found.scores["decoder"].masked_fill(future, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(decoder, decoded.maps.decoder[:, 0], atol=1e-5, rtol=1e-4)


@claim("tokens", "each row of the table, times √64 = 8, as it enters the encoder")
def test_the_vectors_are_those_of_the_model(loaded: Trained, model: Transformer):
    found = token_vectors(model, loaded.task, EXAMPLE)
    table = model.src_embedding.tokens.weight[found.ids].detach()
    torch.testing.assert_close(found.stages["embedding"], 8 * table)
    torch.testing.assert_close(found.stages["position"], model.src_embedding.positions[:6])
    with torch.no_grad():
        source = torch.tensor([found.ids])
        torch.testing.assert_close(found.stages["sum"], model.src_embedding(source)[0])
        torch.testing.assert_close(found.stages["encoder"], model.encode(source).states[0])


@pytest.mark.parametrize("text", ["", "a", " ".join("1" * 63)])
def test_an_input_that_the_model_cannot_read_is_refused(loaded: Trained, model: Transformer, text: str):
    with pytest.raises(InputError):
        token_vectors(model, loaded.task, text)
    with pytest.raises(InputError):
        decode_padded(model, loaded.task, text, num_pad=2, masked=True)
