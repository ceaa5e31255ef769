"""Read YAML that a stranger may have written: small, flat, and without surprises.

PyYAML's safe loader runs no code, yet a few hundred bytes of aliases or merge keys can keep it busy for
minutes, deep nesting can end the process, and duplicate keys silently replace one another. This loader
looks at the stream of events first and refuses what a preset never needs.
"""

import re
from typing import Any

import yaml

MAX_BYTES = 64 * 1024
MAX_EVENTS = 2_000
MAX_DEPTH = 8
MAX_SCALAR = 4_000
MAX_DIGITS = 20
_OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


class BoundedYamlError(ValueError):
    """The text is not the kind of YAML a preset is written in; the message says why."""


class _Loader(yaml.SafeLoader):
    """Safe loader that reads ``1e-3`` as a number, as YAML 1.2 does, and refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        keys = [key_node.value for key_node, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise BoundedYamlError(f"key {key!r} is given twice (line {node.start_mark.line + 1})")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load(text: str | bytes) -> Any:
    """Parse one YAML document within fixed bounds.

    Args:
        text: the document, at most 64 KiB; bytes are read as UTF-8.

    Returns:
        Plain dicts, lists, strings, numbers, booleans and None.

    Raises:
        BoundedYamlError: the text is too large, too deep, not YAML, or uses anchors, aliases, tags,
            merge keys, duplicate keys, or numbers to base 8 or 60 (``010``, ``1:30``).
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
    except ValueError as error:  # looks like a date or a number but is none, such as 2001-13-45
        raise BoundedYamlError(f"a value cannot be read: {_one_line(error)}") from error


def _as_text(text: str | bytes) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    if size > MAX_BYTES:
        raise BoundedYamlError(f"{size} bytes of YAML; at most {MAX_BYTES} are read")
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BoundedYamlError("not UTF-8 text") from error


def _check_events(text: str) -> None:
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        line = event.start_mark.line + 1
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
        raise BoundedYamlError(f"a value of {len(event.value)} characters; at most {MAX_SCALAR} (line {line})")
    if event.value == "<<" and event.style is None:
        raise BoundedYamlError(f"merge keys (<<) are not allowed (line {line})")
    plain_number = event.style is None and event.value.lstrip("+-").isdigit()
    if plain_number and len(event.value) > MAX_DIGITS:
        raise BoundedYamlError(f"a number of {len(event.value)} digits (line {line})")
    if event.style is None and _OTHER_BASE.fullmatch(event.value):
        raise BoundedYamlError(
            f"{event.value[:20]} is a number to base 8 or 60 in YAML; write it otherwise (line {line})"
        )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
