"""Validation of API arguments against a function's signature; Gradio passes on whatever a client sends."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import ConfigDict, Field, ValidationError, create_model

from core.storage.errors import InputError
from core.storage.validation_errors import problem_of
from core.text.validation import validate_text

MAX_TEXT_LENGTH = 2_000
MAX_ITEMS = 100
_MAX_LENGTH_OF = {"run": 100, "preset": 100}


def validate_arguments(function: Callable, *, max_input: int) -> Callable:
    """Wrap a function so that its arguments are checked against its type hints, and texts against a maximum length.

    The call raises ``InputError``, which names the argument, its value and the rule.
    """
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters
    fields: dict[str, Any] = {
        name: (hints[name], Field(default=... if each.default is each.empty else each.default))
        for name, each in parameters.items()
    }
    arguments = create_model(
        f"Arguments of {function.__name__}", __config__=ConfigDict(strict=True, extra="forbid"), **fields
    )
    max_length_of = _MAX_LENGTH_OF | {"input": max_input, "prefix": max_input}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(parameters, args, strict=False)) | kwargs
        try:
            valid = arguments.model_validate(given)
        except ValidationError as error:
            raise InputError("; ".join(_problem(detail) for detail in error.errors()[:3])) from error
        values = {name: getattr(valid, name) for name in parameters}
        for name, value in values.items():
            _check_texts(name, value, max_length=max_length_of.get(name, MAX_TEXT_LENGTH))
        return function(**values)

    return call


def _check_texts(name: str, value: Any, *, max_length: int) -> None:
    if isinstance(value, str):
        validate_text(name, value, max_length=max_length)
    elif isinstance(value, list | dict) and len(value) > MAX_ITEMS:
        raise InputError(f"{name} has {len(value):,} values; the maximum is {MAX_ITEMS}")
    elif isinstance(value, list):
        for each in value:
            _check_texts(name, each, max_length=max_length)
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_texts(f"a key of {name}", key, max_length=max_length)
            _check_texts(name, each, max_length=max_length)


def _problem(detail: Any) -> str:
    if detail["type"] == "extra_forbidden":
        return f"{detail['loc'][0]} is not an argument"
    return problem_of(detail)
