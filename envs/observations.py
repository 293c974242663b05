"""Observations of any Gymnasium space as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Space, Text, Tuple
from gymnasium.spaces import Sequence as SequenceSpace
from gymnasium.vector.utils import iterate

from opentinker.envs.arrays import array_text, refuse_image
from opentinker.envs.text import TextSpace, encodable
from opentinker.envs.units import Units, check_units, number_units, part_units
from opentinker.errors import ConfigError, EnvError, value_text

CURE = "give the codec a `render` function (observation -> text)"
_PLAIN_KEY = re.compile(r"\w([\w .-]*\w)?")

Renderer = Callable[[Any], str]


def renderer(space: Space[Any] | None, units: Units = None) -> Renderer:
    """What writes the values of a space as text; a text alone as it is.

    Args:
        space: of the observations, without their action mask.
        units: see `TextCodec`.

    Raises:
        ConfigError: a space that has no text form, or units that do not fit.
    """
    if space is not None:
        check_units(units, space)
    return same if isinstance(space, (TextSpace, Text)) else _part(space, units)


def _part(space: Space[Any] | None, units: Units) -> Renderer:
    """How a space's values are written inside others; texts stand in quotes there."""
    if isinstance(space, (Discrete, Box, MultiDiscrete, MultiBinary)):
        if not isinstance(space, Discrete):
            refuse_image(space, "observations", CURE)
        own = number_units(units, space)
        return array_text if own is None else lambda value: array_text(value, own)
    if isinstance(space, (TextSpace, Text)):
        return lambda text: quoted(same(text))
    if isinstance(space, (Tuple, OneOf, Dict, SequenceSpace)):
        parts = part_units(units, space)
        if isinstance(space, SequenceSpace):
            return _sequence_text(space, _part(space.feature_space, parts[0]))
        if isinstance(space, Dict):
            keys = key_texts(space)
            return _dict_text({key: (keys[key], _part(inner, parts[key])) for key, inner in space.spaces.items()})
        inner = [_part(inner, parts[index]) for index, inner in enumerate(space.spaces)]
        return _tuple_text(inner) if isinstance(space, Tuple) else _one_of_text(inner)
    raise ConfigError(f"observations of {type(space).__name__} have no text form: {space}. {without_text(space)}; {CURE}")


def without_text(space: Space[Any] | None) -> str:
    """Why a space has no text form, as a sentence without its full stop."""
    if isinstance(space, Graph):
        return "A graph may be told in many ways, and which of them helps depends on the task"
    return (
        "Supported are Discrete, Box, MultiDiscrete, MultiBinary, Text and TextSpace, and Tuple, Dict, Sequence and OneOf "
        "of them"
    )


def quoted(text: str) -> str:
    """A text in double quotes, as JSON has it; lone surrogates, which have no UTF-8 form, as escapes."""
    return json.dumps(text, ensure_ascii=not encodable(text))


def key_texts(space: Dict) -> dict[Any, str]:
    """How the keys of a Dict are written: as they are where that is plain, else in quotes.

    Raises:
        ConfigError: two of them alike.
    """
    texts = {key: str(key) if _PLAIN_KEY.fullmatch(str(key)) else quoted(str(key)) for key in space.spaces}
    if len(set(texts.values())) < len(texts):
        raise ConfigError(f"two keys of {space} are written alike; {CURE}")
    return texts


def read_key(text: str) -> str:
    """The key that `key_texts` has written; lone surrogates that make a pair are read as the character it stands for."""
    return str(json.loads(text)) if text.startswith('"') else text


def _tuple_text(parts: Sequence[Renderer]) -> Renderer:
    def render(values: Any) -> str:
        return "(" + ", ".join([part(value) for part, value in zip(parts, values, strict=True)]) + ")"

    return render


def _dict_text(parts: Mapping[Any, tuple[str, Renderer]]) -> Renderer:
    def render(values: Any) -> str:
        return "{" + ", ".join([f"{name}: {part(values[key])}" for key, (name, part) in parts.items()]) + "}"

    return render


def _one_of_text(parts: Sequence[Renderer]) -> Renderer:
    def render(values: Any) -> str:
        index, value = values
        if not 0 <= index < len(parts):
            raise EnvError(f"an observation of a OneOf names part {index} of {len(parts)}: {value_text(values)}")
        return f"{int(index)}: {parts[index](value)}"

    return render


def _sequence_text(space: SequenceSpace, part: Renderer) -> Renderer:
    def render(values: Any) -> str:
        items = iterate(space.stacked_feature_space, values) if space.stack else values
        return "[" + ", ".join([part(item) for item in items]) + "]"

    return render


def same(observation: Any) -> str:
    """A text observation as it is.

    Raises:
        EnvError: it is no text.
    """
    if not isinstance(observation, str):
        kind = type(observation).__name__
        raise EnvError(f"a text observation was expected, the environment gave {kind}: {value_text(observation)}")
    return observation
