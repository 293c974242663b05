"""Actions made of others: Tuple, Dict, Sequence and OneOf, to any depth, written much as JSON writes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Dict, OneOf, Space, Tuple
from gymnasium.spaces import Sequence as SequenceSpace
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from opentinker.envs.actions import Leaf, drawn
from opentinker.envs.array_actions import ArrayActions
from opentinker.envs.cursor import Cursor, Misread
from opentinker.envs.masks import NothingLegal, mask_fault, nothing_legal, read_length_mask
from opentinker.envs.observations import key_texts, quoted, read_key
from opentinker.errors import InvalidAction, value_text

_LONGER = 0.75
"""The chance that a random sequence goes on after an item, as in Gymnasium."""


class Part(Protocol):
    """What one space contributes to an action."""

    def read(self, cursor: Cursor, mask: Any) -> Any:
        """The value at the cursor, which moves behind it. Raises Misread."""

    def text(self, value: Any) -> str:
        """What `read` reads. Raises ValueError for a value outside of the space."""

    def form(self, mask: Any) -> str:
        """What to write, with a `<description>` in the place of every value."""

    def check(self, mask: Any) -> None:
        """Raises EnvError for a mask that is none, NothingLegal for one that leaves nothing."""

    def draw(self, seed: int, mask: Any) -> Any:
        """A random legal value."""


class LeafPart:
    """A single value. `texts`: it is a text, and written in quotes."""

    def __init__(self, leaf: Leaf, texts: bool) -> None:
        self._leaf, self._texts = leaf, texts
        self._array = leaf if isinstance(leaf, ArrayActions) else None

    def read(self, cursor: Cursor, mask: Any) -> Any:
        word = cursor.word() if self._array is None else cursor.numbers()
        try:
            return self._leaf.parse(word, mask)
        except InvalidAction as error:
            raise Misread(error.reason, error.legal) from None

    def text(self, value: Any) -> str:
        text = self._leaf.render(value)
        if self._array is not None and len(self._array.shape) == 1:
            return f"[{text}]"
        return quoted(text) if self._texts else text

    def form(self, mask: Any) -> str:
        return self._leaf.form(mask)

    def check(self, mask: Any) -> None:
        self._leaf.legal(mask)

    def draw(self, seed: int, mask: Any) -> Any:
        return drawn(self._leaf, seed, mask)


class TuplePart:
    """A value of each of several spaces: `(3, [0.5, 1], "no")`."""

    def __init__(self, space: Tuple[Any], parts: Sequence[Part]) -> None:
        self._space, self._parts = space, parts

    def read(self, cursor: Cursor, mask: Any) -> Any:
        masks = self._masks(mask)
        cursor.expect("([")
        values = []
        for number, (part, own) in enumerate(zip(self._parts, masks, strict=True), 1):
            if number > 1:
                cursor.expect(",;")
            values.append(_located(f"part {number}", part.read, cursor, own))
        if values:
            cursor.take(",")
        cursor.expect(")]")
        return tuple(values)

    def text(self, value: Any) -> str:
        if not isinstance(value, (tuple, list)) or len(value) != len(self._parts):
            raise ValueError(f"{value_text(value)} is not in {self._space}")
        return "(" + ", ".join([part.text(own) for part, own in zip(self._parts, value, strict=True)]) + ")"

    def form(self, mask: Any) -> str:
        return "(" + ", ".join([part.form(own) for part, own in zip(self._parts, self._masks(mask), strict=True)]) + ")"

    def check(self, mask: Any) -> None:
        for part, own in zip(self._parts, self._masks(mask), strict=True):
            part.check(own)

    def draw(self, seed: int, mask: Any) -> Any:
        draw = random.Random(seed).getrandbits
        return tuple(part.draw(draw(63), own) for part, own in zip(self._parts, self._masks(mask), strict=True))

    def _masks(self, mask: Any) -> Sequence[Any]:
        return _masks(mask, len(self._parts), self._space)


class DictPart:
    """A value for each key: `{at: [1, 3], said: "no"}`, in any order."""

    def __init__(self, space: Dict, parts: Mapping[Any, Part]) -> None:
        self._space, self._parts = space, parts
        self._written = key_texts(space)
        self._keys = {read_key(text): key for key, text in self._written.items()}

    def read(self, cursor: Cursor, mask: Any) -> Any:
        masks = self._masks(mask)
        found: dict[Any, Any] = {}
        cursor.expect("{")
        while not cursor.take("}"):
            if found:
                cursor.expect(",;")
                if cursor.take("}"):
                    break
            name = cursor.key()
            if name not in self._keys:
                raise Misread(f"there is no {name[:40]!r}", tuple(self._written.values()))
            key = self._keys[name]
            if key in found:
                raise Misread(f"{name!r} is given twice")
            found[key] = _located(self._written[key], self._parts[key].read, cursor, masks.get(key))
        missing = [self._written[key] for key in self._parts if key not in found]
        if missing:
            raise Misread(f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        return {key: found[key] for key in self._parts}

    def text(self, value: Any) -> str:
        if not isinstance(value, Mapping) or value.keys() != self._parts.keys():
            raise ValueError(f"{value_text(value)} is not in {self._space}")
        return "{" + ", ".join([f"{self._written[key]}: {part.text(value[key])}" for key, part in self._parts.items()]) + "}"

    def form(self, mask: Any) -> str:
        masks = self._masks(mask)
        forms = [f"{self._written[key]}: {part.form(masks.get(key))}" for key, part in self._parts.items()]
        return "{" + ", ".join(forms) + "}"

    def check(self, mask: Any) -> None:
        masks = self._masks(mask)
        for key, part in self._parts.items():
            part.check(masks.get(key))

    def draw(self, seed: int, mask: Any) -> Any:
        draw, masks = random.Random(seed).getrandbits, self._masks(mask)
        return {key: part.draw(draw(63), masks.get(key)) for key, part in self._parts.items()}

    def _masks(self, mask: Any) -> Mapping[Any, Any]:
        if mask is None:
            return {}
        if not isinstance(mask, Mapping) or mask.keys() != self._parts.keys():
            raise mask_fault(self._space, "is no dict of masks with the space's keys", mask)
        return mask


class SequencePart:
    """Any number of values of one space: `[1, 0, 2]`."""

    def __init__(self, space: SequenceSpace, part: Part) -> None:
        self._space, self._part = space, part

    def read(self, cursor: Cursor, mask: Any) -> Any:
        lengths, own = self._masks(mask)
        filled = mask is None or self._open(lengths, own, mask)
        values: list[Any] = []
        cursor.expect("[(")
        while not cursor.take("])"):
            if not filled:
                raise Misread("no items are legal now")
            if values:
                cursor.expect(",;")
                if cursor.take("])"):
                    break
            values.append(_located(f"item {len(values) + 1}", self._part.read, cursor, own))
        if lengths is not None and len(values) not in lengths:
            raise Misread(f"{len(values)} items are not legal now, but {_either(lengths)}")
        return self._gathered(values)

    def text(self, value: Any) -> str:
        if self._space.stack:
            try:
                items = list(iterate(self._space.stacked_feature_space, value))
            except Exception:  # whatever Gymnasium stumbles over
                raise ValueError(f"{value_text(value)} is not in {self._space}") from None
        elif isinstance(value, (tuple, list)):
            items = list(value)
        else:
            raise ValueError(f"{value_text(value)} is not in {self._space}")
        return "[" + ", ".join([self._part.text(item) for item in items]) + "]"

    def form(self, mask: Any) -> str:
        lengths, own = self._masks(mask)
        many = "any number of them" if lengths is None else f"{_either(lengths)} of them"
        return f"[{self._part.form(own)}, ...: {many}]"

    def check(self, mask: Any) -> None:
        self._open(*self._masks(mask), mask)

    def draw(self, seed: int, mask: Any) -> Any:
        rng = random.Random(seed)
        lengths, own = self._masks(mask)
        if not self._open(lengths, own, mask):
            return self._gathered([])
        if lengths is not None:
            length = rng.choice(sorted(lengths))
        else:
            length = 1
            while rng.random() < _LONGER:
                length += 1
        return self._gathered([self._part.draw(rng.getrandbits(63), own) for _ in range(length)])

    def _open(self, lengths: frozenset[int] | None, own: Any, mask: Any) -> bool:
        """Whether there may be items. Raises NothingLegal where there must be some and none is legal."""
        try:
            self._part.check(own)
        except NothingLegal:
            if lengths is not None and 0 not in lengths:
                raise nothing_legal(self._space, mask) from None
            return False
        return True

    def _gathered(self, values: list[Any]) -> Any:
        if not self._space.stack:
            return tuple(values)
        feature = self._space.feature_space
        room: Any = create_empty_array(feature, len(values))
        return concatenate(feature, values, room) if values else room  # Gymnasium's cannot stack nothing

    def _masks(self, mask: Any) -> tuple[frozenset[int] | None, Any]:
        return (None, None) if mask is None else read_length_mask(mask, self._space)


class OneOfPart:
    """A value of one of several spaces, its index first: `1: [0.5, 1]`."""

    def __init__(self, space: OneOf[Any], parts: Sequence[Part]) -> None:
        self._space, self._parts = space, parts

    def read(self, cursor: Cursor, mask: Any) -> Any:
        self.check(mask)  # first: a faulty mask is no fault of the reply
        masks = self._masks(mask)
        bracket = cursor.take("([")
        index = cursor.index()
        cursor.expect(",:" if bracket else ":")
        if index >= len(self._parts) or not self._open(index, masks[index]):
            raise Misread(f"there is no part {index} now", [str(one) for one in self._all_open(mask)])
        value = _located(f"part {index}", self._parts[index].read, cursor, masks[index])
        if bracket:
            cursor.expect(")]")
        return index, value

    def text(self, value: Any) -> str:
        index = value[0] if isinstance(value, (tuple, list)) and len(value) == 2 else None
        if not isinstance(index, (int, np.integer)) or not 0 <= index < len(self._parts):
            raise ValueError(f"{value_text(value)} is not in {self._space}")
        return f"{int(index)}: {self._parts[int(index)].text(value[1])}"

    def form(self, mask: Any) -> str:
        masks = self._masks(mask)
        return " or ".join([f"{index}: {self._parts[index].form(masks[index])}" for index in self._all_open(mask)])

    def check(self, mask: Any) -> None:
        if mask is not None:
            self._all_open(mask)

    def draw(self, seed: int, mask: Any) -> Any:
        rng, masks = random.Random(seed), self._masks(mask)
        index = rng.choice(self._all_open(mask))
        return index, self._parts[index].draw(rng.getrandbits(63), masks[index])

    def _all_open(self, mask: Any) -> list[int]:
        """The parts that the mask leaves something of. Raises NothingLegal where there is none."""
        found = [index for index, own in enumerate(self._masks(mask)) if self._open(index, own)]
        if not found:
            raise nothing_legal(self._space, mask)
        return found

    def _open(self, index: int, own: Any) -> bool:
        try:
            self._parts[index].check(own)
        except NothingLegal:
            return False
        return True

    def _masks(self, mask: Any) -> Sequence[Any]:
        return _masks(mask, len(self._parts), self._space)


def _masks(mask: Any, count: int, space: Space[Any]) -> Sequence[Any]:
    if mask is None:
        return (None,) * count
    if not isinstance(mask, (tuple, list)) or len(mask) != count:
        raise mask_fault(space, f"is no tuple of {count} masks, one for each part", mask)
    return mask


def _either(lengths: frozenset[int]) -> str:
    return " or ".join(map(str, sorted(lengths)))


def _located(place: str, read: Callable[[Cursor, Any], Any], cursor: Cursor, mask: Any) -> Any:
    try:
        return read(cursor, mask)
    except Misread as error:
        error.place.insert(0, place)
        raise
