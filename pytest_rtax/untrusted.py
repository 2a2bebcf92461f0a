"""Text that came from elsewhere, made safe to show and to keep."""

from __future__ import annotations

import re
import unicodedata

# Up to the last @ before the path: a password may hold one.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")


def one_line(text: str | bytes, limit: int = 300) -> str:
    """The text on one line of at most *limit* characters, with nothing in it that a terminal or reader would obey.

    Control, format (bidirectional marks among them) and unassigned characters are shown as escapes.
    """
    whole = len(text) <= 4 * limit
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode(errors="replace")
    shown = "".join(_show(character) for character in " ".join(text[: 4 * limit].split()))
    return shown if whole and len(shown) <= limit else shown[: limit - 1] + "…"


def _show(character: str) -> str:
    if unicodedata.category(character)[0] == "C":
        return ascii(character)[1:-1]
    return character


def last_line(output: bytes, limit: int = 200) -> str:
    """The last line of an output that is not blank: usually the one that says what went wrong."""
    lines = output[-4096:].strip().splitlines()
    return one_line(lines[-1], limit) if lines else ""


def redact(text: str) -> str:
    """Take user names and passwords out of the URLs in a text."""
    return _CREDENTIALS.sub("***@", text)
