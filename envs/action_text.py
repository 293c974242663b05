"""From an action space to what reads and writes its actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Space, Text, Tuple
from gymnasium.spaces import Sequence as SequenceSpace

from opentinker.envs.actions import (
    Actions,
    Leaf,
    ListedActions,
    RangeActions,
    TextActions,
    range_sentence,
    range_text,
)
from opentinker.envs.array_actions import CURE, ArrayActions
from opentinker.envs.cursor import Cursor, Misread
from opentinker.envs.menu import MenuActions, MenuSpace
from opentinker.envs.nested import DictPart, LeafPart, OneOfPart, Part, SequencePart, TuplePart
from opentinker.envs.observations import without_text
from opentinker.envs.text import TextSpace
from opentinker.envs.units import Units, check_units, number_units, part_units
from opentinker.errors import ConfigError, InvalidAction

LISTED = 4096
"""Discrete spaces up to this size are listed in full; larger ones are parsed as numbers."""
SPELLED_OUT = 20
"""Numbers up to this many are named one by one in `describe`."""

_BRACKETS = {Tuple: "()", Dict: "{}", SequenceSpace: "[]"}


class NestedActions:
    """Actions made of others; the outermost brackets may be left out."""

    takes_masks = True

    def __init__(self, part: Part, brackets: str) -> None:
        self._part, self._brackets = part, brackets
        self._sentence = self._how(None)

    def describe(self, mask: Any) -> str:
        return self._sentence if mask is None else self._how(mask)

    def _how(self, mask: Any) -> str:
        return f"Answer in this form, with a value in the place of every <...>: {self._part.form(mask)}"

    def parse(self, text: str, mask: Any) -> Any:
        cursor = Cursor(self._enclosed(text))
        try:
            action = self._part.read(cursor, mask)
            cursor.end()
        except Misread as error:
            reason = f"{', '.join(error.place)}: {error.reason}" if error.place else error.reason
            raise InvalidAction(text, reason if text.strip() else "the reply is empty", error.legal) from None
        return action

    def _enclosed(self, text: str) -> str:
        if not self._brackets or text.lstrip()[:1] in ("{" if self._brackets == "{}" else "(["):
            return text
        return self._brackets[0] + text + self._brackets[1]

    def render(self, action: Any) -> str:
        return self._part.text(action)

    def legal(self, mask: Any) -> None:
        if mask is not None:
            self._part.check(mask)

    def draw(self, seed: int, mask: Any) -> Any:
        return self._part.draw(seed, mask)


def actions_of(space: Space[Any], names: Sequence[str] | None, units: Units) -> Actions:
    """What reads and writes the actions of a space.

    Raises:
        ConfigError: a space that has no text form, or names or units that do not fit it.
    """
    if names is not None:
        return _named(space, names, units)
    check_units(units, space)
    leaf = _leaf(space, units)
    if leaf is not None:
        return leaf
    brackets = next((pair for kind, pair in _BRACKETS.items() if isinstance(space, kind)), "")
    return NestedActions(_part(space, units), brackets)


def _leaf(space: Space[Any], units: Units) -> Leaf | None:
    if isinstance(space, Discrete):
        return _discrete(space, (number_units(units, space) or ("",))[0])
    if isinstance(space, MenuSpace):
        return MenuActions(space)
    if isinstance(space, TextSpace) and space.choices is not None:
        return ListedActions(space, space.choices, space.choices, told=True)
    if isinstance(space, (TextSpace, Text)):
        return TextActions(space)
    if isinstance(space, (Box, MultiDiscrete, MultiBinary)):
        return ArrayActions(space, number_units(units, space))
    return None


def _part(space: Space[Any], units: Units) -> Part:
    leaf = _leaf(space, units)
    if leaf is not None:
        return LeafPart(leaf, isinstance(space, (TextSpace, Text)))
    if not isinstance(space, (Tuple, Dict, SequenceSpace, OneOf)):
        raise ConfigError(f"actions of {type(space).__name__} have no text form: {space}. {without_text(space)}; {CURE}")
    own = part_units(units, space)
    if isinstance(space, SequenceSpace):
        return SequencePart(space, _part(space.feature_space, own[0]))
    if isinstance(space, Dict):
        return DictPart(space, {key: _part(inner, own[key]) for key, inner in space.spaces.items()})
    parts = [_part(inner, own[index]) for index, inner in enumerate(space.spaces)]
    return TuplePart(space, parts) if isinstance(space, Tuple) else OneOfPart(space, parts)


def _discrete(space: Discrete[Any], unit: str) -> ListedActions | RangeActions:
    count, start = int(space.n), int(space.start)
    if count > LISTED:
        return RangeActions(space, unit)
    numbers, last = range(start, start + count), start + count - 1
    many = count > SPELLED_OUT
    return ListedActions(
        space,
        numbers,
        list(map(str, numbers)),
        sentence=range_sentence(start, last, unit) if many else None,
        form=range_text(start, last, unit) if many else None,
        unit=unit,
    )


def _named(space: Space[Any], names: Sequence[str], units: Units) -> ListedActions:
    if not isinstance(space, Discrete):
        raise ConfigError(f"action_names name the actions of a Discrete space, this one is {space}")
    if units:
        raise ConfigError(f"action_names {list(names)!r} replace the numbers of {space}; leave out action_units {units!r}")
    count, start = int(space.n), int(space.start)
    named = all(isinstance(name, str) and name.strip() for name in names)
    if len(names) != count or len(set(names)) != count or not named:
        raise ConfigError(f"action_names needs {count} different names, one per action of {space}, given: {list(names)!r}")
    return ListedActions(space, tuple(range(start, start + count)), tuple(names))
