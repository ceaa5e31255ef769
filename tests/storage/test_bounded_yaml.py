"""Untrusted YAML gives plain values or a BoundedYamlError, quickly."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.storage.bounded_yaml import MAX_BYTES, MAX_DEPTH, MAX_EVENTS, MAX_SCALAR, BoundedYamlError, load


def test_plain_documents_are_parsed_to_plain_values():
    text = "a: 1\nb: [x, 2.5, true, null]\nc:\n  d: 'yes'\n"
    assert load(text) == {"a": 1, "b": ["x", 2.5, True, None], "c": {"d": "yes"}}
    assert load(text.encode()) == load(text)


@pytest.mark.parametrize(("text", "value"), [("1e-3", 0.001), ("-2E5", -200_000.0), ("1.5e3", 1500.0), ("3e+2", 300.0)])
def test_scientific_notation_is_parsed_as_a_float(text, value):
    loaded = load(f"x: {text}")["x"]
    assert isinstance(loaded, float)
    assert loaded == value


@pytest.mark.parametrize("text", ["e3", "1e", "1e-3x", "'1e-3'"])
def test_invalid_scientific_notation_is_text(text):
    assert isinstance(load(f"x: {text}")["x"], str)


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", b""])
def test_an_empty_document_is_none(text):
    assert load(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\nb: *x", r"anchors and aliases are not allowed \(line 1\)"),
        ("a: 1\nb: *x", r"anchors and aliases are not allowed \(line 2\)"),
        ("a: &x [1]", "anchors and aliases are not allowed"),
        ("<<: {a: 1}", r"merge keys \(<<\) are not allowed"),
        ("a: !!python/object/apply:os.system [ls]", "tags are not allowed"),
        ("a: !!str 1", "tags are not allowed"),
        ("a: !own {b: 1}", "tags are not allowed"),
        ("a: 1\na: 2", "duplicate key 'a'"),
        ("x:\n  a: 1\n  a: 2", r"duplicate key 'a' \(line 3\)"),
        ("a: [", "not valid YAML"),
        ("a: 1\n--- \nb: 2", "not valid YAML"),
        ("{[a]: 1}", "not valid YAML"),
        ("\x00", "not valid YAML"),
        (b"\xff\xfe", "not UTF-8"),
        ("[" * 100_000, f"100000 bytes of YAML; the maximum is {MAX_BYTES}"),
        ("[" * 60_000, f"nested more than {MAX_DEPTH} levels deep"),
        ("- " * 30_000, "nested more than"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "nested more than"),
        ("? " * 30_000, "nested more than"),
        ("- a\n" * 10_000, f"more than {MAX_EVENTS} YAML events"),
        ("a: " + "x" * (MAX_SCALAR + 1), f"a value of {MAX_SCALAR + 1} characters"),
        ("a: " + "1" * 21, "a number of 21 digits"),
        ("a: 010", r"'010' is an octal or base-60 number in YAML; write it in decimal \(line 1\)"),
        ("a: 1:30:00", "'1:30:00' is an octal or base-60 number"),
        ("a: 1:" + "10:" * 30 + "10", "'1:10:10:10:10:10:10:10… is an octal or base-60 number"),
        ("a: -" + "1" * 21, "a number of 22 digits|a number of 21 digits"),
        ("a" * (MAX_BYTES + 1), "bytes of YAML"),
        ("ä" * (MAX_BYTES // 2 + 1), "bytes of YAML"),
    ],
    ids=lambda value: str(value[:24]),
)
def test_everything_else_is_refused_quickly_with_a_one_line_message(text, message):
    started = time.process_time()
    with pytest.raises(BoundedYamlError, match=message) as caught:
        load(text)
    assert time.process_time() - started < 1.0
    assert "\n" not in str(caught.value)


def test_documents_at_the_bounds_are_parsed():
    deepest = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert load(deepest) == [[[[[[[[]]]]]]]]
    assert load("a: " + "x" * MAX_SCALAR) == {"a": "x" * MAX_SCALAR}
    assert load("a: " + "1" * 20) == {"a": int("1" * 20)}
    assert load("a: '" + "1" * 21 + "'") == {"a": "1" * 21}
    assert load("# " + "x" * (MAX_BYTES - 2)) is None


@pytest.mark.parametrize("text", ["2001-13-45", "0b_", "0x_", "2001-01-01 00:00:00+99:99"])
def test_invalid_dates_and_numbers_are_refused(text):
    with pytest.raises(BoundedYamlError):
        load(f"a: {text}")


YAML_LIKE = st.text(st.sampled_from("ab01279 \n\t:-[]{},&*!|>'\"%@#?<=.e_xT+~\x00ä\ud800"), max_size=60)


@settings(max_examples=150)
@given(text=YAML_LIKE | st.text(max_size=80) | st.binary(max_size=80))
def test_any_text_gives_a_value_or_a_bounded_yaml_error(text):
    started = time.process_time()
    try:
        load(text)
    except BoundedYamlError as error:
        assert str(error)  # noqa: PT017 - no error at all is as good
    assert time.process_time() - started < 1.0
