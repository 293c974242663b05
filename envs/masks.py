"""Action masks, whatever type an environment gives them. Their structure is that of Gymnasium's `Space.sample(mask)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import MultiBinary, MultiDiscrete, Space, Text
from numpy.typing import NDArray

from opentinker.errors import EnvError, value_text

_FLAGS = b"\x00\x01"


class NothingLegal(EnvError):
    """A mask that leaves no action: an error of the environment, but where another branch of a OneOf is still open."""


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
            raise mask_fault(
                self._space, "is no list or array of one dimension with only 0 and 1, or false and true", mask
            )
        if len(flags) != self._count:
            what = f"has {len(flags)} entries, the action space has {self._count} actions"
            raise mask_fault(self._space, what, mask)
        if 1 not in flags:
            raise nothing_legal(self._space, mask)
        return flags


def mask_fault(space: Space[Any], what: str, mask: Any) -> EnvError:
    """The error for a mask that is none of its space."""
    return EnvError(f"the action mask {what}; space: {space}, given: {value_text(mask)}")


def nothing_legal(space: Space[Any], mask: Any) -> NothingLegal:
    """The error for a mask that leaves nothing."""
    why = "leaves no legal action; end an agent that cannot act"
    return NothingLegal(f"the action mask {why}; space: {space}, given: {value_text(mask)}")


class EntryMasks:
    """Reads the masks of a MultiDiscrete: one of `Discrete` for each entry, in tuples nested as the entries are."""

    def __init__(self, space: MultiDiscrete[Any]) -> None:
        self._space = space
        self._readers = [MaskReader(int(count), space) for count in space.nvec.flat]

    def read(self, mask: Any) -> list[bytes]:
        """For each entry, in order, a byte per value. Raises EnvError as `MaskReader.read`."""
        own = list(self._leaves(mask, self._space.shape, mask))
        return [reader.read(entry) for reader, entry in zip(self._readers, own, strict=True)]

    def _leaves(self, mask: Any, shape: tuple[int, ...], whole: Any) -> Iterator[Any]:
        if not shape:
            yield mask
        elif not isinstance(mask, (tuple, list, np.ndarray)) or len(mask) != shape[0]:
            raise mask_fault(self._space, "is no tuple of masks, one for each entry", whole)
        else:
            for part in mask:
                yield from self._leaves(part, shape[1:], whole)


def read_bits(mask: Any, space: MultiBinary) -> NDArray[np.int8]:
    """The mask of a MultiBinary: 0 or 1 where nothing else is legal, 2 where both are; in the space's shape.

    Raises:
        EnvError: it is something else.
    """
    try:
        bits = np.asarray(mask) if isinstance(mask, (np.ndarray, list, tuple)) else np.empty(0)
    except ValueError:  # lists of different lengths
        bits = np.empty(0)
    if bits.shape != space.shape or bits.dtype.kind not in "biuf" or not np.isin(bits, (0, 1, 2)).all():
        raise mask_fault(space, "is no array in the space's shape of 0 and 1 (only that) and 2 (both)", mask)
    return bits.astype(np.int8)


def read_text_mask(mask: Any, space: Text) -> tuple[int | None, frozenset[str] | None]:
    """The mask of a Text: (its length or None, a flag for each character of `space.character_list` or None).

    Returns:
        The length and the characters that are legal; None: as the space has it.

    Raises:
        EnvError: it is something else.
    """
    if not isinstance(mask, (tuple, list)) or len(mask) != 2:
        raise mask_fault(space, "is no pair (length or None, flags of the characters or None)", mask)
    length, flags = mask
    if length is not None and not (_whole(length) and space.min_length <= length <= space.max_length):
        raise mask_fault(space, f"has a length that is not from {space.min_length} to {space.max_length}", mask)
    own = None if length is None else int(length)
    if flags is None:
        return own, None
    allowed = _flags(flags)
    if allowed is None or allowed.strip(_FLAGS) or len(allowed) != len(space.character_list):
        raise mask_fault(space, f"has no flag, 0 or 1, for each of {len(space.character_list)} characters", mask)
    return own, frozenset(char for char, flag in zip(space.character_list, allowed, strict=True) if flag)


def read_length_mask(mask: Any, space: Space[Any]) -> tuple[frozenset[int] | None, Any]:
    """The mask of a Sequence: (None, a length or an array of lengths; the mask of each item or None).

    Returns:
        The lengths that are legal, None: any; and the items' mask.

    Raises:
        EnvError: it is something else.
    """
    if not isinstance(mask, (tuple, list)) or len(mask) != 2:
        raise mask_fault(space, "is no pair (None, a length or an array of lengths; the items' mask or None)", mask)
    lengths, items = mask
    if lengths is None:
        return None, items
    given = [lengths] if _whole(lengths) else lengths.tolist() if isinstance(lengths, np.ndarray) else lengths
    if not isinstance(given, (list, tuple)) or not given or not all(_whole(one) and one >= 0 for one in given):
        raise mask_fault(space, "has lengths that are no whole numbers from 0 on", mask)
    return frozenset(map(int, given)), items


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


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
