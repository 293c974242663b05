"""Any supported Gymnasium space as text: observations rendered, replies read back as actions, action masks applied."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple

from opentinker.envs.actions import (
    Actions,
    BoxActions,
    CustomActions,
    ListedActions,
    RangeActions,
    TextActions,
    range_sentence,
)
from opentinker.envs.arrays import array_text
from opentinker.envs.text import TextSpace
from opentinker.errors import ConfigError, EnvError, OpenTinkerError, error_text, value_text
from opentinker.registry import load_object

LISTED = 4096
"""Discrete spaces up to this size are listed in full; larger ones are parsed as numbers."""
SPELLED_OUT = 20
"""Numbers up to this many are named one by one in `describe`."""

MASK = "action_mask"
OBSERVATION = "observation"


class TextCodec:
    """One agent's observations and actions as text. Implements `opentinker.types.ActionText`.

    Observations: TextSpace and Text as they are, Discrete as a number, Box, MultiDiscrete and MultiBinary as (nested) lists
    of numbers, Tuple as `(3, 10, 0)` and Dict as `{hand: [1, 2], said: "no"}`, of any of these, its `action_mask` left out;
    a Dict with nothing else but `observation` is shown as that. Actions: Discrete, TextSpace, Text and Box. For every other
    space hand in `render` or `parse`.

    `parse(render_action(action))` is the action again, for every action of a supported space. A name or choice is found
    exactly, then without white space around it, then, where it has two or more characters, in any case (a single character
    is too short to guess: `n` and `N` are different moves in chess).

    Args:
        observation_space: what `render` gets; may be None with a `render` of your own.
        action_space: what `parse` returns.
        action_names: one per action of a Discrete action space, in order.
        render: your own observation -> text; it gets the observation without its action mask.
        parse: your own text -> action. A ValueError or LookupError it raises is an invalid action, and so is an action
            outside of the space or masked out.

    Raises:
        ConfigError: a space that has no text form yet, or names that do not fit the space.
    """

    def __init__(
        self,
        observation_space: Space[Any] | None,
        action_space: Space[Any],
        *,
        action_names: Sequence[str] | None = None,
        render: Callable[[Any], str] | None = None,
        parse: Callable[[str], Any] | None = None,
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._render = _renderer(observation_space) if render is None else _checked(render)
        self._actions = _actions(action_space, action_names, parse)
        self.rewords = render is not None and isinstance(observation_space, (TextSpace, Text))
        """Whether observations are texts already and `render` puts them otherwise."""

    def __repr__(self) -> str:
        return f"TextCodec({self.observation_space}, {self.action_space})"

    def render(self, observation: Any) -> str:
        """An observation as text. One that still holds its action mask is shown without it."""
        if isinstance(observation, dict) and MASK in observation:
            observation, _ = self.split(observation, {})
        return self._render(observation)

    def split(self, observation: Any, info: Mapping[str, Any]) -> tuple[Any, Any]:
        """The observation without its mask, and the mask: the observation's own, else the one in `info`, else None."""
        if isinstance(observation, dict) and MASK in observation:
            rest = {key: value for key, value in observation.items() if key != MASK}
            return (rest[OBSERVATION] if set(rest) == {OBSERVATION} else rest), observation[MASK]
        return observation, info.get(MASK) if info else None

    def describe(self, mask: Any = None) -> str:
        """How to answer, in words; empty for a TextSpace, whose observations say so themselves."""
        return self._actions.describe(mask)

    def parse(self, text: str, mask: Any = None) -> Any:
        """The action a reply names.

        Raises:
            InvalidAction: it names none, or one that the mask forbids.
            EnvError: the mask does not fit the space, or leaves no action; so says every other method that takes one.
        """
        return self._actions.parse(text, mask)

    def render_action(self, action: Any) -> str:
        """The text that `parse` reads back as this action.

        Raises:
            ValueError: not an action of the space.
        """
        return self._actions.render(action)

    def legal(self, mask: Any = None) -> tuple[Any, ...] | None:
        """All legal actions in order, or None where they cannot be listed."""
        return self._actions.legal(mask)

    def sample(self, seed: int, mask: Any = None) -> Any:
        """A uniformly drawn legal action; equal seeds give equal actions.

        Raises:
            EnvError: the mask does not fit the space, or leaves no action.
        """
        legal = self._actions.legal(mask)
        if legal is None:
            return self._actions.draw(seed)
        return legal[random.Random(seed).randrange(len(legal))]


def _actions(space: Space[Any], names: Sequence[str] | None, parse: Callable[[str], Any] | None) -> Actions:
    if names is not None and not isinstance(space, Discrete):
        raise ConfigError(f"action_names name the actions of a Discrete space, this one is {space}")
    listed = _listed(space, names)
    if parse is not None:
        return CustomActions(space, parse, listed)
    if listed is not None:
        return listed
    if isinstance(space, Discrete):
        return RangeActions(space)
    if isinstance(space, (TextSpace, Text)):
        return TextActions(space)
    if isinstance(space, Box):
        return BoxActions(space)
    raise ConfigError(
        f"actions of {type(space).__name__} have no text form: {space}. Supported are Discrete, Box, Text and TextSpace; "
        "for others give the codec a `parse` function (text -> action)"
    )


def _listed(space: Space[Any], names: Sequence[str] | None) -> ListedActions | None:
    if isinstance(space, TextSpace) and space.choices is not None:
        return ListedActions(space, space.choices, space.choices, told=True)
    if not isinstance(space, Discrete):
        return None
    count, start = int(space.n), int(space.start)
    if names is None:
        if count > LISTED:
            return None
        numbers = range(start, start + count)
        sentence = range_sentence(start, start + count - 1) if count > SPELLED_OUT else None
        return ListedActions(space, numbers, list(map(str, numbers)), sentence=sentence)
    named = all(isinstance(name, str) and name.strip() for name in names)
    if len(names) != count or len(set(names)) != count or not named:
        raise ConfigError(f"action_names needs {count} different names, one per action of {space}, given: {list(names)!r}")
    return ListedActions(space, tuple(range(start, start + count)), tuple(names))


def text_function(name: Literal["render", "parse"], given: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
    """A codec's `render` or `parse` as a configuration or a caller gives it.

    Args:
        name: which of the two, for messages.
        given: a function of one argument, its import path `package.module:function`, or None.

    Raises:
        ConfigError: it cannot be imported, is no function, or does not take one argument.
    """
    if given is None:
        return None
    form = "observation -> text" if name == "render" else "text -> action"
    try:
        found: Any = load_object(given) if isinstance(given, str) else given
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}; give a function ({form}) as package.module:function") from error
    if not callable(found):
        raise ConfigError(f"{name}: {given!r} is a {type(found).__name__}; it must be a function ({form})")
    try:
        inspect.signature(found).bind(None)
    except TypeError as error:
        raise ConfigError(f"{name}: {given!r} cannot be called with one argument ({form}): {error}") from error
    except ValueError:  # some built-in types tell no signature
        pass
    return found  # type: ignore[no-any-return]


def _checked(render: Callable[[Any], str]) -> Callable[[Any], str]:
    def checked(observation: Any) -> str:
        try:
            text = render(observation)
        except (KeyboardInterrupt, OpenTinkerError):
            raise
        except BaseException as error:
            raise EnvError(f"`render` raised {error_text(error)}") from error
        if not isinstance(text, str):
            raise EnvError(f"`render` returned a {type(text).__name__}, not text: {value_text(text)}")
        return text

    return checked


def _renderer(space: Space[Any] | None) -> Callable[[Any], str]:
    if isinstance(space, Dict) and MASK in space.spaces:
        # what `split` leaves: the lone observation, or a dict of the rest
        rest = {key: inner for key, inner in space.spaces.items() if key != MASK}
        space = rest[OBSERVATION] if set(rest) == {OBSERVATION} else Dict(rest)
    return _same if isinstance(space, (TextSpace, Text)) else _part(space)


def _part(space: Space[Any] | None) -> Callable[[Any], str]:
    """How a space's values are written inside others; texts stand in quotes there."""
    if isinstance(space, (Discrete, Box, MultiDiscrete, MultiBinary)):
        return array_text
    if isinstance(space, (TextSpace, Text)):
        return lambda text: json.dumps(_same(text), ensure_ascii=False)
    if isinstance(space, Tuple):
        return _tuple_text([_part(inner) for inner in space.spaces])
    if isinstance(space, Dict):
        return _dict_text({key: _part(inner) for key, inner in space.spaces.items()})
    raise ConfigError(
        f"observations of {type(space).__name__} have no text form: {space}. Supported are TextSpace, Text, Discrete, Box, "
        "MultiDiscrete, MultiBinary, and Tuple and Dict of them; for others give the codec a `render` function "
        "(observation -> text)"
    )


def _tuple_text(parts: Sequence[Callable[[Any], str]]) -> Callable[[Any], str]:
    def render(values: Any) -> str:
        return "(" + ", ".join([part(value) for part, value in zip(parts, values, strict=True)]) + ")"

    return render


def _dict_text(parts: Mapping[str, Callable[[Any], str]]) -> Callable[[Any], str]:
    def render(values: Any) -> str:
        return "{" + ", ".join([f"{key}: {part(values[key])}" for key, part in parts.items()]) + "}"

    return render


def _same(observation: Any) -> str:
    if not isinstance(observation, str):
        kind = type(observation).__name__
        raise EnvError(f"a text observation was expected, the environment gave {kind}: {value_text(observation)}")
    return observation
