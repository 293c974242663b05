"""The kinds of actions a codec reads: listed ones, whole numbers, free texts, arrays, and an author's own."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Box, Discrete, Space, Text

from opentinker.envs.arrays import array_text, read_array
from opentinker.envs.masks import MaskReader
from opentinker.envs.text import TextSpace, encodable
from opentinker.errors import ConfigError, EnvError, InvalidAction, message_text, value_text

_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)


class Actions(Protocol):
    """One action space as text."""

    def describe(self, mask: Any) -> str:
        """How to answer, in words; empty where observations say so themselves."""

    def parse(self, text: str, mask: Any) -> Any:
        """The action a reply names. Raises InvalidAction."""

    def render(self, action: Any) -> str:
        """The text that `parse` reads back as this action. Raises ValueError for one outside of the space."""

    def legal(self, mask: Any) -> tuple[Any, ...] | None:
        """All legal actions in order; None where they cannot be listed."""

    def draw(self, seed: int) -> Any:
        """A random action; for spaces whose `legal` is None."""


class ListedActions:
    """Finitely many actions of a space, each with a name.

    `told`: observations say themselves how to answer. `sentence`: how to answer when everything is legal.
    """

    def __init__(
        self,
        space: Space[Any],
        actions: Sequence[Any],
        names: Sequence[str],
        *,
        told: bool = False,
        sentence: str | None = None,
    ) -> None:
        self._all, self._names, self._told = tuple(actions), tuple(names), told
        self._read = MaskReader(len(self._all), space).read
        self._index = {name: index for index, name in enumerate(names)}
        self._folded = _folded(names)
        self._name_of = dict(zip(self._all, names, strict=True))
        self._place = {action: index for index, action in enumerate(self._all)}
        self._sentence = "" if told else sentence or _sentence(names)

    def describe(self, mask: Any) -> str:
        if self._told or mask is None:
            return self._sentence
        return _sentence(self._legal_names(mask))

    def parse(self, text: str, mask: Any) -> Any:
        index = self._index.get(text)
        if index is None:
            index = self._find(text, mask)
        if mask is not None and not self._read(mask)[index]:
            raise InvalidAction(text, "not legal now", self._legal_names(mask))
        return self._all[index]

    def index(self, action: Any) -> int | None:
        """The place of an action in the list; None for what is none."""
        return self._place.get(action)

    def allows(self, index: int, mask: Any) -> bool:
        """Whether the mask leaves the action at a place."""
        return bool(self._read(mask)[index])

    def _find(self, text: str, mask: Any) -> int:
        word = text.strip()
        index = self._index.get(word)
        if index is None:
            index = self._folded.get(word.casefold())
        if index is None:
            raise InvalidAction(text, "the reply is empty" if not word else "no such action", self._legal_names(mask))
        return index

    def render(self, action: Any) -> str:
        try:
            name: str = self._name_of[action.item() if isinstance(action, (np.generic, np.ndarray)) else action]
        except (KeyError, TypeError):
            raise ValueError(f"{action!r} is none of the actions {list(self._all)[:20]}") from None
        return name

    def legal(self, mask: Any) -> tuple[Any, ...]:
        if mask is None:
            return self._all
        return tuple(compress(self._all, self._read(mask)))

    def draw(self, seed: int) -> Any:
        return self._all[random.Random(seed).randrange(len(self._all))]

    def _legal_names(self, mask: Any) -> tuple[str, ...]:
        if mask is None:
            return self._names
        return tuple(compress(self._names, self._read(mask)))


def _folded(names: Sequence[str]) -> dict[str, int]:
    """Names of two and more characters without regard to case, where that leaves them different."""
    found: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        found.setdefault(name.strip().casefold(), []).append(index)
    return {word: indices[0] for word, indices in found.items() if len(indices) == 1 and len(names[indices[0]].strip()) > 1}


def _sentence(names: Sequence[str]) -> str:
    return f"Answer with one of: {', '.join(names)}."


def range_sentence(low: int, high: int) -> str:
    """How to answer with a number."""
    return f"Answer with a whole number from {low} to {high}."


class RangeActions:
    """A Discrete space too large to list: whole numbers."""

    def __init__(self, space: Discrete[Any]) -> None:
        self._low, self._count = int(space.start), int(space.n)
        self._read = MaskReader(self._count, space).read

    def describe(self, mask: Any) -> str:
        return range_sentence(self._low, self._low + self._count - 1)

    def parse(self, text: str, mask: Any) -> int:
        word = text.strip()
        if not _INTEGER.fullmatch(word) or not 0 <= int(word) - self._low < self._count:
            raise InvalidAction(text, f"not a whole number from {self._low} to {self._low + self._count - 1}")
        if mask is not None and not self._read(mask)[int(word) - self._low]:
            raise InvalidAction(text, "not legal now", tuple(map(str, self.legal(mask) or ())))
        return int(word)

    def render(self, action: Any) -> str:
        if not 0 <= int(action) - self._low < self._count:
            raise ValueError(f"{action!r} is not from {self._low} to {self._low + self._count - 1}")
        return str(int(action))

    def legal(self, mask: Any) -> tuple[int, ...] | None:
        if mask is None:
            return None
        return tuple((np.flatnonzero(np.frombuffer(self._read(mask), np.int8)) + self._low).tolist())

    def draw(self, seed: int) -> int:
        return self._low + random.Random(seed).randrange(self._count)


class TextActions:
    """Free texts: taken as they are where the space holds them, else without white space around them."""

    def __init__(self, space: TextSpace | Text) -> None:
        self._space = space

    def describe(self, mask: Any) -> str:
        if isinstance(self._space, TextSpace):
            return ""
        return f"Answer with {self._space.min_length} to {self._space.max_length} characters of: {self._space.characters}"

    def parse(self, text: str, mask: Any) -> str:
        _no_mask(mask, self._space)
        for candidate in (text, text.strip()):
            if candidate in self._space:
                return candidate
        raise InvalidAction(text, self._fault(text))

    def _fault(self, text: str) -> str:
        space = self._space
        if len(text) > space.max_length:
            return f"{len(text)} characters, at most {space.max_length} are allowed"
        if not encodable(text):
            return "it holds lone surrogates, which are no characters"
        if isinstance(space, Text) and len(text) < space.min_length:
            return f"{len(text)} characters, at least {space.min_length} are needed"
        return f"allowed are the characters {getattr(space, 'characters', '')}"

    def render(self, action: Any) -> str:
        if action not in self._space:
            raise ValueError(f"{action!r} is not in {self._space}")
        return str(action)

    def legal(self, mask: Any) -> None:
        _no_mask(mask, self._space)

    def draw(self, seed: int) -> str:
        return str(_draw(self._space, seed))


class BoxActions:
    """Arrays of numbers."""

    def __init__(self, space: Box) -> None:
        if not (np.issubdtype(space.dtype, np.number) or space.dtype == bool):
            raise ConfigError(f"actions of {space} have no text form: give the codec a `parse` function (text -> action)")
        self._space = space
        self._dtype: np.dtype[Any] = np.dtype(space.dtype)

    def describe(self, mask: Any) -> str:
        count = int(np.prod(self._space.shape, dtype=np.int64))
        kind = "number" if np.issubdtype(self._dtype, np.floating) else "whole number"
        low, high = np.unique(self._space.low), np.unique(self._space.high)
        if low.size == high.size == 1:
            bounds = f" from {array_text(low[0])} to {array_text(high[0])}"
        else:
            bounds = f", at least {array_text(self._space.low)} and at most {array_text(self._space.high)}"
        return f"Answer with {count} {kind}{'s' * (count != 1)}{bounds}{', separated by commas' * (count > 1)}."

    def parse(self, text: str, mask: Any) -> Any:
        _no_mask(mask, self._space)
        try:
            array = read_array(text, self._space.shape, self._dtype)
        except ValueError as error:
            raise InvalidAction(text, str(error)) from None
        if not self._space.contains(array):
            raise InvalidAction(
                text, f"out of bounds: at least {array_text(self._space.low)}, at most {array_text(self._space.high)}"
            )
        return array

    def render(self, action: Any) -> str:
        array = np.asarray(action, self._dtype)
        if not self._space.contains(array):
            raise ValueError(f"{action!r} is not in {self._space}")
        text = array_text(array)
        return text[1:-1] if array.ndim == 1 else text

    def legal(self, mask: Any) -> None:
        _no_mask(mask, self._space)

    def draw(self, seed: int) -> Any:
        return _draw(self._space, seed)


class CustomActions:
    """An author's own parse function in front of a space; the rest as the space's own listing has it, where there is one."""

    def __init__(self, space: Space[Any], parse: Callable[[str], Any], listed: ListedActions | None) -> None:
        self._space, self._parse, self._listed = space, parse, listed

    def describe(self, mask: Any) -> str:
        return ""

    def parse(self, text: str, mask: Any) -> Any:
        try:
            action = self._parse(text)
        except InvalidAction:
            raise
        except (ValueError, LookupError) as error:
            raise InvalidAction(text, message_text(error) or type(error).__name__) from error
        listed = self._listed
        # the quick way for plain actions; Discrete.contains alone takes longer than all the rest
        index = listed.index(action) if listed is not None and type(action) in (int, str) else None
        if index is None and not self._space.contains(action):
            raise InvalidAction(text, f"{value_text(action)} is not in {self._space}")
        if mask is not None and listed is not None:
            legal = action in listed.legal(mask) if index is None else listed.allows(index, mask)
            if not legal:
                raise InvalidAction(text, "not legal now")
        return action

    def render(self, action: Any) -> str:
        return self._listed.render(action) if self._listed is not None else str(action)

    def legal(self, mask: Any) -> tuple[Any, ...] | None:
        return None if self._listed is None else self._listed.legal(mask)

    def draw(self, seed: int) -> Any:
        return _draw(self._space, seed)


def _draw(space: Space[Any], seed: int) -> Any:
    own = copy.deepcopy(space)  # seeding the environment's object would disturb the environment
    own.seed(seed % 2**32)  # composite spaces refuse larger seeds
    return own.sample()


def _no_mask(mask: Any, space: Space[Any]) -> None:
    if mask is not None:
        raise EnvError(f"an action mask was given for {space}, whose actions cannot be listed")
