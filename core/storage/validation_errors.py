"""What is wrong with a document, in words: pydantic's errors as field, value and rule."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from core.storage.error_messages import short_repr, shortened

_SUBJECT = re.compile(r"^(Input|String|Tuple|Dictionary) | after validation| or instance of \w+")  # in messages


def first_problem(error: ValidationError) -> str:
    """Return the first field that is not valid, with its value and the rule: ``d_ff='8' should be a valid integer``."""
    return problem_of(error.errors()[0])


def problem_of(detail: Mapping[str, Any], field: str | None = None) -> str:
    """Return one of pydantic's errors as a field, its value and the rule; the whole document has no field.

    Args:
        field: another name of the field than its place in the document.
    """
    field = shortened(".".join(map(str, detail["loc"])) if field is None else field, 100)
    kind = detail["type"]
    if kind == "missing":
        return f"{field} is missing"
    if kind == "extra_forbidden":
        return f"{field} is not a known key"
    if kind == "value_error":
        rule = str(detail["ctx"]["error"])
        return f"{field}: {rule}" if field and not rule.startswith(field) else rule
    given = f"{field}=" if field else ""
    return f"{given}{short_repr(detail['input'])} {rule_of(detail)}"


def rule_of(detail: Mapping[str, Any]) -> str:
    """Return the rule that a value breaks, such as ``should be less than 8``."""
    rule = _SUBJECT.sub("", detail["msg"])
    return rule.replace("a valid dictionary", "a mapping").replace("a valid boolean", "true or false")
