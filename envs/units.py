"""Units of the numbers of a space, as an author gives them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, OneOf, Space, Tuple
from gymnasium.spaces import Sequence as SequenceSpace

from opentinker.errors import ConfigError, value_text

Units: TypeAlias = "str | Sequence[Any] | Mapping[str, Any] | None"
"""One text for every number; or, in the shape of the space, a list with units for each number of an array or part of a
Tuple or OneOf, and a mapping with units for the keys of a Dict. None and empty texts: no unit."""


def number_units(units: Units, space: Space[Any]) -> tuple[str, ...] | None:
    """The units of a Discrete or of an array, one for each number in order; None where there is none.

    Raises:
        ConfigError: they do not fit the space.
    """
    count = math.prod(space.shape or ())
    if units is None or isinstance(units, str):
        return (units,) * count if units else None
    if not isinstance(units, Sequence) or len(units) != count or not all(_is_unit(unit) for unit in units):
        raise _misfit(units, space, f"give one text, or a list of {count}, one for each number")
    own = tuple(unit or "" for unit in units)
    return own if any(own) else None


def part_units(units: Units, space: Tuple[Any] | Dict | OneOf[Any] | SequenceSpace) -> dict[Any, Units]:
    """The units of each part, by its key or index; a Sequence has one part, which is every item.

    Raises:
        ConfigError: they do not fit the space.
    """
    if isinstance(space, SequenceSpace):
        return {0: units}
    keys: list[Any] = list(space.spaces) if isinstance(space, Dict) else list(range(len(space.spaces)))
    if units is None or isinstance(units, str):
        return dict.fromkeys(keys, units)
    if isinstance(space, Dict):
        if not isinstance(units, Mapping) or not set(units) <= set(keys):
            raise _misfit(units, space, f"give one text, or a mapping of units for some of {keys}")
        return {key: units.get(key) for key in keys}
    if not isinstance(units, Sequence) or len(units) != len(keys):
        raise _misfit(units, space, f"give one text, or a list of {len(keys)}, one for each part")
    return dict(zip(keys, units, strict=True))


def check_units(units: Units, space: Space[Any]) -> None:
    """Refuses units for spaces without numbers.

    Raises:
        ConfigError: there are units and nothing to give them to.
    """
    parts = (Discrete, Box, MultiDiscrete, MultiBinary, Tuple, Dict, OneOf, SequenceSpace)
    if units is not None and not isinstance(space, parts):
        raise _misfit(units, space, "it has no numbers: leave them out")


def unit_pattern(units: Sequence[str] | None) -> re.Pattern[str] | None:
    """Where a reply writes one of the units behind a number."""
    words = sorted({unit.strip() for unit in units or ()} - {""}, key=len, reverse=True)
    if not words:
        return None
    return re.compile(rf"(?<=[0-9.])\s*(?:{'|'.join(map(re.escape, words))})(?=[\s,;\[\](){{}}]|$)")


def _is_unit(unit: Any) -> bool:
    return unit is None or isinstance(unit, str)


def _misfit(units: Any, space: Space[Any], cure: str) -> ConfigError:
    return ConfigError(f"the units {value_text(units)} do not fit {space}; {cure}")
