"""Action masks, whatever type an environment gives them, as one byte per action."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Space

from opentinker.errors import EnvError, value_text

_FLAGS = b"\x00\x01"


class MaskReader:
    """Reads the masks of one space of `count` actions."""

    def __init__(self, count: int, space: Space[Any]) -> None:
        self._count, self._space = count, space

    def read(self, mask: Any) -> bytes:
        """A byte per action: 1 where it is legal, else 0.

        Args:
            mask: an array, list or tuple of one dimension, bool or 0 and 1.

        Raises:
            EnvError: it is something else, of another length, or allows nothing.
        """
        if type(mask) is np.ndarray and mask.ndim == 1 and mask.dtype.char in "?bB":
            flags: bytes | None = mask.tobytes()
        else:
            flags = _flags(mask)
        if flags is None or flags.strip(_FLAGS):  # what strip leaves starts with a byte that is neither
            raise self._fault("is no list or array of one dimension with only 0 and 1, or false and true", mask)
        if len(flags) != self._count:
            raise self._fault(f"has {len(flags)} entries, the action space has {self._count} actions", mask)
        if 1 not in flags:
            raise self._fault("leaves no legal action; end an agent that cannot act", mask)
        return flags

    def _fault(self, what: str, mask: Any) -> EnvError:
        return EnvError(f"the action mask {what}; space: {self._space}, given: {value_text(mask)}")


def _flags(mask: Any) -> bytes | None:
    """The numbers of a mask as bytes, or None; what fits into a byte may still be neither 0 nor 1."""
    if hasattr(mask, "__array__"):
        mask = np.asarray(mask)
        mask = mask.tolist() if mask.ndim == 1 else None
    if not isinstance(mask, (list, tuple)):  # bytes(5) would be five zeros
        return None
    try:
        return bytes(mask)
    except (TypeError, ValueError):
        pass
    whole = [int(flag) if isinstance(flag, (float, np.bool_, np.floating)) and flag in (0, 1) else flag for flag in mask]
    try:
        return bytes(whole)
    except (TypeError, ValueError):
        return None
