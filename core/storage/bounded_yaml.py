"""Parse untrusted YAML within fixed bounds.

PyYAML's safe loader executes no code, but a few hundred bytes of aliases or merge keys can occupy it for minutes, deep
nesting can exhaust the stack, and a duplicate key silently overwrites the first. This parser checks the stream of
events first and rejects everything that presets do not need.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from core.storage.error_messages import short_repr

MAX_BYTES = 64 * 1024
MAX_EVENTS = 2_000
MAX_DEPTH = 8
MAX_SCALAR = 4_000
MAX_DIGITS = 20
_OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


class BoundedYamlError(ValueError):
    """The text is not YAML, exceeds the bounds, or uses a rejected feature; the message says which."""


_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML came with libyaml


class _Loader(_SafeLoader):
    """Safe loader that parses ``1e-3`` as a float, as in YAML 1.2, and rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = set()
        for key_node in (each for each, _ in node.value if isinstance(each, yaml.ScalarNode)):
            if key_node.value in keys:
                raise BoundedYamlError(f"duplicate key {key_node.value!r} (line {_line(key_node)})")
            keys.add(key_node.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load(text: str | bytes) -> Any:
    """Parse one YAML document within fixed bounds.

    Args:
        text: the document, at most 64 KiB; bytes are decoded as UTF-8.

    Returns:
        Plain dicts, lists, strings, numbers, booleans and None.

    Raises:
        BoundedYamlError: the text is not YAML, is too large or too deeply nested, or contains anchors, aliases, tags,
            merge keys, duplicate keys, or octal or base-60 integers (``010``, ``1:30``).
    """
    text = _as_text(text)
    try:
        _check_events(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader subclass
    except yaml.YAMLError as error:
        raise BoundedYamlError(f"not valid YAML: {_one_line(error)}") from error
    except RecursionError as error:
        raise BoundedYamlError(f"nested more than {MAX_DEPTH} levels deep") from error
    except BoundedYamlError:
        raise
    except ValueError as error:  # matches the syntax of a date or a number but is none, such as 2001-13-45
        raise BoundedYamlError(f"invalid value: {_one_line(error)}") from error


def _as_text(text: str | bytes) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise BoundedYamlError(f"{size} bytes of YAML; the maximum is {MAX_BYTES}")
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BoundedYamlError("not UTF-8 text") from error


def _check_events(text: str) -> None:
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_SafeLoader)):
        line = _line(event)
        if count > MAX_EVENTS:
            raise BoundedYamlError(f"more than {MAX_EVENTS} YAML events")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BoundedYamlError(f"anchors and aliases are not allowed (line {line})")
        if getattr(event, "tag", None):
            raise BoundedYamlError(f"tags are not allowed (line {line})")
        if isinstance(event, yaml.ScalarEvent):
            _check_scalar(event, line)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise BoundedYamlError(f"nested more than {MAX_DEPTH} levels deep (line {line})")


def _check_scalar(event: yaml.ScalarEvent, line: int) -> None:
    if len(event.value) > MAX_SCALAR:
        raise BoundedYamlError(f"a value of {len(event.value)} characters; the maximum is {MAX_SCALAR} (line {line})")
    is_plain = not event.style  # libyaml's is "", PyYAML's own None
    if event.value == "<<" and is_plain:
        raise BoundedYamlError(f"merge keys (<<) are not allowed (line {line})")
    is_integer = is_plain and event.value.lstrip("+-").isdigit()
    if is_integer and len(event.value) > MAX_DIGITS:
        raise BoundedYamlError(f"a number of {len(event.value)} digits (line {line})")
    if is_plain and _OTHER_BASE.fullmatch(event.value):
        value = short_repr(event.value, 24)
        raise BoundedYamlError(f"{value} is an octal or base-60 number in YAML; write it in decimal (line {line})")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _line(node: yaml.Node | yaml.Event) -> int:
    """Return the line number, from 1, at which a node or event starts."""
    return node.start_mark.line + 1 if node.start_mark else 0
