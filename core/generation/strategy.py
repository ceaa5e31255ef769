"""Decoding strategies and their settings: greedy, beam search, sampling."""

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from core.config import ConfigError
from core.config.sections import Section
from core.storage.error_messages import short_repr
from core.storage.validation_errors import problem_of


class _BaseStrategy(Section):
    """Settings that every strategy has."""

    repetition_penalty: Annotated[
        float, Field(ge=1, le=10, description="lowers the logits of tokens generated before; 1: no penalty")
    ] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _numbers_as_python(cls, settings: Any) -> Any:
        return (
            {name: cls.as_python(value) for name, value in settings.items()} if isinstance(settings, dict) else settings
        )

    @property
    def sequences_per_source(self) -> int:
        """Number of sequences decoded in parallel for each source."""
        return 1


class Greedy(_BaseStrategy):
    """Greedy decoding: choose the most likely token at every step."""

    kind: Literal["greedy"] = "greedy"


class Beam(_BaseStrategy):
    """Beam search: keep the ``beam_size`` most likely partial hypotheses, return the best finished ones.

    A hypothesis that ends with EOS while among the ``beam_size`` most likely is finished, and the next most likely one
    takes its slot. The search stops when ``beam_size`` hypotheses are finished, or when no running one can become
    better than the ``n_best`` finished so far. ``beam_size=1`` is greedy decoding.

    Finished hypotheses are ranked by log P(tokens | source) / ((5 + length) / 6) ** length_penalty (Wu et al. 2016,
    eq. 14 without the coverage term), where the length includes EOS. With ``length_penalty=0`` the most likely
    sequence wins, which favors short ones; larger values favor long ones.
    """

    kind: Literal["beam"] = "beam"
    beam_size: Annotated[int, Field(ge=1, le=32, description="hypotheses kept per step")] = 4
    length_penalty: Annotated[float, Field(ge=0, le=10, description="larger values favor longer outputs; 0: none")] = (
        1.0
    )
    n_best: Annotated[int, Field(ge=1, le=32, description="hypotheses to return, best first")] = 1

    @model_validator(mode="after")
    def _n_best_fits_in_beam(self) -> "Beam":
        if self.n_best > self.beam_size:
            raise ValueError(f"n_best={self.n_best} must not be above beam_size={self.beam_size}")
        return self

    @property
    def sequences_per_source(self) -> int:
        """Number of sequences decoded in parallel for each source."""
        return self.beam_size


class Sample(_BaseStrategy):
    """Sampling: draw every token from the model's distribution, after temperature, top-k and top-p, in this order.

    Top-k keeps the ``top_k`` most likely tokens (Fan et al. 2018); top-p keeps the smallest set of most likely tokens
    whose probabilities sum to ``top_p`` (nucleus sampling, Holtzman et al. 2020).
    """

    kind: Literal["sample"] = "sample"
    temperature: Annotated[
        float, Field(ge=0.001, le=5, description="below 1 sharper, above 1 flatter; the minimum is practically greedy")
    ] = 1.0
    top_k: Annotated[
        int, Field(ge=0, le=1_000_000, description="sample from the k most likely tokens; 0: from all")
    ] = 0
    top_p: Annotated[
        float, Field(gt=0, le=1, description="sample from the most likely tokens with this total probability; 1: all")
    ] = 1.0
    seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="random seed")] = 0


Strategy = Greedy | Beam | Sample
GREEDY = Greedy()

_ADAPTER: TypeAdapter[Strategy] = TypeAdapter(Annotated[Strategy, Field(discriminator="kind")])


def strategy_class(kind: Any) -> type[Strategy]:
    """Return the class of a kind of strategy: ``greedy``, ``beam`` or ``sample``.

    Raises:
        ConfigError: there is no such kind.
    """
    kinds = {each.model_fields["kind"].default: each for each in get_args(Strategy)}
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError([("strategy", f"strategy={short_repr(kind)} is not one of {', '.join(kinds)}")])
    return kinds[kind]


def parse_strategy(document: dict[str, Any]) -> Strategy:
    """Validate a strategy from JSON, YAML or a form, such as ``{"kind": "beam", "beam_size": 8}``.

    Raises:
        ConfigError: lists every invalid setting with its value and rule.
    """
    fields = strategy_class(document.get("kind", "greedy")).model_fields
    try:
        return _ADAPTER.validate_python({"kind": "greedy"} | document)
    except ValidationError as error:
        raise ConfigError([_problem(detail, fields) for detail in error.errors()]) from error


def _problem(detail: ErrorDetails, fields: dict[str, FieldInfo]) -> tuple[str, str]:
    """Convert a pydantic error into (setting, message with value and rule)."""
    setting = str(detail["loc"][-1])
    if detail["type"] == "value_error":
        return "n_best", str(detail["ctx"]["error"])
    if detail["type"] == "extra_forbidden":
        settings = ", ".join(sorted(fields.keys() - {"kind"}))
        rule = f"is not a setting of {fields['kind'].default}, which has {settings}"
        return setting, f"{setting}={short_repr(detail['input'])} {rule}"
    return setting, problem_of(detail, setting)
