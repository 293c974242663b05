"""Deliberately broken environments: one small game in all three APIs, and each fault that `check_env` finds, once in each.

The game: four cards between 0 and 1, one at a time; whoever says `high` of one above a half, or `low` of another, is paid 1.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium.spaces import Space

from opentinker.envs.text import TextAECEnv, TextEnv, TextParallelEnv, TextSpace

CARDS = 4
WORDS = ("high", "low")
SLEEP = 0.05
"""Seconds that a step of the slow ones takes."""


class _Cards:
    """The game; each fault changes one of its methods."""

    actions: Space[str] = TextSpace(choices=WORDS)
    observations: Space[str] = TextSpace(40)
    metadata: ClassVar[dict[str, Any]] = {"name": "cards_v0", "render_modes": [], "is_parallelizable": True}
    render_mode: str | None = None

    def chance(self) -> float:
        """The next number of the environment's own generator."""
        raise NotImplementedError

    def deal(self, seed: int | None) -> None:
        """The first card; the generator is seeded already."""
        self.played = 0
        self.card = self.draw()

    def draw(self) -> float:
        """A card."""
        return self.chance()

    def look(self) -> str:
        """What everybody sees."""
        return f"card {self.card:.4f}"

    def info(self) -> dict[str, Any]:
        """Both words are legal."""
        return {"action_mask": [1, 1]}

    def pay(self, action: str) -> float:
        """What a word is worth."""
        return float((action == "high") == (self.card > 0.5))

    def go_on(self, *actions: str) -> bool:
        """The next card. Returns whether that was the last one."""
        self.played += 1
        self.card = self.draw()
        return self.played == CARDS


class SoundEnv(_Cards, TextEnv):
    """Nothing is wrong with it."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = self.observations, self.actions

    def chance(self) -> float:
        """Gymnasium's generator."""
        return float(self.np_random.random())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """A new game."""
        super().reset(seed=seed)
        self.deal(seed)
        return self.look(), self.info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """A word."""
        reward = self.pay(action)
        over = self.go_on(action)
        return self.look(), reward, over, False, self.info()


class _Pair(_Cards):
    possible_agents: list[str]
    observation_spaces: Mapping[str, Space[str]]
    action_spaces: Mapping[str, Space[str]]

    def __init__(self) -> None:
        self.possible_agents = ["ann", "bob"]
        self.observation_spaces = dict.fromkeys(self.possible_agents, self.observations)
        self.action_spaces = dict.fromkeys(self.possible_agents, self.actions)


class SoundAECEnv(_Pair, TextAECEnv):
    """Nothing is wrong with it: two by turns."""

    def chance(self) -> float:
        """The generator of our own PettingZoo classes."""
        return self.rng.random()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """A new game."""
        super().reset(seed=seed, options=options)
        self.deal(seed)
        self.infos = {agent: self.info() for agent in self.agents}

    def observe(self, agent: str) -> str:
        """The card."""
        return self.look()

    def step(self, action: str) -> None:
        """A word; the card is the other's then."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.rewards[agent] = self.pay(action)
        self._accumulate_rewards()
        if self.go_on(action):
            self.terminations = dict.fromkeys(self.agents, True)
        self.infos = {agent: self.info() for agent in self.agents}
        self.agent_selection = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]


class SoundParallelEnv(_Pair, TextParallelEnv):
    """Nothing is wrong with it: two at once, on the same card."""

    def chance(self) -> float:
        """The generator of our own PettingZoo classes."""
        return self.rng.random()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """A new game."""
        self.begin(seed)
        self.deal(seed)
        return self._all(self.look()), {agent: self.info() for agent in self.agents}

    def step(self, actions: dict[str, str]) -> Any:
        """A word from each."""
        rewards = {agent: self.pay(action) for agent, action in actions.items()}
        over = self.go_on(*actions.values())
        infos = {agent: self.info() for agent in self.agents}
        answer = self._all(self.look()), rewards, self._all(over), self._all(False), infos
        self.agents = [] if over else self.agents
        return answer

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.agents, value)


class _GlobalRandom(_Cards):
    def deal(self, seed: int | None) -> None:
        random.seed(seed)
        super().deal(seed)

    def chance(self) -> float:
        return random.random()


class GlobalRandomEnv(_GlobalRandom, SoundEnv):
    """Seeds Python's global generator and draws from it."""


class GlobalRandomAECEnv(_GlobalRandom, SoundAECEnv):
    """Seeds Python's global generator and draws from it."""


class GlobalRandomParallelEnv(_GlobalRandom, SoundParallelEnv):
    """Seeds Python's global generator and draws from it."""


class _SharedState(_Cards):
    said: ClassVar[list[str]] = []  # one list for all objects: the fault

    def deal(self, seed: int | None) -> None:
        self.said.clear()
        super().deal(seed)

    def look(self) -> str:
        return f"{super().look()}, {len(self.said)} said"

    def go_on(self, *actions: str) -> bool:
        self.said.extend(actions)
        return super().go_on(*actions)


class SharedStateEnv(_SharedState, SoundEnv):
    """Keeps what was said in a list of the class."""


class SharedStateAECEnv(_SharedState, SoundAECEnv):
    """Keeps what was said in a list of the class."""


class SharedStateParallelEnv(_SharedState, SoundParallelEnv):
    """Keeps what was said in a list of the class."""


class _Unseeded(_Cards):
    def chance(self) -> float:
        return random.SystemRandom().random()


class UnseededEnv(_Unseeded, SoundEnv):
    """Draws from the operating system, whatever the seed."""


class UnseededAECEnv(_Unseeded, SoundAECEnv):
    """Draws from the operating system, whatever the seed."""


class UnseededParallelEnv(_Unseeded, SoundParallelEnv):
    """Draws from the operating system, whatever the seed."""


class _Leftover(_Cards):
    games = 0

    def deal(self, seed: int | None) -> None:
        self.games += 1
        super().deal(seed)

    def look(self) -> str:
        return f"game {self.games}: {super().look()}"


class LeftoverEnv(_Leftover, SoundEnv):
    """Shows in an episode what remains of those before it."""


class LeftoverAECEnv(_Leftover, SoundAECEnv):
    """Shows in an episode what remains of those before it."""


class LeftoverParallelEnv(_Leftover, SoundParallelEnv):
    """Shows in an episode what remains of those before it."""


class BornUnequalEnv(SoundEnv):
    """Draws in its constructor what no seed sets."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = random.SystemRandom().random()

    def look(self) -> str:
        """The card, moved."""
        return f"card {self.card + self.shift:.4f}"


class LastPayAECEnv(SoundAECEnv):
    """Pays the others once more in the last step of an agent that has ended."""

    def step(self, action: str) -> None:
        """A word; or, of one that has ended, None."""
        over = self.terminations[self.agent_selection]
        super().step(action)
        if over:
            self.rewards = dict.fromkeys(self.agents, 1.0)
            self._accumulate_rewards()


class LatePayAECEnv(SoundAECEnv):
    """Ann's first word is her last one, and she is paid with Bob for all that follow."""

    def step(self, action: str) -> None:
        """A word; or, of one that has ended, None."""
        agent = self.agent_selection
        over = self.terminations[agent]
        super().step(action)
        if agent == "ann" and not over:
            self.terminations["ann"] = True
            self._deads_step_first()
        elif "ann" not in self.agents and not over:
            self.rewards["ann"] = self._cumulative_rewards["ann"] = 1.0


class LatePayParallelEnv(SoundParallelEnv):
    """Ann ends with the first card, and is paid with Bob for all that follow."""

    def step(self, actions: dict[str, str]) -> Any:
        """A word from each who is left."""
        observations, rewards, terminated, truncated, infos = super().step(actions)
        if "ann" in actions:
            terminated["ann"] = True
            self.agents = ["bob"]
        else:
            rewards["ann"] = 1.0
        return observations, rewards, terminated, truncated, infos


class _NothingLegal(_Cards):
    def info(self) -> dict[str, Any]:
        return {"action_mask": [0, 0]} if self.played == 1 else super().info()


class NothingLegalEnv(_NothingLegal, SoundEnv):
    """Leaves no word legal on the second card."""


class NothingLegalAECEnv(_NothingLegal, SoundAECEnv):
    """Leaves no word legal on the second card."""


class NothingLegalParallelEnv(_NothingLegal, SoundParallelEnv):
    """Leaves no word legal on the second card."""


class _Loud(TextSpace):
    """Draws any text and holds those in capital letters."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and x.isupper()


class _Unreadable(_Cards):
    actions = _Loud(8)

    def info(self) -> dict[str, Any]:
        return {}


class UnreadableEnv(_Unreadable, SoundEnv):
    """Its space of words does not hold the words it draws."""


class UnreadableAECEnv(_Unreadable, SoundAECEnv):
    """Its space of words does not hold the words it draws."""


class UnreadableParallelEnv(_Unreadable, SoundParallelEnv):
    """Its space of words does not hold the words it draws."""


def always_high(text: str) -> str:
    """A `parse` that reads every text as the same word."""
    return "high"


def small_letters(text: str) -> str:
    """A `parse` that knows none of the words."""
    raise ValueError("say HIGH or LOW")


class _TooLong(_Cards):
    def look(self) -> str:
        return super().look() + "." * 40


class TooLongEnv(_TooLong, SoundEnv):
    """Shows more than its space of observations holds."""


class TooLongAECEnv(_TooLong, SoundAECEnv):
    """Shows more than its space of observations holds."""


class TooLongParallelEnv(_TooLong, SoundParallelEnv):
    """Shows more than its space of observations holds."""


class _Slow(_Cards):
    def go_on(self, *actions: str) -> bool:
        if self.played == 2:
            time.sleep(SLEEP)
        return super().go_on(*actions)


class SlowStepEnv(_Slow, SoundEnv):
    """Sleeps over the third card."""


class SlowStepAECEnv(_Slow, SoundAECEnv):
    """Sleeps over the third card."""


class SlowStepParallelEnv(_Slow, SoundParallelEnv):
    """Sleeps over the third card."""


SOUND = (SoundEnv, SoundAECEnv, SoundParallelEnv)
BROKEN: dict[str, tuple[type[_Cards], ...]] = {
    "global_random": (GlobalRandomEnv, GlobalRandomAECEnv, GlobalRandomParallelEnv),
    "shared_state": (SharedStateEnv, SharedStateAECEnv, SharedStateParallelEnv),
    "seed": (
        *(UnseededEnv, UnseededAECEnv, UnseededParallelEnv),
        *(LeftoverEnv, LeftoverAECEnv, LeftoverParallelEnv),
        BornUnequalEnv,
    ),
    "after_end": (LastPayAECEnv, LatePayAECEnv, LatePayParallelEnv),
    "mask": (NothingLegalEnv, NothingLegalAECEnv, NothingLegalParallelEnv),
    "parse": (UnreadableEnv, UnreadableAECEnv, UnreadableParallelEnv),
    "text": (TooLongEnv, TooLongAECEnv, TooLongParallelEnv),
    "slow": (SlowStepEnv, SlowStepAECEnv, SlowStepParallelEnv),
}
"""By the rule that they break: `slow` at a bound below `SLEEP`. A single agent cannot break `after_end`."""
