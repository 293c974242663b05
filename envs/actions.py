"""The kinds of actions a codec reads: listed ones, whole numbers, free texts, and an author's own."""

from __future__ import annotations

import copy
import json
import operator
import random
import re
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, Protocol

import numpy as np
from gymnasium.spaces import Discrete, Space, Text

from opentinker.envs.masks import MaskReader, mask_fault, nothing_legal, read_text_mask
from opentinker.envs.text import TextSpace, encodable
from opentinker.envs.units import unit_pattern
from opentinker.errors import ConfigError, InvalidAction, message_text, value_text

_INTEGER = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_LONGEST_DRAWN = 64


class Actions(Protocol):
    """One action space as text."""

    takes_masks: bool
    """Whether there are masks for such a space."""

    def describe(self, mask: Any) -> str:
        """How to answer, in words; empty where observations say so themselves."""

    def parse(self, text: str, mask: Any) -> Any:
        """The action a reply names. Raises InvalidAction."""

    def render(self, action: Any) -> str:
        """The text that `parse` reads back as this action. Raises ValueError for one outside of the space."""

    def legal(self, mask: Any) -> tuple[Any, ...] | None:
        """All legal actions in order; None where they cannot be listed. Raises EnvError for a mask that is none."""

    def draw(self, seed: int, mask: Any) -> Any:
        """A random legal action; for actions whose `legal` is None."""


class Leaf(Actions, Protocol):
    """Actions that may stand inside others."""

    def form(self, mask: Any) -> str:
        """What stands in the place of one of them where the form of an answer is told."""


def drawn(actions: Actions, seed: int, mask: Any) -> Any:
    """A random legal action; equal seeds give equal ones."""
    legal = actions.legal(mask)
    if legal is None:
        return actions.draw(seed, mask)
    return legal[random.Random(seed).randrange(len(legal))]


class ListedActions:
    """Finitely many actions of a space, each with a name.

    `told`: observations say themselves how to answer. `sentence`, `form`: how to answer when everything is legal. `unit`:
    may stand behind a name.
    """

    takes_masks = True

    def __init__(
        self,
        space: Space[Any],
        actions: Sequence[Any],
        names: Sequence[str],
        *,
        told: bool = False,
        sentence: str | None = None,
        form: str | None = None,
        unit: str = "",
    ) -> None:
        self._all, self._names, self._told = tuple(actions), tuple(names), told
        self._read = MaskReader(len(self._all), space).read
        self._index = {name: index for index, name in enumerate(names)}
        self._folded = _folded(names)
        self._name_of = dict(zip(self._all, names, strict=True))
        self._place = {action: index for index, action in enumerate(self._all)}
        self._unit, self._unit_at = unit, unit_pattern([unit])
        self._sentence = "" if told else sentence or self._how(names)
        self._form = form or "|".join(names)

    def describe(self, mask: Any) -> str:
        if self._told or mask is None:
            return self._sentence
        return self._how(self._legal_names(mask))

    def form(self, mask: Any) -> str:
        return f"<{self._form if mask is None else '|'.join(self._legal_names(mask))}>"

    def _how(self, names: Sequence[str]) -> str:
        return f"Answer with one of: {', '.join(names)}{f' ({self._unit})' * bool(self._unit)}."

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
        if index is None and self._unit_at is not None:
            index = self._index.get(self._unit_at.sub("", word).strip())
        if index is None:
            raise InvalidAction(text, "the reply is empty" if not word else "no such action", self._legal_names(mask))
        return index

    def render(self, action: Any) -> str:
        try:
            name: str = self._name_of[action.item() if isinstance(action, (np.generic, np.ndarray)) else action]
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{value_text(action)} is none of the actions {list(self._all)[:20]}") from None
        return name

    def legal(self, mask: Any) -> tuple[Any, ...]:
        if mask is None:
            return self._all
        return tuple(compress(self._all, self._read(mask)))

    def draw(self, seed: int, mask: Any) -> Any:
        return drawn(self, seed, mask)

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


def range_text(low: int, high: int, unit: str = "") -> str:
    """The whole numbers from one to another, in words."""
    return f"{low} to {high}{f' {unit}' * bool(unit)}"


def range_sentence(low: int, high: int, unit: str = "") -> str:
    """How to answer with a number."""
    return f"Answer with a whole number from {range_text(low, high, unit)}."


class RangeActions:
    """A Discrete space too large to list: whole numbers. `unit`: may stand behind the number."""

    takes_masks = True

    def __init__(self, space: Discrete[Any], unit: str = "") -> None:
        self._low, self._count = int(space.start), int(space.n)
        self._high = self._low + self._count - 1
        self._read = MaskReader(self._count, space).read
        self._unit, self._unit_at = unit, unit_pattern([unit])

    def describe(self, mask: Any) -> str:
        return range_sentence(self._low, self._high, self._unit)

    def form(self, mask: Any) -> str:
        return f"<{range_text(self._low, self._high, self._unit)}>"

    def parse(self, text: str, mask: Any) -> int:
        word = text.strip()
        if self._unit_at is not None:
            word = self._unit_at.sub("", word).strip()
        if not _INTEGER.fullmatch(word) or not self._low <= int(word) <= self._high:
            raise InvalidAction(text, f"not a whole number from {self._low} to {self._high}")
        if mask is not None and not self._read(mask)[int(word) - self._low]:
            raise InvalidAction(text, "not legal now", tuple(map(str, self.legal(mask) or ())))
        return int(word)

    def render(self, action: Any) -> str:
        try:
            number = operator.index(action)
        except TypeError:
            number = None
        if number is None or not self._low <= number <= self._high:
            raise ValueError(f"{value_text(action)} is not from {self._low} to {self._high}")
        return str(number)

    def legal(self, mask: Any) -> tuple[int, ...] | None:
        if mask is None:
            return None
        return tuple((np.flatnonzero(np.frombuffer(self._read(mask), np.int8)) + self._low).tolist())

    def draw(self, seed: int, mask: Any) -> int:
        if mask is not None:
            return int(drawn(self, seed, mask))
        return self._low + random.Random(seed).randrange(self._count)


class TextActions:
    """Free texts: taken as they are where the space holds them, else without white space around them.

    A lone surrogate is no character, and no reply can hold one: texts with some are none of the actions, even where a Text's
    `charset` has them.
    """

    def __init__(self, space: TextSpace | Text) -> None:
        self._space, self.takes_masks = space, isinstance(space, Text)
        self._usable = [char for char in getattr(space, "character_list", ()) if encodable(char)]
        self._sure = isinstance(space, TextSpace) or len(self._usable) == len(space.character_list)
        if isinstance(space, Text) and space.min_length and not self._usable:
            raise ConfigError("no reply can be in a Text whose charset has no characters, lone surrogates apart")
        self._own = copy.deepcopy(space)  # to be seeded at will
        characters = space.characters if isinstance(space, Text) else ""
        self._characters = characters if characters.isprintable() else json.dumps(characters)
        least = f"{space.min_length} to " if isinstance(space, Text) else "at most "
        self._length = f"{least}{space.max_length} characters"
        self._sentence = f"Answer with {self._length} of: {self._characters}" if isinstance(space, Text) else ""
        of = f" of: {self._characters}" if isinstance(space, Text) else ""
        self._form = f'"<{self._length}{of}>"'

    def describe(self, mask: Any) -> str:
        return self._sentence

    def form(self, mask: Any) -> str:
        return self._form

    def parse(self, text: str, mask: Any) -> str:
        length, allowed = (None, None) if mask is None else self._limits(mask)
        for candidate in (text, text.strip()):
            fits = candidate in self._space and (self._sure or encodable(candidate)) and length in (None, len(candidate))
            if fits and (allowed is None or allowed.issuperset(candidate)):
                return candidate
        raise InvalidAction(text, self._fault(text, length, allowed))

    def _limits(self, mask: Any) -> tuple[int | None, frozenset[str] | None]:
        if mask is None:
            return None, None
        if isinstance(self._space, TextSpace):
            raise mask_fault(self._space, "is of no use: free texts cannot be listed", mask)
        length, allowed = read_text_mask(mask, self._space)
        if allowed is not None:
            allowed = allowed.intersection(self._usable)
            if not allowed and (self._space.min_length if length is None else length):
                raise nothing_legal(self._space, mask)
        return length, allowed

    def _fault(self, text: str, length: int | None, allowed: frozenset[str] | None) -> str:
        space = self._space
        if len(text) > space.max_length:
            return f"{len(text)} characters, at most {space.max_length} are allowed"
        if not encodable(text):
            return "it holds lone surrogates, which are no characters"
        if isinstance(space, Text) and len(text) < space.min_length:
            return f"{len(text)} characters, at least {space.min_length} are needed"
        if length is not None and len(text) != length:
            return f"{len(text)} characters, {length} are needed now"
        if allowed is None:
            return f"allowed are the characters {self._characters}"
        return f"allowed now are the characters {''.join(sorted(allowed))}"

    def render(self, action: Any) -> str:
        if action not in self._space or not (self._sure or encodable(action)):
            raise ValueError(f"{value_text(action)} is not in {self._space}, or holds lone surrogates")
        return str(action)

    def legal(self, mask: Any) -> None:
        self._limits(mask)

    def draw(self, seed: int, mask: Any) -> str:
        if isinstance(self._own, TextSpace):
            self._own.seed(seed % 2**32)
            return self._own.sample()
        length, allowed = self._limits(mask)
        characters = [char for char in self._usable if allowed is None or char in allowed]
        rng = random.Random(seed)
        if length is None:
            most = min(self._own.max_length, max(self._own.min_length, _LONGEST_DRAWN))
            length = rng.randint(self._own.min_length, most) if characters else 0
        return "".join(rng.choices(characters, k=length)) if length else ""


class CustomActions:
    """An author's own parse function in front of a space; the rest as the codec itself has it (`own`), where it does."""

    def __init__(self, space: Space[Any], parse: Callable[[str], Any], own: Actions | None) -> None:
        self._space, self._parse, self._own = space, parse, own
        self._listed = own if isinstance(own, ListedActions) else None
        # where a space has no masks only the author knows what one means
        self.takes_masks = own is not None and own.takes_masks

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
        if mask is not None and not self._allows(action, index, mask):
            raise InvalidAction(text, "not legal now")
        return action

    def _allows(self, action: Any, index: int | None, mask: Any) -> bool:
        if self._listed is not None:
            return action in self._listed.legal(mask) if index is None else self._listed.allows(index, mask)
        if self._own is None or not self.takes_masks:
            return True
        try:
            self._own.parse(self._own.render(action), mask)
        except InvalidAction:
            return False
        return True

    def render(self, action: Any) -> str:
        return self._own.render(action) if self._own is not None else str(action)

    def legal(self, mask: Any) -> tuple[Any, ...] | None:
        return None if self._own is None else self._own.legal(mask if self.takes_masks else None)

    def draw(self, seed: int, mask: Any) -> Any:
        if self._own is not None:
            return self._own.draw(seed, mask if self.takes_masks else None)
        own = copy.deepcopy(self._space)  # seeding the environment's object would disturb the environment
        own.seed(seed % 2**32)  # composite spaces refuse larger seeds
        return own.sample()
