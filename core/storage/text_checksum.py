"""Text files with a checksum at their start: JSON objects and YAML, which have none of their own.

The checksum is the first field of a JSON object, or a comment in YAML's first line. It is the SHA-256 of the whole file
with zeros in place of its 64 digits. A file without it, such as one written by hand, is not checked.
"""

import hashlib
import re

_ZEROS = b"0" * 64
_START = re.compile(rb'\A(?:# sha256: ([0-9a-f]{64})\n|\{"sha256": "([0-9a-f]{64})",)')


def with_checksum(text: str | bytes) -> bytes:
    """Return a file's content with a checksum: of a JSON object if it starts with a brace, otherwise of YAML."""
    content = text.encode() if isinstance(text, str) else text
    if content.startswith(b"{"):
        content = b'{"sha256": "' + _ZEROS + b'",' + content[1:]
    else:
        content = b"# sha256: " + _ZEROS + b"\n" + content
    return content.replace(_ZEROS, hashlib.sha256(content).hexdigest().encode(), 1)


def without_checksum(content: bytes) -> bytes:
    """Return what ``with_checksum`` was given; content that has no checksum is returned unchanged."""
    match = _START.match(content)
    if match is None:
        return content
    return (b"{" if match[2] else b"") + content[match.end() :]


def has_changed(content: bytes) -> bool:
    """Whether a file's content does not match its checksum; False if it has none."""
    match = _START.match(content)
    if match is None:
        return False
    start, end = match.span(1 if match[1] else 2)
    zeroed = content[:start] + _ZEROS + content[end:]
    return hashlib.sha256(zeroed).hexdigest().encode() != content[start:end]
