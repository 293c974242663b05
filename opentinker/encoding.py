"""Text to token ids and back, with other people's text kept from being read as markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentinker.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TokenIds = tuple[int, ...]


class TextEncoder:
    """A tokenizer as renderers use it.

    Some strings are markup: all special tokens, and of the tokenizer's other added tokens those that its chat template
    names (`</think>`, `<start_of_turn>`), with what opens them (`<think>`). `markup` reads them as tokens, `literal` as the
    characters they consist of.

    Attributes:
        eos: the tokenizer's end-of-text id.
        reserved: matches any markup string; None where the tokenizer has none.

    Raises:
        ConfigError: the tokenizer has no end-of-text token.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.eos_token_id is None:
            raise ConfigError(
                f"tokenizer {tokenizer.name_or_path or type(tokenizer).__name__!r} has no end-of-text token, so no reply "
                "could ever end; set its eos_token"
            )
        self._tokenizer = tokenizer
        self.eos: int = int(tokenizer.eos_token_id)
        added = tokenizer.added_tokens_decoder
        template = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else ""
        self._added = {index: token.content for index, token in added.items()}
        special = {token.content for token in added.values() if token.special}
        special |= {token for token in tokenizer.all_special_tokens if isinstance(token, str)}
        written = {text for text in self._added.values() if text in template or text.replace("<", "</", 1) in template}
        self._special = _any_of(special)
        self.reserved = _any_of(special | written)
        self._anchor = self._needs_anchor()

    def markup(self, text: str, *, inside: bool) -> TokenIds:
        """Ids of text with its markup read as tokens.

        Args:
            text: what to encode.
            inside: the ids continue others. Some tokenizers put a space before whatever they take for the start of a
                text; inside one they must not.
        """
        if not text:
            return ()
        if inside and self._anchor:
            return tuple(self._tokenizer.encode(self._anchor + text, add_special_tokens=False, verbose=False)[1:])
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def literal(self, text: str) -> TokenIds:
        """Ids of text that is no markup whatever it looks like."""
        ids = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
        if not any(index in self._added for index in ids):
            return tuple(ids)
        # Added tokens that are not special are found all the same, but never across a cut.
        return tuple(index for char in text for index in self._tokenizer.encode(char, add_special_tokens=False))

    def mixed(self, parts: Sequence[str], *, inside: bool) -> TokenIds:
        """Ids of parts in turn: markup at even indexes, literal text at odd ones."""
        ids: list[int] = []
        for index, part in enumerate(parts):
            if part:
                ids += self.literal(part) if index % 2 else self.markup(part, inside=inside or index > 0)
        return tuple(ids)

    def said(self, text: str, *, inside: bool) -> TokenIds:
        """Ids of text of others, in which nothing is markup."""
        text = clean(text)
        return self.mixed(self.reserved.split(text) if self.reserved is not None else [text], inside=inside)

    def reply(self, text: str) -> TokenIds:
        """Ids of a reply written by hand: special tokens in it are characters, `<think>` and its like are tokens."""
        text = clean(text)
        return self.mixed(self._special.split(text) if self._special is not None else [text], inside=True)

    def decode(self, ids: Sequence[int]) -> str:
        """The exact text of ids, special tokens included."""
        text = self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def is_added(self, index: int) -> bool:
        """Whether an id is an added token, as the ends of turns are."""
        return index in self._added

    def opening(self) -> TokenIds:
        """What the tokenizer itself puts before a text: the beginning-of-text id, or nothing."""
        bare = self._tokenizer.encode("a", add_special_tokens=False)
        full = self._tokenizer.encode("a", add_special_tokens=True)
        for start in range(len(full) - len(bare) + 1):
            if full[start : start + len(bare)] == bare:
                return tuple(full[:start])
        return ()

    def _needs_anchor(self) -> str:
        eos = str(self._tokenizer.eos_token)
        anchored = self._tokenizer.encode(eos + "a", add_special_tokens=False)
        plain = self._tokenizer.encode("a", add_special_tokens=False)
        return eos if anchored[:1] == [self.eos] and anchored[1:] != plain else ""


def clean(text: str) -> str:
    """The text with lone surrogates, which no tokenizer takes, replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _any_of(texts: set[str]) -> re.Pattern[str] | None:
    # Longest first: of two tokens that start alike the longer one must win. Runs of spaces forge nothing.
    found = sorted((text for text in texts if text.strip()), key=len, reverse=True)
    return re.compile("(" + "|".join(map(re.escape, found)) + ")") if found else None
