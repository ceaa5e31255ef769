"""What programs send is checked against a function's signature; Gradio hands on anything."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import ConfigDict, Field, ValidationError, create_model

from core.storage.errors import InputError
from core.text.validation import validate_text

MOST_LETTERS = 2_000
MOST_NAMES = 100
_OF_FIELD = {"run": 100, "preset": 100}


def checked(function: Callable, *, max_input: int) -> Callable:
    """Let a function be called with what its type hints say only, texts being text and of bounded length.

    The call raises InputError, which names the argument, its value and the rule.
    """
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters
    fields = {
        name: (hints[name], Field(default=... if each.default is each.empty else each.default))
        for name, each in parameters.items()
    }
    arguments = create_model(
        f"Arguments of {function.__name__}", __config__=ConfigDict(strict=True, extra="forbid"), **fields
    )
    longest = _OF_FIELD | {"input": max_input, "prefix": max_input}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(parameters, args, strict=False)) | kwargs
        try:
            valid = arguments.model_validate(given)
        except ValidationError as error:
            raise InputError("; ".join(_problem(detail) for detail in error.errors()[:3])) from error
        values = {name: getattr(valid, name) for name in parameters}
        for name, value in values.items():
            _check_texts(name, value, most=longest.get(name, MOST_LETTERS))
        return function(**values)

    return call


def _check_texts(name: str, value: Any, *, most: int) -> None:
    if isinstance(value, str):
        validate_text(name, value, max_length=most)
    elif isinstance(value, list | dict) and len(value) > MOST_NAMES:
        raise InputError(f"{name} has {len(value):,} values; at most {MOST_NAMES} are read here")
    elif isinstance(value, list):
        for each in value:
            _check_texts(name, each, most=most)
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_texts(f"a key of {name}", key, most=most)
            _check_texts(name, each, most=most)


def _problem(detail: Any) -> str:
    field = ".".join(map(str, detail["loc"])) or "arguments"
    if detail["type"] in ("missing", "extra_forbidden"):
        return f"{field} is {'missing' if detail['type'] == 'missing' else 'no argument here'}"
    try:
        shown = repr(detail["input"])
    except ValueError:  # an int of more digits than Python prints
        shown = "a number too long to print"
    message = detail["msg"].removeprefix("Input ")
    return f"{field}={shown if len(shown) <= 60 else shown[:57] + '...'} {message}"
