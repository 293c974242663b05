"""Sampled ids as text: decoding with a memory for short replies, and stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from transformers import PreTrainedTokenizerBase

_SHORT = 16
"""Replies of at most so many ids are remembered; long ones hardly repeat."""
_REMEMBERED = 1 << 16
_MARGIN = 8
"""Ids beyond a stop string's bytes that are decoded with it: the first of a tail may be half a character."""


class Reader:
    """Reads what a tokenizer's ids say.

    Args:
        tokenizer: of the policy.
        eos_ids: ids that end a completion; they are left out of its text.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos_ids: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self.eos_ids = eos_ids
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._decode)

    def decode(self, ids: tuple[int, ...]) -> str:
        """The ids as text, special tokens written out: a reply with one in its midst is not what it seems without it."""
        return self._remembered(ids) if len(ids) <= _SHORT else self._decode(ids)

    def text(self, ids: tuple[int, ...], stop: Sequence[str]) -> str:
        """A completion's text: up to the first stop string, without a final end-of-text id."""
        body = ids[:-1] if ids and ids[-1] in self.eos_ids else ids
        text = self.decode(body)
        cuts = [at for at in (text.find(string) for string in stop) if at >= 0]
        return text[: min(cuts)] if cuts else text

    def stops(self, ids: Sequence[int], stop: Sequence[str]) -> bool:
        """Whether the last id completed a stop string.

        Only the tail is decoded (an id stands for at least one byte), so a reply of n ids costs n short decodings.
        """
        tail = max(len(string.encode("utf-8", "surrogatepass")) for string in stop) + _MARGIN
        text = self._decode(ids[-tail:])
        return any(string in text for string in stop)

    def _decode(self, ids: Sequence[int]) -> str:
        if not ids:
            return ""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)  # type: ignore[return-value]
