"""Actions that are arrays of numbers: Box, MultiDiscrete, MultiBinary."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, MultiBinary, MultiDiscrete
from numpy.typing import NDArray

from opentinker.envs.arrays import ArraySpace, array_text, draw_box, read_array, refuse_image
from opentinker.envs.masks import EntryMasks, mask_fault, read_bits
from opentinker.envs.units import unit_pattern
from opentinker.errors import InvalidAction, value_text

_FREE = 2
"""In the mask of a MultiBinary: 0 and 1 are both legal."""
CURE = "give the codec a `parse` function (text -> action)"


class ArrayActions:
    """Arrays of numbers, read with any brackets, commas and white space, each number with its unit or without."""

    def __init__(self, space: ArraySpace, units: Sequence[str] | None) -> None:
        refuse_image(space, "actions", CURE)
        self._space, self._units = space, units
        self.takes_masks = not isinstance(space, Box)
        self.shape, self._dtype = space.shape, np.dtype(space.dtype)
        self._count = math.prod(space.shape)
        self._low, self._high = _bounds(space)
        self._infinite = self._dtype.kind == "f" and not np.isfinite([self._low, self._high]).all()
        self._entries = EntryMasks(space) if isinstance(space, MultiDiscrete) else None
        self._unit_at = unit_pattern(units)
        plural = "s" * (self._count != 1)
        self._what = f"{self._count} {'' if self._dtype.kind == 'f' else 'whole '}number{plural}{self._range()}"
        self._commas = ", separated by commas" * (self._count > 1)
        self._sentence = f"Answer with {self._what}{self._commas}."

    def _range(self) -> str:
        low, high = np.unique(self._low), np.unique(self._high)
        units = set(self._units or [""])
        if low.size == high.size == len(units) == 1:
            unit = f" {self._units[0]}" if self._units else ""
            return f" from {array_text(low[0])} to {array_text(high[0])}{unit}"
        return f", at least {array_text(self._low, self._units)} and at most {array_text(self._high, self._units)}"

    def describe(self, mask: Any) -> str:
        return self._sentence if mask is None else f"Answer with {self._what}{self._legal_now(mask)}{self._commas}."

    def form(self, mask: Any) -> str:
        what = f"<{self._what}{self._legal_now(mask)}>"
        return f"[{what}]" if self.shape else what

    def _legal_now(self, mask: Any) -> str:
        if mask is None or isinstance(self._space, Box):
            return ""
        if isinstance(self._space, MultiBinary):
            fixed = ["?" if bit == _FREE else str(bit) for bit in read_bits(mask, self._space).flat]
            return f", of this form: {' '.join(fixed)}"
        return f"; legal now, number by number: {'; '.join(' '.join(map(str, values)) for values in self._values(mask))}"

    def parse(self, text: str, mask: Any) -> Any:
        legal = None if mask is None else self._legal(mask)  # first: a faulty mask is no fault of the reply
        plain = text if self._unit_at is None else self._unit_at.sub("", text)
        try:
            array = read_array(plain, self.shape, self._dtype, infinite=self._infinite)
        except ValueError as error:
            raise InvalidAction(text, str(error)) from None
        if not self._inside(array):
            raise InvalidAction(text, f"out of bounds: at least {array_text(self._low)}, at most {array_text(self._high)}")
        if legal is None:
            return array
        wrong = [index for index, values in enumerate(legal) if array.flat[index] not in values]
        if wrong:
            which = "number" if self._count == 1 else f"number {wrong[0] + 1}"
            raise InvalidAction(text, f"{which} may not be {array.flat[wrong[0]]} now{self._legal_now(mask)}")
        return array

    def _legal(self, mask: Any) -> list[list[int]]:
        """The legal values of each entry, by a mask of any array space."""
        if isinstance(self._space, MultiBinary):
            return [[0, 1] if bit == _FREE else [int(bit)] for bit in read_bits(mask, self._space).flat]
        return self._values(mask)

    def _values(self, mask: Any) -> list[list[int]]:
        """The legal values of each entry."""
        if self._entries is None:
            raise mask_fault(self._space, "is of no use: arrays of this space cannot be listed", mask)
        pairs = zip(self._entries.read(mask), self._low.flat, strict=True)
        return [[int(low) + value for value, flag in enumerate(flags) if flag] for flags, low in pairs]

    def render(self, action: Any) -> str:
        try:
            given = np.asarray(action)
            array = given.astype(self._dtype, casting="same_kind")
        except (TypeError, ValueError, OverflowError):
            array = None
        if array is None or (array.dtype.kind in "iu" and (array != given).any()) or not self._inside(array):
            raise ValueError(f"{value_text(action)} is not in {self._space}")
        text = array_text(array)
        return text[1:-1] if array.ndim == 1 else text

    def _inside(self, array: NDArray[Any]) -> bool:
        """What the space's own `contains` says of an array of its type, in a quarter of the time."""
        return array.shape == self.shape and bool(((array >= self._low) & (array <= self._high)).all())

    def legal(self, mask: Any) -> None:
        if mask is None:
            return
        if isinstance(self._space, MultiBinary):
            read_bits(mask, self._space)
        else:
            self._values(mask)

    def draw(self, seed: int, mask: Any) -> Any:
        space = self._space
        if isinstance(space, MultiDiscrete) and mask is not None:
            choose = random.Random(seed).choice
            return np.array([choose(values) for values in self._values(mask)], self._dtype).reshape(self.shape)
        rng = np.random.default_rng(seed)
        if isinstance(space, Box):
            self.legal(mask)
            return draw_box(space, rng)
        array = rng.integers(self._low, self._high, endpoint=True, size=self.shape, dtype=self._dtype.type)
        if isinstance(space, MultiBinary) and mask is not None:
            bits = read_bits(mask, space)
            array = np.where(bits == _FREE, array, bits)
        return array


def _bounds(space: ArraySpace) -> tuple[NDArray[Any], NDArray[Any]]:
    if isinstance(space, Box):
        return space.low, space.high
    if isinstance(space, MultiDiscrete):
        return space.start, (space.start + (space.nvec - 1)).astype(space.dtype)
    return np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
