"""What environment authors run: the upstream API tests, and what training adds to them."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opentinker.answers import flag, info_of, reward_number
from opentinker.envs.codec import TextCodec, text_function
from opentinker.envs.registry import prepare
from opentinker.envs.world import World
from opentinker.errors import ConfigError, EnvError, InvalidAction, error_text, message_text, value_text
from opentinker.seeding import derive

_ACTIONS_TRIED = 20
_RAISED = (Exception, SystemExit, GeneratorExit)
"""What an environment may raise; all of it is a finding."""
Event = tuple[Any, ...]
"""One line of a played episode: what somebody saw and did, or what the world answered."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with an environment."""

    rule: str
    """`api`, `play`, `text`, `parse`, `seed`, `shared_state` or `global_random`."""
    message: str


def check_env(
    env_or_id: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
    max_steps: int = 500,
    action_names: Sequence[str] | None = None,
    render: Callable[[Any], str] | str | None = None,
    parse: Callable[[str], Any] | str | None = None,
) -> list[Finding]:
    """Plays an environment at random and reports what would spoil a training run.

    - `api`: what Gymnasium's `check_env`, PettingZoo's `api_test` or `parallel_api_test` objects to.
    - `play`: a call raised, or the spaces have no text form.
    - `text`: a rendered observation is no text, or a text observation is outside of its space.
    - `parse`: an action is not read back from its own text.
    - `seed`: two episodes with one seed and the same actions differ.
    - `shared_state`: two objects played turn about do not play as one alone does (ids only).
    - `global_random`: it draws from Python's or NumPy's global generator.

    Args:
        env_or_id: an id as for `make_env`, or a live object, which is reset and played.
        kwargs: of the constructor, for an id.
        seed: of the episodes.
        max_steps: longer episodes are cut.
        action_names: see `TextCodec`.
        render: see `open_env`.
        parse: see `open_env`.

    Returns:
        What was found; empty for a sound environment.

    Raises:
        UnknownId, ConfigError: as `open_env`; or `kwargs` were given for a live object.
    """
    options = {
        "action_names": action_names,
        "render": text_function("render", render),
        "parse": text_function("parse", parse),
    }
    if kwargs and not isinstance(env_or_id, str):
        raise ConfigError(f"kwargs are for an environment's id; {type(env_or_id).__name__} is made already")
    build = prepare(env_or_id, kwargs or {}) if isinstance(env_or_id, str) else lambda: env_or_id
    check = _Check(build, seed, max_steps, options)
    first = check.episode()
    if first is not None:
        check.same("seed", "two episodes with one seed and the same actions differ", first, check.episode())
        if isinstance(env_or_id, str):
            check.turn_about(first)
    check.upstream()
    return check.findings


class _Check:
    def __init__(self, build: Callable[[], Any], seed: int, max_steps: int, codec_options: dict[str, Any]) -> None:
        self._build, self._seed, self._max_steps, self._options = build, seed, max_steps, codec_options
        self._env = build()
        self.findings: list[Finding] = []

    def find(self, rule: str, message: str) -> None:
        """Each rule is reported once: what follows is mostly the same fault again."""
        if all(finding.rule != rule for finding in self.findings):
            self.findings.append(Finding(rule, message))

    def episode(self) -> list[Event] | None:
        before = _global_generators()
        try:
            events = list(self._events(self._env, self._seed))
        except _RAISED as error:
            self.find("play", error_text(error))
            return None
        if _global_generators() != before:
            self.find("global_random", "an episode drew from a global generator; draw from the environment's own")
        return events

    def same(self, rule: str, message: str, first: list[Event], second: list[Event] | None) -> None:
        for index, (one, other) in enumerate(itertools.zip_longest(first, second or [])):
            if one != other:
                self.find(rule, f"{message}: event {index} was {one!r}, then {other!r}")
                return

    def turn_about(self, alone: list[Event]) -> None:
        """Another object with another seed moves between the moves of one with the first seed."""
        one, other = self._events(self._env, self._seed), self._events(self._build(), self._seed + 1)
        try:
            mixed = [event for event, _ in itertools.zip_longest(one, other) if event is not None]
        except _RAISED as error:
            self.find("shared_state", f"two objects played turn about: {error_text(error)}")
            return
        self.same("shared_state", "an object plays differently while another one plays", alone, mixed)

    def _events(self, env: Any, seed: int) -> Iterator[Event]:
        return _Player(env, self.find, self._options).events(seed, self._max_steps)

    def upstream(self) -> None:
        world = World(lambda: self._env)
        try:
            kind = world.open().kind
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")  # advice; only what the tests refuse is a finding
                _UPSTREAM[kind](self._env)
        except AttributeError as error:
            # api_test reads the dtype of every observation; a plain str of a sound environment has none.
            if "'str' object has no attribute 'dtype'" not in message_text(error):
                self.find("api", error_text(error))
        except _RAISED as error:
            self.find("api", error_text(error))


def _solo_api(env: Any) -> None:
    from gymnasium.utils.env_checker import check_env as check

    check(env.unwrapped, skip_render_check=True, skip_close_check=True)


def _aec_api(env: Any) -> None:
    from pettingzoo.test import api_test  # type: ignore[import-untyped]

    api_test(env, num_cycles=50)


def _parallel_api(env: Any) -> None:
    from pettingzoo.test import parallel_api_test

    absent = object()
    before = getattr(env, "max_cycles", absent)
    try:
        parallel_api_test(env, num_cycles=50)
    finally:  # the test writes its own limit into the environment
        if before is absent:
            del env.max_cycles
        else:
            env.max_cycles = before


_UPSTREAM = {"solo": _solo_api, "aec": _aec_api, "parallel": _parallel_api}


class _Player:
    """Plays episodes at random; every action is a function of the seed and the step."""

    def __init__(self, env: Any, find: Callable[[str, str], None], codec_options: dict[str, Any]) -> None:
        self._world = World(lambda: env)
        self._facts = self._world.open()
        self._name = type(env).__name__
        self._find, self._options = find, codec_options
        self._codecs: dict[str, TextCodec] = {}

    def events(self, seed: int, max_steps: int) -> Iterator[Event]:
        play = {"solo": self._solo, "aec": self._aec, "parallel": self._parallel}[self._facts.kind]
        return itertools.islice(play(seed), 2 * max_steps)

    def _solo(self, seed: int) -> Iterator[Event]:
        agent = self._facts.possible_agents[0]
        observation, info = self._world.reset(seed, None)
        for step in itertools.count():
            text, action = self._decide(agent, observation, info, derive(seed, step))
            yield agent, text, str(action)
            observation, reward, terminated, truncated, info = self._world.step(action)
            told = self._told(agent, reward, terminated, truncated)
            yield told
            if told[1] or told[2]:
                return

    def _aec(self, seed: int) -> Iterator[Event]:
        self._world.reset(seed, None)
        for step in itertools.count():
            turn = self._world.turn()
            if turn is None:
                return
            action, text = None, ""
            told = self._told(turn.agent, turn.reward, turn.terminated, turn.truncated)
            if not told[1] and not told[2]:
                text, action = self._decide(turn.agent, turn.observation, turn.info, derive(seed, step))
            yield turn.agent, text, str(action), *told
            self._world.step(action)

    def _parallel(self, seed: int) -> Iterator[Event]:
        observations, infos = self._world.reset(seed, None)
        for step in itertools.count():
            agents = self._world.live_agents()
            if not agents:
                return
            decided = {
                agent: self._decide(agent, observations[agent], infos.get(agent, {}), derive(seed, step, agent))
                for agent in agents
            }
            yield tuple((agent, text, str(action)) for agent, (text, action) in decided.items())
            answer = self._world.step({agent: action for agent, (_, action) in decided.items()})
            observations, rewards, terminations, truncations, infos = answer
            yield tuple((a, *self._told(a, rewards[a], terminations[a], truncations[a])) for a in agents)

    def _told(self, agent: str, reward: Any, terminated: Any, truncated: Any) -> tuple[float, bool, bool]:
        value = reward_number(reward)
        if not math.isfinite(value):
            raise EnvError(f"{self._name!r} gave {agent} the reward {value_text(reward)}; give a finite number")
        over = flag(terminated, "terminated", agent, self._name)
        return value, over, flag(truncated, "truncated", agent, self._name)

    def _decide(self, agent: str, observation: Any, info: Any, seed: int) -> tuple[str, Any]:
        codec = self._codecs.get(agent)
        if codec is None:
            codec = self._codecs[agent] = TextCodec(*self._world.spaces(agent), **self._options)
        observation, mask = codec.split(observation, info_of(info, self._name))
        text = codec.render(observation)
        space = codec.observation_space
        if isinstance(observation, str) and space is not None and observation not in space:
            self._find("text", f"{agent}'s observation {observation[:80]!r} is not in {space}")
        action = codec.sample(seed, mask)
        legal = codec.legal(mask)
        for tried in [action] if legal is None else legal[:_ACTIONS_TRIED]:
            self._read_back(codec, tried, mask)
        return text, action

    def _read_back(self, codec: TextCodec, action: Any, mask: Any) -> None:
        text = codec.render_action(action)
        try:
            read = codec.parse(text, mask)
        except InvalidAction as error:
            self._find("parse", f"action {action!r} is written {text!r}, which is not read back: {error}")
            return
        if not np.array_equal(read, action):
            self._find("parse", f"action {action!r} is written {text!r}, which is read as {read!r}")


def _global_generators() -> tuple[Any, ...]:
    name, keys, *rest = np.random.get_state()
    return random.getstate(), name, np.asarray(keys).tobytes(), *rest
