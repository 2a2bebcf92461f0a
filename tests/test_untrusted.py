from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_rtax.untrusted import last_line, one_line

anything = st.text(st.characters(), max_size=80) | st.text("\x1b[31m\r\n\u202e\u2028 ab\ud800", max_size=80)


@settings(max_examples=200)
@given(anything | st.binary(max_size=80), st.integers(1, 100))
def test_nothing_is_left_that_a_terminal_would_obey(text: str | bytes, limit: int) -> None:
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1
    assert not [c for c in shown if unicodedata.category(c)[0] == "C" or unicodedata.category(c) in ("Zl", "Zp")]
    shown.encode()


@settings(max_examples=50)
@given(anything, st.integers(1, 100))
def test_what_is_safe_is_not_changed_again(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert one_line(shown, limit) == shown


@settings(max_examples=50)
@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=40))
def test_printable_text_is_kept(text: str) -> None:
    assert one_line(text) == text
    assert one_line(text.encode()) == text


@settings(max_examples=50)
@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=2000), st.integers(1, 100))
def test_what_was_cut_off_is_marked(text: str, limit: int) -> None:
    for given_text in (text, text.encode()):
        shown = one_line(given_text, limit)
        assert shown == text if len(text) <= limit else shown.endswith("…")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("  two\n\tlines \r\n", "two lines"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("abc\x08\x08\x08xyz", r"abc\x08\x08\x08xyz"),
        ("\u202etxt.exe", r"\u202etxt.exe"),
        ("\u2066x\u2069", r"\u2066x\u2069"),
        ("a\u200bb\ufeffc", r"a\u200bb\ufeffc"),
        ("a\u2028b\u2029c\x85d\x0be", "a b c d e"),
        ("\x9b31m", r"\x9b31m"),
        ("caf\udce9", r"caf\udce9"),
        ("nul\0", r"nul\x00"),
        (b"caf\xe9", "caf\N{REPLACEMENT CHARACTER}"),
        ("grüße, 世界 ✓", "grüße, 世界 ✓"),
    ],
)
def test_what_is_shown(text: str | bytes, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("12345", 5, "12345"),
        ("123456", 5, "1234…"),
        ("123456", 1, "…"),
        ("\x1b\x1b", 6, r"\x1b\…"),
        ("1" + " " * 100 + "2", 5, "1…"),
        (" " * 100 + "1", 5, "…"),
        ("😀" * 6, 5, "😀😀😀😀…"),
        (("😀" * 6).encode(), 5, "😀😀😀😀…"),
    ],
)
def test_what_is_cut(text: str | bytes, limit: int, shown: str) -> None:
    assert one_line(text, limit) == shown


def test_an_endless_text_is_not_read_to_its_end() -> None:
    assert len(one_line(b"x" * 50_000_000)) == 300


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b" \n\t\r\n", ""),
        (b"one", "one"),
        (b"one\ntwo\n", "two"),
        (b"one\ntwo\n\n  \n", "two"),
        (b"10%\r50%\r100%", "100%"),
        (b"Traceback:\n  File\nKeyError: 'x'\r\n", "KeyError: 'x'"),
        (b"\x1b[1mfatal:\x1b[0m \xff", r"\x1b[1mfatal:\x1b[0m " + "\N{REPLACEMENT CHARACTER}"),
        (b"x" * 500 + b"\n", "x" * 199 + "…"),
        (b"first\n" + b"y\n" * 10_000, "y"),
    ],
)
def test_last_line(output: bytes, line: str) -> None:
    assert last_line(output) == line


@settings(max_examples=100)
@given(st.binary(max_size=200), st.integers(1, 50))
def test_the_last_line_is_safe_to_show(output: bytes, limit: int) -> None:
    line = last_line(output, limit)
    assert one_line(line, limit) == line
