"""Walks through a reply from left to right."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_SPACE = re.compile(r"\s*")
_BARE = re.compile(r"[^,;()\[\]{}\"]+")
_BARE_KEY = re.compile(r"[^:,;()\[\]{}\"]+")
_SINGLE = re.compile(r"'([^'\n]*)'(?=\s*(?:[,;:)\]}]|$))")
_INDEX = re.compile(r"[0-9]{1,9}", re.ASCII)
_BRACKET = re.compile(r"[()\[\]]")
_JSON = json.JSONDecoder(strict=False)


class Misread(Exception):
    """A reply that cannot be read; `place` is where, from the outside in."""

    def __init__(self, reason: str, legal: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.legal = reason, tuple(legal)
        self.place: list[str] = []


class Cursor:
    """A place in a reply."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def skip(self) -> str:
        """Steps over white space. Returns the next character, empty at the end."""
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it always matches
        return self._text[self._at : self._at + 1]

    def take(self, characters: str) -> str:
        """Steps over the next character if it is one of these. Returns it, else an empty text."""
        found = self.skip()
        if not found or found not in characters:
            return ""
        self._at += 1
        return found

    def expect(self, characters: str) -> None:
        """Steps over one of these characters. Raises Misread."""
        if not self.take(characters):
            raise Misread(f"{characters[0]!r} is expected {self._here()}")

    def word(self, bare: re.Pattern[str] = _BARE) -> str:
        """A text in quotes, or one without up to the next comma or bracket. Raises Misread."""
        if self.skip() == '"':
            try:
                text, self._at = _JSON.raw_decode(self._text, self._at)
            except ValueError:
                raise Misread("a text in double quotes does not end, or has a wrong escape") from None
            return str(text)
        found = _SINGLE.match(self._text, self._at) or bare.match(self._text, self._at)
        if found is None:
            raise Misread(f"a value is missing {self._here()}")
        self._at = found.end()
        return found[1] if found.re is _SINGLE else found[0].strip()

    def key(self) -> str:
        """The key of an entry, and the colon behind it. Raises Misread."""
        key = self.word(_BARE_KEY)
        self.expect(":")
        return key

    def index(self) -> int:
        """A whole number. Raises Misread."""
        self.skip()
        found = _INDEX.match(self._text, self._at)
        if found is None:
            raise Misread(f"a whole number is expected {self._here()}")
        self._at = found.end()
        return int(found[0])

    def numbers(self) -> str:
        """Everything up to the end of the bracket that opens here, or a single word. Raises Misread."""
        if self.skip() not in ("(", "["):
            return self.word()
        start, depth = self._at, 0
        for bracket in _BRACKET.finditer(self._text, start):
            depth += 1 if bracket[0] in "([" else -1
            if depth == 0:
                self._at = bracket.end()
                return self._text[start : self._at]
        raise Misread("a bracket is not closed")

    def end(self) -> None:
        """Nothing may follow but white space. Raises Misread."""
        if self.skip():
            raise Misread(f"nothing more is expected {self._here()}")

    def _here(self) -> str:
        rest = self._text[self._at : self._at + 20]
        return f"before {rest!r}" if rest else "at the end"
