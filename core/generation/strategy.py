"""How the next token is chosen: greedily, by beam search or by chance, each with its own settings."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from core.config import ConfigError
from core.config.sections import Section


class _Choosing(Section):
    """What every strategy has."""

    repetition_penalty: Annotated[
        float, Field(ge=1, le=10, description="makes tokens less likely that were written already; 1 changes nothing")
    ] = 1.0

    @property
    def sequences_per_source(self) -> int:
        """Sequences that are written at the same time for one source."""
        return 1


class Greedy(_Choosing):
    """Take the likeliest token at every step."""

    kind: Literal["greedy"] = "greedy"


class Beam(_Choosing):
    """Beam search: keep the ``beam_size`` likeliest beginnings, and at the end the likeliest whole.

    A beginning that ends by EOS while it is among the ``beam_size`` likeliest becomes an answer and leaves its place to
    the next, so that the beam stays as wide until as many answers have ended, or none could become better than the
    ``n_best`` there are. A beam of 1 is greedy decoding.

    Whole hypotheses are ranked by log P(tokens | source) / ((5 + length) / 6) ** length_penalty (Wu et al. 2016,
    eq. 14 without the coverage term). The length counts EOS. With 0 the likeliest sequence wins, which favours short
    ones; with more, longer ones are let off more of what their further tokens cost.
    """

    kind: Literal["beam"] = "beam"
    beam_size: Annotated[int, Field(ge=1, le=32, description="beginnings kept at every step")] = 4
    length_penalty: Annotated[float, Field(ge=0, le=10, description="favours long answers; 0 does not")] = 1.0
    n_best: Annotated[int, Field(ge=1, le=32, description="hypotheses to return, best first")] = 1

    @model_validator(mode="after")
    def _beam_holds_the_best(self) -> "Beam":
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best={self.n_best} must not be above beam_size={self.beam_size}")
        return self

    @property
    def sequences_per_source(self) -> int:
        """Sequences that are written at the same time for one source."""
        return self.beam_size


class Sample(_Choosing):
    """Draw every token from the model's distribution, sharpened or flattened, its tail cut off if wished.

    First the logits are divided by the temperature, then only the ``top_k`` likeliest tokens are kept (Fan et al.
    2018), then of these the smallest set of the likeliest whose probabilities sum to ``top_p`` (nucleus sampling,
    Holtzman et al. 2020).
    """

    kind: Literal["sample"] = "sample"
    temperature: Annotated[
        float, Field(ge=0.001, le=5, description="below 1 sharper, above 1 flatter; the least is as good as greedy")
    ] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000, description="draw from so many likeliest tokens; 0 from all")] = 0
    top_p: Annotated[float, Field(gt=0, le=1, description="draw from the likeliest that have this share; 1: all")] = 1.0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="start of the random numbers")] = 0


Strategy = Greedy | Beam | Sample
GREEDY = Greedy()

_ADAPTER = TypeAdapter(Annotated[Strategy, Field(discriminator="kind")])


def strategy_class(kind: Any) -> type[Strategy]:
    """Return the class of a kind of strategy.

    Raises:
        ConfigError: there is no such kind.
    """
    kinds = {each.model_fields["kind"].default: each for each in get_args(Strategy)}
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError([("strategy", f"strategy={kind!r:.60} is not one of {', '.join(kinds)}")])
    return kinds[kind]


def parse_strategy(document: dict[str, Any]) -> Strategy:
    """Validate a strategy that was read from somewhere, such as ``{"kind": "beam", "beam_size": 8}``.

    Raises:
        ConfigError: naming every setting, value and rule that does not fit.
    """
    known = strategy_class(document.get("kind", "greedy")).model_fields
    try:
        return _ADAPTER.validate_python({"kind": "greedy"} | document)
    except ValidationError as error:
        raise ConfigError([_problem(detail, known) for detail in error.errors()]) from error


def _problem(detail: dict, known: dict) -> tuple[str, str]:
    """Turn one pydantic error into (setting, message with the value and the rule)."""
    setting, message = str(detail["loc"][-1]), detail["msg"].removeprefix("Input ")
    if detail["type"] == "value_error":
        return "n_best", str(detail["ctx"]["error"])
    if detail["type"] == "extra_forbidden":
        settings = ", ".join(sorted(known.keys() - {"kind"}))
        message = f"is not a setting of {known['kind'].default}, which has {settings}"
    value = f"{detail['input']!r:.60}"
    return setting, f"{setting}={value} {message}"
