"""What environments answer, taken for what it says and nothing else: truth values, rewards, infos."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from opentinker.errors import EnvError, value_text


def flag(given: Any, name: str, agent: str, env: str) -> bool:
    """Whether an agent is terminated or truncated.

    Args:
        given: True or False, 0 or 1; also NumPy's, or an array without dimensions.
        name: `terminated` or `truncated`.
        agent: whose it is.
        env: the environment's id.

    Raises:
        EnvError: it is something else, whose truth value would say little: "no" is true.
    """
    if given is True or given is False:
        return given
    number = given.item() if getattr(given, "shape", None) == () else given
    if isinstance(number, (int, float)) and number in (0, 1):
        return bool(number)
    raise EnvError(f"{env!r} gave {agent} as {name} {value_text(given)}; give True or False")


def reward_number(given: Any) -> float:
    """A reward as a float; not a number for what is none, texts of numbers included."""
    if type(given) is float:
        return given
    if isinstance(given, (str, bytes, bytearray)):
        return math.nan
    try:
        return float(given)
    except Exception:  # also of a whole number too large for a float, and whatever another type's own method raises
        return math.nan


def info_of(given: Any, env: str) -> Mapping[str, Any]:
    """An agent's info; None stands for an empty one.

    Raises:
        EnvError: it is no mapping.
    """
    if type(given) is dict or isinstance(given, Mapping):
        return given
    if given is None:
        return {}
    raise EnvError(f"{env!r} gave a {type(given).__name__} as info: {value_text(given)}; give a dict")
