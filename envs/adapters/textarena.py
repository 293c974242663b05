"""`textarena/NAME`: the text games of TextArena (https://github.com/LeonGuertler/TextArena), written for version 0.7.4.

TextArena draws from the global generators and keeps what it has shown on its own objects, from one game to the next. Here an
episode is a fresh object of the library's with generators of its own, in whatever thread it is played.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import logging
import random
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from opentinker.envs.adapters.textarena_games import refusal, seats
from opentinker.envs.text import TextAECEnv, TextEnv, TextSpace
from opentinker.errors import ConfigError, EnvError, MissingExtra, message_text

logger = logging.getLogger(__name__)

TRANSCRIPT = 2**24
"""Characters of an observation at most: whole transcripts grow with the game."""
_RAW = "-raw"
_DIGITS = 4300
"""Python reads no longer number from a text; games that try to would raise."""
_ENDLESS = re.compile(rf"\d{{{_DIGITS + 1},}}")


def names() -> list[str]:
    """All registered ids, those that `make` refuses included.

    Raises:
        MissingExtra: TextArena is not installed.
    """
    return sorted(_registry())


def known(name: str) -> bool:
    """Whether TextArena has registered an id. Raises like `names`."""
    return name in _registry()


def canonical(name: str) -> str:
    """The id itself: none has two spellings."""
    return name


def make(name: str, *, players: int | None = None, new_only: bool = False, **kwargs: Any) -> TextAECEnv | TextEnv:
    """A game with its seats: a Gymnasium environment for one player, else an AEC environment.

    Args:
        name: an id of TextArena's registry, such as `TicTacToe-v0`. Its ending says what a player is shown and TextArena's
            wrappers make of it: nothing (the whole transcript so far), `-train` (mostly the rules and the present board) or
            `-raw` (what was said since the player's last turn). The first two fit `memory: last`, the last `memory: full`.
        players: how many sit down; None: the fewest the game takes, or the number that TextArena itself names.
        new_only: show what was said since the player's last turn, whatever the id.
        kwargs: of the game's own constructor, such as `max_turns`.

    Raises:
        ConfigError: a game that cannot be played (it says why), a number of players that it does not take, or kwargs that it
            does not have.
        MissingExtra: TextArena is not installed.
    """
    spec = _registry()[name]
    game = _folder(spec)
    reason = refusal(name, game)
    if reason:
        raise ConfigError(f"textarena/{name} cannot be played: {reason}")
    fitting, usual = seats(game)
    count = usual if players is None else players
    if isinstance(count, bool) or not isinstance(count, int) or count not in fitting:
        raise ConfigError(f"textarena/{name} is a game for {_numbers(fitting)} players, given: players={players!r}")
    _try_out(name, kwargs, None if players is None and not kwargs else count)
    match = functools.partial(Match, name, count, new_only or name.endswith(_RAW), kwargs)
    return TextArenaEnv(name, match) if count == 1 else TextArenaAECEnv(name, count, match)


def _numbers(fitting: range) -> str:
    if len(fitting) == 1:
        return str(fitting[0])
    return f"{fitting[0]} to {fitting[-1]}" if fitting.step == 1 else ", ".join(map(str, fitting))


class Match:
    """One episode of a game: an object of TextArena's that is used for nothing else, and its generators.

    Args:
        name: the id.
        players: how many.
        new_only: whether observations hold no more than what is new.
        kwargs: of the game's constructor; they stay as they are.
        seed: of everything that is random in it. TextArena's own `reset(seed=...)` after `random.seed(seed)` plays the same.
    """

    def __init__(self, name: str, players: int, new_only: bool, kwargs: Mapping[str, Any], seed: int) -> None:
        self._chance, self._numpy = random.Random(seed), np.random.RandomState(seed % 2**32)
        with self._playing(), _alone(name):
            self._env = _build(name, kwargs)
            self._env.reset(num_players=players, seed=seed)
        self._inner = _unwrapped(self._env)
        _end_without_survivors(self._inner.state)
        self._shown = self._inner if new_only else self._env

    @property
    def player(self) -> int:
        """Whose turn it is."""
        return int(self._inner.state.current_player_id)

    def observe(self) -> str:
        """What the player whose turn it is gets to read. To be asked once a turn: TextArena hands it out and forgets it."""
        with self._playing():
            _, shown = self._shown.get_observation()
        return shown if isinstance(shown, str) else self._lines(shown)

    def act(self, text: str) -> bool:
        """Gives the game the text of the player whose turn it is. Whether the game is over."""
        if len(text) > _DIGITS:
            text = _ENDLESS.sub(lambda run: run[0][:_DIGITS], text)
        with self._playing():
            done, _ = self._env.step(action=text)
        return bool(done)

    def last_words(self, player: int) -> str:
        """What was said since the player's last turn."""
        return self._lines(self._inner.state.observations[player])

    def result(self) -> tuple[dict[int, float], dict[int, dict[str, Any]]]:
        """Rewards and infos by player, at the end.

        Raises:
            EnvError: the game ended without a reward for everyone.
        """
        rewards, infos = self._env.close()
        everyone = range(self._inner.state.num_players)
        if rewards is None or any(rewards.get(player) is None for player in everyone):
            raise EnvError(f"the game ended with the rewards {rewards!r} for {len(everyone)} players")
        return {player: float(rewards[player]) for player in everyone}, infos

    def _lines(self, messages: list[tuple[int, str, Any]]) -> str:
        """As TextArena writes a transcript."""
        names = {**self._inner.state.role_mapping, -1: "GAME"}
        return "\n".join(f"[{names.get(sender, f'Player {sender}')}] {message}" for sender, message, _ in messages)

    def _playing(self) -> contextlib.AbstractContextManager[None]:
        return _drawing_from(self._chance, self._numpy)


class TextArenaEnv(TextEnv):
    """A game for one. Made by `make`."""

    def __init__(self, name: str, match: Callable[[int], Match]) -> None:
        self.metadata = {"name": f"textarena/{name}", "render_modes": []}
        self.observation_space, self.action_space = TextSpace(max_length=TRANSCRIPT), TextSpace()
        self._start = match

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """A new game."""
        super().reset(seed=seed)
        self._match = self._start(int(self.np_random.integers(2**32)) if seed is None else seed)
        return self._match.observe(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Hands on a reply, whatever it is: what is no move is met by the game's own rule."""
        if not self._match.act(action):
            return self._match.observe(), 0.0, False, False, {}
        rewards, infos = self._match.result()
        return self._match.last_words(0), rewards[0], True, False, infos[0]


class TextArenaAECEnv(TextAECEnv):
    """A game for several. Made by `make`.

    TextArena pays at the end; until then everyone stays in the game, those too whom it never asks again.
    """

    def __init__(self, name: str, players: int, match: Callable[[int], Match]) -> None:
        self.metadata = {"name": f"textarena/{name}", "render_modes": []}
        self.possible_agents = [f"player_{player}" for player in range(players)]
        self.agents = []
        self.observation_spaces = {agent: TextSpace(max_length=TRANSCRIPT) for agent in self.possible_agents}
        self.action_spaces = {agent: TextSpace() for agent in self.possible_agents}
        self._start = match
        self._texts: dict[str, str] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """A new game."""
        super().reset(seed=seed, options=options)
        self._match = self._start(self.rng.getrandbits(32) if seed is None else seed)
        self._texts = dict.fromkeys(self.possible_agents, "")
        self._turn()

    def observe(self, agent: str) -> str:
        """What the agent was shown at its latest turn, the present one included; at the end what was said since."""
        return self._texts[agent]

    def step(self, action: str | None) -> None:
        """Hands on a reply, whatever it is: what is no move is met by the game's own rule."""
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
        elif self._match.act(action or ""):
            self._end()
        else:
            self._turn()

    def _turn(self) -> None:
        agent = self.possible_agents[self._match.player]
        self.agent_selection, self._texts[agent] = agent, self._match.observe()

    def _end(self) -> None:
        rewards, infos = self._match.result()
        for player, agent in enumerate(self.possible_agents):
            self.rewards[agent], self.infos[agent] = rewards[player], infos[player]
            self._texts[agent] = self._match.last_words(player)
        self.terminations = dict.fromkeys(self.possible_agents, True)
        self._accumulate_rewards()


class _Drawn(threading.local):
    """The generators that the game of this thread draws from; the global ones outside of games."""

    python: Any = random
    numpy: Any = np.random


_DRAWN = _Drawn()


@contextlib.contextmanager
def _drawing_from(python: random.Random, numpy: np.random.RandomState) -> Iterator[None]:
    _DRAWN.python, _DRAWN.numpy = python, numpy
    try:
        yield
    finally:
        del _DRAWN.python, _DRAWN.numpy


class _Chance:
    """Stands for the module `random`, or `numpy.random`, in TextArena's modules."""

    def __init__(self, library: str) -> None:
        self._library, self._whole = library, random if library == "python" else np.random

    def __getattr__(self, name: str) -> Any:
        drawn = getattr(_DRAWN, self._library)
        return getattr(drawn, name) if hasattr(drawn, name) else getattr(self._whole, name)


def _numpy_with(chance: _Chance) -> types.ModuleType:
    module = types.ModuleType("numpy")
    vars(module).update(vars(np), random=chance)
    return module


_STAND_INS = {random: _Chance("python"), np: _numpy_with(_Chance("numpy"))}
_LOCK = threading.Lock()
_SHARED = {"Sokoban": threading.Lock()}
"""Games whose reset keeps its search in globals of its module: one at a time."""


def _quiet(*parts: Any, **_: Any) -> None:
    """Stands for `print` in the games."""
    logger.debug("%s", " ".join(map(str, parts)))


@functools.cache
def _registry() -> dict[str, Any]:
    try:
        _import("textarena")
    except ModuleNotFoundError as error:
        if error.name != "textarena":
            raise
        raise MissingExtra("textarena/…", "textarena") from error
    registry: dict[str, Any] = _import("textarena.envs.registration").ENV_REGISTRY
    return registry


@functools.cache
def _import(name: str) -> Any:
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # escapes and the like in its sources: nothing that a user could mend
        return importlib.import_module(name)


def _build(name: str, kwargs: Mapping[str, Any]) -> Any:
    spec = _registry()[name]
    # Copies: what a game does to a list that it was given must not reach the next one.
    given = copy.deepcopy({**spec.kwargs, **kwargs})
    return _import("textarena.envs.registration").make(name, **given)


def _try_out(name: str, kwargs: Mapping[str, Any], players: int | None) -> None:
    """Imports a game, lets it draw as `Match` has it, and makes it once; given players or kwargs it also deals to them."""
    try:
        _import(_registry()[name].entry_point.partition(":")[0])
        _tame()
        with _drawing_from(random.Random(0), np.random.RandomState(0)), _alone(name):
            env = _build(name, kwargs)
            if players is not None:
                env.reset(num_players=players, seed=0)
    except (ImportError, OSError) as error:
        raise ConfigError(f"textarena/{name} cannot be played here: {message_text(error)}") from error
    except SyntaxError as error:
        here = ".".join(map(str, sys.version_info[:2]))
        raise ConfigError(
            f"textarena/{name} cannot be played here: Python {here} cannot read its source: {message_text(error)}"
        ) from error


def _tame() -> None:
    with _LOCK:  # while nobody imports: half a module has no `random` to replace yet
        for name, module in list(sys.modules.items()):
            if name.startswith("textarena.") and not hasattr(module, "print"):
                for key, value in list(vars(module).items()):
                    if isinstance(value, types.ModuleType) and value in _STAND_INS:
                        setattr(module, key, _STAND_INS[value])
                module.print = _quiet  # type: ignore[attr-defined]


def _folder(spec: Any) -> str:
    """`TicTacToe` of `textarena.envs.TicTacToe.env:TicTacToeEnv`."""
    return str(spec.entry_point).split(".")[2]


def _unwrapped(env: Any) -> Any:
    wrapper = _import("textarena").Wrapper
    while isinstance(env, wrapper):
        env = env.env
    return env


def _end_without_survivors(state: Any) -> None:
    """A draw once everyone has been eliminated: there TextArena looks for the next player for ever."""
    step = state.step

    def ending(*args: Any, **kwargs: Any) -> Any:
        if not state.done and len(set(getattr(state, "elimination_order", ()))) == state.num_players:
            state.set_draw(reason="All players were eliminated.")
        return step(*args, **kwargs)

    state.step = ending


def _alone(name: str) -> contextlib.AbstractContextManager[Any]:
    return _SHARED.get(_folder(_registry()[name]), contextlib.nullcontext())
