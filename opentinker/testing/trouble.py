"""A small game in all three APIs in which a known share of the episodes goes wrong, each in a way of its own."""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from opentinker.envs.text import TextAECEnv, TextEnv, TextParallelEnv, TextSpace

WORDS = ("low", "mid", "high")
ROUNDS = 3
AT = 2
"""The round in which trouble comes, unless it comes in `reset`."""
POISON = "~~~"
"""What an observation of the kind `poisoned observation` is: for models that make nothing of it."""

OBSERVATIONS: dict[str, Any] = {"no observation": None, "observation of another type": 3.5, "poisoned observation": POISON}
REWARDS: dict[str, Any] = {
    "reward nan": math.nan,
    "reward infinite": -math.inf,
    "reward text": "a lot",
    "no reward": None,
    "reward too large": 10**400,
}
MASKS: dict[str, Any] = {"nothing legal": [0, 0, 0], "mask too short": [1], "mask of texts": ["yes", "no", "no"]}

INFOS: dict[str, Any] = {"info of another type": ["a list"]}
FLAGS: dict[str, Any] = {"flag of text": "no"}

RAISING = ("reset raises", "step raises", "step exits", "step raises GeneratorExit", "step raises without a text")
HANGING = ("reset hangs", "step hangs")
GARBAGE = (*OBSERVATIONS, *REWARDS, *MASKS, *INFOS, *FLAGS)
TUPLES = ("reset of one value", "step of four values")
"""For environments whose `reset` and `step` return something: not for AEC."""
STRANGERS = ("a stranger is rewarded", "a stranger observes")
"""Agents that are none of `possible_agents`: for environments of several agents."""


class Speechless(Exception):
    """An error that cannot be put into text."""

    def __str__(self) -> str:
        raise ValueError("nothing to say")

    __repr__ = __str__


class Trouble:
    """Which trouble an episode is in.

    One of `share` episodes, by its seed, is in trouble; they take the kinds in turn, by their seeds again. With no kinds
    the same game is played, all of it sound.

    Attributes:
        kind: of this episode; empty for a sound one.
        released: set it to let all hanging calls of this process return.

    Raises:
        ValueError: an unknown kind.
    """

    released: ClassVar[threading.Event] = threading.Event()
    _made: ClassVar[itertools.count[int]] = itertools.count(1)

    def __init__(self, kinds: Sequence[str], share: int, refuse: int) -> None:
        unknown = set(kinds) - {*RAISING, *HANGING, *GARBAGE, *TUPLES, *STRANGERS}
        if unknown:
            raise ValueError(f"unknown kinds of trouble: {sorted(unknown)}")
        if refuse and next(self._made) % refuse == 0:
            raise OSError("no licence is left")
        self.kinds, self.share, self.kind, self.round = tuple(kinds), share, "", 0

    def begin(self, seed: int | None) -> random.Random:
        """A new episode; returns its generator."""
        number = seed or 0
        self.round = 1
        self.kind = self.kinds[number // self.share % len(self.kinds)] if self.kinds and number % self.share == 0 else ""
        self._strike("reset")
        return random.Random(number)

    def go_on(self) -> bool:
        """The next round; returns whether there is none."""
        self.round += 1
        if self.round == AT:
            self._strike("step")
        return self.round > ROUNDS

    def observation(self, text: str) -> Any:
        """The observation as this episode shows it."""
        return OBSERVATIONS.get(self.kind, text) if self.round == AT else text

    def reward(self, value: float) -> Any:
        """The reward as this episode pays it."""
        return REWARDS.get(self.kind, value) if self.round == AT else value

    def flag(self, over: bool) -> Any:
        """Whether the game is over, as this episode says it."""
        return FLAGS.get(self.kind, over) if self.round == AT else over

    def info(self) -> Any:
        """The info of this round: the middle word is not legal in the last."""
        if self.round == AT and self.kind in INFOS:
            return INFOS[self.kind]
        if self.round == AT and self.kind in MASKS:
            return {"action_mask": MASKS[self.kind]}
        return {"action_mask": [1, 0, 1]} if self.round == ROUNDS else {}

    def stranger(self, doing: str) -> dict[str, Any]:
        """What an episode of the kind adds to what all agents get."""
        return {"stranger": 1.0} if self.round == AT and self.kind == f"a stranger {doing}" else {}

    def _strike(self, where: str) -> None:
        if self.kind == f"{where} raises":
            raise RuntimeError(f"the world broke in {where}")
        if self.kind == f"{where} exits":
            raise SystemExit(3)
        if self.kind == f"{where} raises GeneratorExit":
            raise GeneratorExit(4)
        if self.kind == f"{where} raises without a text":
            raise Speechless
        if self.kind == f"{where} hangs":
            self.released.wait(3600)


class _Cards:
    """The game: each round shows a card, which depends on all words said so far; a word is worth more on some cards."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.card = rng.randrange(10)

    def worth(self, word: str) -> float:
        return (self.card + WORDS.index(word)) % 3 / 2

    def next(self, words: Sequence[str]) -> None:
        self.card = (self.card + sum(map(WORDS.index, words)) + self._rng.randrange(10)) % 10

    def shown(self, number: int) -> str:
        return f"Round {number}, card {self.card}: low, mid or high?"


class TroubledEnv(TextEnv):
    """The game for one agent: three rounds, each with a card, a word to say and a reward for it.

    Args:
        kinds: of trouble; see `Trouble`.
        share: one of so many episodes is in trouble.
        refuse: every so-many-th environment of this process cannot be made; 0: all can.
    """

    def __init__(self, kinds: Sequence[str] = (), share: int = 10, refuse: int = 0) -> None:
        self.observation_space, self.action_space = TextSpace(64), TextSpace(choices=WORDS)
        self.trouble = Trouble(kinds, share, refuse)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """The first card."""
        super().reset(seed=seed)
        self._cards = _Cards(self.trouble.begin(seed))
        first = self._cards.shown(1)
        return first if self.trouble.kind == "reset of one value" else (first, self.trouble.info())

    def step(self, action: str) -> Any:
        """The next card."""
        trouble, reward = self.trouble, self._cards.worth(action)
        self._cards.next([action])
        over = trouble.go_on()
        answer = (trouble.observation(self._cards.shown(trouble.round)), trouble.reward(reward), trouble.flag(over), False)
        return answer if trouble.kind == "step of four values" else (*answer, trouble.info())


class TroubledParallelEnv(TextParallelEnv):
    """The game for two, who say their words at once. Arguments as for `TroubledEnv`."""

    metadata: ClassVar[dict[str, Any]] = {"name": "troubled_v0"}  # type: ignore[misc]

    def __init__(self, kinds: Sequence[str] = (), share: int = 10, refuse: int = 0) -> None:
        self.possible_agents = ["ann", "bob"]
        self.observation_spaces = {agent: TextSpace(64) for agent in self.possible_agents}
        self.action_spaces = {agent: TextSpace(choices=WORDS) for agent in self.possible_agents}
        self.render_mode = None
        self.trouble = Trouble(kinds, share, refuse)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """The first card."""
        self.begin(seed)
        self._cards = _Cards(self.trouble.begin(seed))
        seen = self._all(self._cards.shown(1))
        return seen if self.trouble.kind == "reset of one value" else (seen, self._all(self.trouble.info()))

    def step(self, actions: dict[str, str]) -> Any:
        """The next card; each is paid for its own word."""
        trouble = self.trouble
        worth = {agent: self._cards.worth(word) for agent, word in actions.items()}
        self._cards.next([actions[agent] for agent in self.agents])
        over = trouble.go_on()
        seen = self._all(trouble.observation(self._cards.shown(trouble.round))) | trouble.stranger("observes")
        rewards = {agent: trouble.reward(value) for agent, value in worth.items()} | trouble.stranger("is rewarded")
        answer = (seen, rewards, self._all(trouble.flag(over)), self._all(False))
        self.agents = [] if over else self.agents
        return answer if trouble.kind == "step of four values" else (*answer, {agent: trouble.info() for agent in seen})

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


class TroubledAECEnv(TextAECEnv):
    """The game for two in turns, each of whom sees what the other said. Arguments as for `TroubledEnv`."""

    metadata: ClassVar[dict[str, Any]] = {"name": "troubled_aec_v0", "is_parallelizable": False}  # type: ignore[misc]

    def __init__(self, kinds: Sequence[str] = (), share: int = 10, refuse: int = 0) -> None:
        self.possible_agents = ["ann", "bob"]
        self.observation_spaces = {agent: TextSpace(64) for agent in self.possible_agents}
        self.action_spaces = {agent: TextSpace(choices=WORDS) for agent in self.possible_agents}
        self.render_mode = None
        self.trouble = Trouble(kinds, share, refuse)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """The first card."""
        super().reset(seed=seed, options=options)
        self._cards = _Cards(self.trouble.begin(seed))

    def observe(self, agent: str) -> Any:
        """The card."""
        return self.trouble.observation(self._cards.shown(self.trouble.round))

    def step(self, action: str) -> None:
        """One word; the round is over when both have spoken."""
        agent, trouble = self.agent_selection, self.trouble
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._clear_rewards()
        reward = self._cards.worth(action)
        self._cards.next([action])
        if agent == self.possible_agents[-1]:
            self.terminations = dict.fromkeys(self.agents, trouble.flag(trouble.go_on()))
            self.infos = {agent: trouble.info() for agent in self.agents}
            reward = trouble.reward(reward)
        # each is paid for its own words only, so nothing adds up between two of its turns
        self.rewards[agent] = self._cumulative_rewards[agent] = reward
        self.agent_selection = self.possible_agents[1 - self.possible_agents.index(agent)]
        if trouble.stranger("observes"):
            self.agent_selection = "stranger"
            tables: tuple[dict[str, Any], ...] = (
                self._cumulative_rewards, self.terminations, self.truncations, self.infos
            )  # fmt: skip
            for table in tables:
                table["stranger"] = table["ann"]
