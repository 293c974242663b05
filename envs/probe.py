"""Episodes played at random on a live environment, event by event, with an eye on what an environment must not do."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

import numpy as np

from opentinker.answers import flag, info_of, reward_number
from opentinker.envs.codec import TextCodec
from opentinker.envs.world import AgentTurn, World
from opentinker.errors import EnvError, InvalidAction, error_text, value_text
from opentinker.seeding import derive

ACTIONS_TRIED = 20
"""So many of the legal actions of a decision are written and read back."""
Event = tuple[Any, ...]
"""One line of a played episode: what somebody saw and did, or what the world answered."""
Find = Callable[[str, str], None]
"""Takes a rule and what was seen."""


class _NoAction(Exception):
    """A mask left nothing to do; told already."""


class Probe:
    """Plays episodes at random; every action is a function of the seed and the step.

    It finds by itself: `text`, `parse`, `mask` and `after_end`.

    Args:
        env: a live environment.
        find: where findings go.
        codec_options: see `TextCodec`.

    Attributes:
        seconds: of each step of the latest episode, the environment's part alone.
    """

    def __init__(self, env: Any, find: Find, codec_options: Mapping[str, Any]) -> None:
        self._world = World(lambda: env)
        self._facts = self._world.open()
        self._name = type(env).__name__
        self._find, self._options = find, codec_options
        self._codecs: dict[str, TextCodec] = {}
        self.seconds: list[float] = []

    def events(self, seed: int, max_steps: int) -> Iterator[Event]:
        """One episode.

        Args:
            seed: of the environment, and of all actions.
            max_steps: longer episodes are cut.
        """
        play = {"solo": self._solo, "aec": self._aec, "parallel": self._parallel}[self._facts.kind]
        self.seconds = []
        try:
            yield from itertools.islice(play(seed), 2 * max_steps)
        except _NoAction:
            return

    def _solo(self, seed: int) -> Iterator[Event]:
        # It is not stepped after its end, not even for `after_end`: Gymnasium leaves open what that does, and environments
        # as sound as Taxi and Blackjack go on paying.
        agent = self._facts.possible_agents[0]
        observation, info = self._world.reset(seed, None)
        for step in itertools.count():
            text, action = self._decide(agent, observation, info, derive(seed, step))
            yield agent, text, str(action)
            observation, reward, terminated, truncated, info = self._timed(self._world.step, action)
            told = self._told(agent, reward, terminated, truncated)
            yield told
            if told[1] or told[2]:
                return

    def _aec(self, seed: int) -> Iterator[Event]:
        self._world.reset(seed, None)
        turn, left = self._world.turn(), list[str]()
        for step in itertools.count():
            if turn is None:
                return
            action, text = None, ""
            told = self._told(turn.agent, turn.reward, turn.terminated, turn.truncated)
            over = told[1] or told[2]
            if not over:
                text, action = self._decide(turn.agent, turn.observation, turn.info, derive(seed, step))
            yield turn.agent, text, str(action), *told
            before = self._world.owed() if over else {}
            following: AgentTurn | None = self._timed(self._world.step_turn, action)
            if over:
                left.append(turn.agent)
                self._paid_for_nothing(turn.agent, before)
            self._paid_late(left, self._world.owed())
            turn = following

    def _parallel(self, seed: int) -> Iterator[Event]:
        observations, infos = self._world.reset(seed, None)
        left: list[str] = []
        for step in itertools.count():
            agents = self._world.live_agents()
            if not agents:
                return
            decided = {
                agent: self._decide(agent, observations[agent], infos.get(agent, {}), derive(seed, step, agent))
                for agent in agents
            }
            yield tuple((agent, text, str(action)) for agent, (text, action) in decided.items())
            answer = self._timed(self._world.step, {agent: action for agent, (_, action) in decided.items()})
            observations, rewards, terminations, truncations, infos = answer
            told = {agent: self._told(agent, rewards[agent], terminations[agent], truncations[agent]) for agent in agents}
            yield tuple((agent, *facts) for agent, facts in told.items())
            self._paid_late(left, rewards)
            left += [agent for agent, (_, terminated, truncated) in told.items() if terminated or truncated]

    def _timed(self, call: Callable[[Any], Any], action: Any) -> Any:
        began = perf_counter()
        answer = call(action)
        self.seconds.append(perf_counter() - began)
        return answer

    def _paid_for_nothing(self, leaver: str, before: Mapping[str, float]) -> None:
        """A dead agent's step(None) is a leave-taking, in which nothing happens that could be paid."""
        for agent, owed in self._world.owed().items():
            more = owed - before.get(agent, 0)
            if agent != leaver and more:
                self._find("after_end", f"the last step of {leaver}, who had ended, added {more:g} to {agent}'s reward")

    def _paid_late(self, left: list[str], rewards: Mapping[str, Any]) -> None:
        for agent in left:
            if late := reward_number(rewards.get(agent, 0)):
                self._find("after_end", f"{agent} had ended and was later given the reward {late:g}")

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
        whole = observation
        observation, mask = codec.split(whole, info_of(info, self._name))
        text = codec.render(observation)
        space = codec.observation_space
        if isinstance(observation, str) and space is not None and whole not in space:
            self._find("text", f"{agent}'s observation {observation[:80]!r} is not in {space}")
        try:
            legal, action = codec.legal(mask), codec.sample(seed, mask)
        except EnvError as error:
            self._find("mask", f"when {agent} is to act, {error}")
            raise _NoAction from error
        for tried in [action] if legal is None else legal[:ACTIONS_TRIED]:
            self._read_back(codec, tried, mask)
        return text, action

    def _read_back(self, codec: TextCodec, action: Any, mask: Any) -> None:
        try:
            text = codec.render_action(action)
        except ValueError as error:
            self._find("parse", f"action {action!r}, drawn from its own space, cannot be written: {error_text(error)}")
            return
        try:
            read = codec.parse(text, mask)
        except InvalidAction as error:
            self._find("parse", f"action {action!r} is written {text!r}, which is not read back: {error}")
            return
        if not same_action(read, action):
            self._find("parse", f"action {action!r} is written {text!r}, which is read as {read!r}")


def same_action(one: Any, other: Any) -> bool:
    """Whether two actions are equal, through dicts and tuples down to their arrays."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_action(value, other[key]) for key, value in one.items())
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(same_action, one, other))
    return bool(np.array_equal(one, other))
