"""Any Gymnasium space as text: observations rendered, replies read back as actions, action masks applied."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gymnasium.spaces import Dict, Space, Text

from opentinker.envs.action_text import actions_of
from opentinker.envs.actions import Actions, CustomActions, drawn
from opentinker.envs.observations import renderer
from opentinker.envs.text import TextSpace
from opentinker.envs.units import Units
from opentinker.errors import ConfigError, EnvError, OpenTinkerError, error_text, value_text
from opentinker.registry import load_object

MASK = "action_mask"
OBSERVATION = "observation"


class TextCodec:
    """One agent's observations and actions as text. Implements `opentinker.types.ActionText`.

    Every space of Gymnasium has a text form, both ways and to any depth, but for Graph and for arrays the size of images:

    - Discrete: a number. As an action also one of `action_names`.
    - Box, MultiDiscrete, MultiBinary: (nested) lists of numbers, `[0.5, -1]`, infinite ones as `inf`. As an action alone the
      brackets may be left out.
    - Text and TextSpace: alone as they are, inside others in quotes.
    - Tuple `(3, [0, 1], "no")`, Dict `{hand: [1, 2], said: "no"}`, Sequence `[1, 0, 2]`, OneOf `1: 0.5` (index and value).
      Replies may be written as JSON, and without the outermost brackets.

    The `action_mask` of a Dict observation is left out; one with nothing else but `observation` is shown as that. Action
    masks have the structure of Gymnasium's `Space.sample(mask)`.

    `parse(render_action(action))` is the action again, for every action of a space. A name or choice is found exactly, then
    without white space around it, then, where it has two or more characters, in any case (a single character is too short to
    guess: `n` and `N` are different moves in chess).

    Args:
        observation_space: what `render` gets; may be None with a `render` of your own.
        action_space: what `parse` returns.
        action_names: one per action of a Discrete action space, in order.
        action_units: of the numbers of an action; `describe` tells them, replies may have them. One text for all, or in the
            shape of the space: a list for the numbers of an array or the parts of a Tuple or OneOf, a mapping for a Dict.
        observation_units: likewise; written behind the numbers.
        render: your own observation -> text; it gets the observation without its action mask.
        parse: your own text -> action. A ValueError or LookupError it raises is an invalid action, and so is an action
            outside of the space or masked out.

    Raises:
        ConfigError: a space that has no text form, or names or units that do not fit the space.
    """

    def __init__(
        self,
        observation_space: Space[Any] | None,
        action_space: Space[Any],
        *,
        action_names: Sequence[str] | None = None,
        action_units: Units = None,
        observation_units: Units = None,
        render: Callable[[Any], str] | None = None,
        parse: Callable[[str], Any] | None = None,
    ) -> None:
        for units, function, name in ((observation_units, render, "render"), (action_units, parse, "parse")):
            if units and function is not None:
                raise ConfigError(f"units {units!r} belong to the codec's own words, which `{name}` replaces; leave one out")
        self.observation_space, self.action_space = observation_space, action_space
        self._render = _renderer(observation_space, observation_units) if render is None else _checked(render)
        self._actions = _actions(action_space, action_names, action_units, parse)
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
        """A random legal action, all equally likely where they can be listed; equal seeds give equal actions.

        Raises:
            EnvError: the mask does not fit the space, or leaves no action.
        """
        return drawn(self._actions, seed, mask)


def _actions(
    space: Space[Any], names: Sequence[str] | None, units: Units, parse: Callable[[str], Any] | None
) -> Actions:
    if parse is None:
        return actions_of(space, names, units)
    try:
        own = actions_of(space, names, units)
    except ConfigError:
        if names is not None:
            raise
        own = None  # what the codec cannot write an author's function may still read
    return CustomActions(space, parse, own)


def _renderer(space: Space[Any] | None, units: Units) -> Callable[[Any], str]:
    if isinstance(space, Dict) and MASK in space.spaces:
        # what `split` leaves: the lone observation, or a dict of the rest
        rest = {key: inner for key, inner in space.spaces.items() if key != MASK}
        space = rest[OBSERVATION] if set(rest) == {OBSERVATION} else Dict(rest)
    return renderer(space, units)


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
