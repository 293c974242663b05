"""Generated environments whose agents come and go: born in mid-cycle, killed off-turn, some before they ever act.

What happens is drawn from the environment's own generator, so a seed and the actions fix the whole episode. Every rule of
PettingZoo is kept; a coordinator that plays one seed after another meets what real environments do now and then.
"""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from opentinker.envs.text import TextAECEnv, TextParallelEnv, TextSpace

WORDS = ("rest", "work", "strike")

_BIRTH, _DEATH, _GIFT, _FATAL, _CUT = 0.25, 0.15, 0.3, 0.5, 0.3


class _Colony:
    """What both worlds share: who lives, what actions and chance do, and how it is told.

    `work` pays 0.5. `strike` costs the next agent alive 0.25 and may kill it; a lonely agent cannot strike. After that
    chance may bear an agent, kill one (which may be the acting or the newborn one), and give one 0.25.

    Attributes:
        born: how many agents there have been.
        log: (what, agent) of every birth and death so far, to see what a seed has met.
    """

    born: int
    log: list[tuple[str, str]]

    def __init__(self, most: int, first: int, cycles: int, announced: bool, numbers: bool) -> None:
        self.most, self.first, self.cycles = most, first, cycles
        self.agents: list[str] = []
        self.render_mode: str | None = None
        self.numbers = numbers
        names = [f"worker_{number}" for number in range(most)]
        if announced:
            self.possible_agents = names
        words: Space[Any] = Discrete(len(WORDS)) if numbers else TextSpace(choices=WORDS)
        seen: Space[Any] = Box(0.0, 1000.0, (4,), np.float32) if numbers else TextSpace(512)
        self._spaces = seen, words

    def observation_space(self, agent: str) -> Space[Any]:
        """The same for all: texts, or (cycle, agents alive, agents ever born, number of the last word)."""
        return self._spaces[0]

    def action_space(self, agent: str) -> Space[Any]:
        """The same for all: `WORDS`, or their numbers."""
        return self._spaces[1]

    def _found(self, chance: random.Random) -> list[str]:
        self._chance = chance
        self.born, self.cycle = 0, 0
        self.log = []
        self._last = "", 0
        return [self._bear() for _ in range(self.first)]

    def _bear(self) -> str:
        agent = f"worker_{self.born}"
        self.born += 1
        self.log.append(("born", agent))
        return agent

    def _deed(self, agent: str, action: Any, alive: list[str]) -> tuple[dict[str, float], set[str]]:
        """What an action pays, and whom it kills."""
        word = WORDS[int(action)] if self.numbers else str(action)
        self._last = f"{agent} {word}", WORDS.index(word) + 1
        if word == "work":
            return {agent: 0.5}, set()
        if word == "rest":
            return {}, set()
        if len(alive) == 1:  # all others have died in the very step
            return {}, set()
        after = alive[(alive.index(agent) + 1) % len(alive)]
        return {after: -0.25}, {after} if self._chance.random() < _FATAL else set()

    def _fate(self, alive: list[str]) -> tuple[list[str], dict[str, float], set[str]]:
        """What chance does: who is born, who is given what, who dies."""
        newborn = [self._bear()] if self.born < self.most and self._chance.random() < _BIRTH else []
        around = [*alive, *newborn]
        dying = {self._chance.choice(around)} if self._chance.random() < _DEATH else set[str]()
        gifts = {self._chance.choice(around): 0.25} if self._chance.random() < _GIFT else {}
        return newborn, gifts, dying

    def _cut(self) -> bool:
        """Whether a death comes from outside of the task."""
        return bool(self._chance.random() < _CUT)

    def _look(self, agent: str, alive: list[str]) -> Any:
        if self.numbers:
            return np.array([self.cycle, len(alive), self.born, self._last[1]], np.float32)
        return f"You are {agent}. Cycle {self.cycle}. Alive: {' '.join(alive) or 'nobody'}. Last: {self._last[0] or '-'}."

    def _info(self, alive: list[str]) -> dict[str, Any]:
        return {"action_mask": np.array([1, 1, len(alive) > 1], np.int8)}


class LifecycleAEC(_Colony, TextAECEnv):
    """Agents in turns. A newborn acts right after the agent in whose turn it came, or as the last of the cycle.

    Args:
        most: so many agents there ever are; with `first` as many, nobody is born.
        first: so many there are at the start.
        cycles: after so many rounds everyone alive is truncated.
        announced: whether the environment has `possible_agents`; without, agents appear that nobody knew of.
        deads_first: whether the dead take their leave before anybody else acts, as PettingZoo's own helpers do it; else
            each when its turn would have come.
        numbers: whether it speaks in numbers instead of texts, for wrappers that take nothing else.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "lifecycle_v0", "is_parallelizable": False}  # type: ignore[misc]

    def __init__(
        self,
        most: int = 6,
        first: int = 2,
        cycles: int = 6,
        announced: bool = True,
        deads_first: bool = True,
        numbers: bool = False,
    ) -> None:
        super().__init__(most, first, cycles, announced, numbers)
        self._deads_first = deads_first

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """The first agents."""
        self.seed_rng(seed)
        self.agents = []
        self.rewards, self._cumulative_rewards = {}, {}
        self.terminations, self.truncations = {}, {}
        self.infos = {}
        for agent in self._found(self.rng):
            self._enter(agent, len(self.agents))
        self._skip_agent_selection = None
        self._acted = set[str]()
        self.agent_selection = self.agents[0]
        self._inform()

    def observe(self, agent: str) -> Any:
        """Who lives, and what was done last."""
        return self._look(agent, self._alive())

    def step(self, action: Any) -> None:
        """One agent acts, or, dead, takes its leave."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._take_leave(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        paid, struck = self._deed(agent, action, self._alive())
        newborn, gifts, dying = self._fate(self._alive())
        for name in newborn:
            self._enter(name, self.agents.index(agent) + 1 if self._chance.random() < 0.5 else len(self.agents))
        for given in (paid, gifts):
            for name, reward in given.items():
                self.rewards[name] += reward
        for name in sorted(struck | dying):
            (self.truncations if self._cut() else self.terminations)[name] = True
            self.log.append(("died", name))
        self._acted.add(agent)
        if not [name for name in self._alive() if name not in self._acted]:
            self._acted.clear()
            self.cycle += 1
        if self.cycle >= self.cycles:
            self.truncations.update(dict.fromkeys(self._alive(), True))
        self._accumulate_rewards()
        self._inform()
        self.agent_selection = self._after(agent)
        if self._deads_first:
            self._deads_step_first()

    def _take_leave(self, action: Any) -> None:
        agent = self.agent_selection
        if self._deads_first:
            self._was_dead_step(action)
        else:
            if action is not None:
                raise ValueError(f"{agent} is dead: its only action is None, given: {action!r}")
            following = self._after(agent)
            for table in (self.rewards, self._cumulative_rewards, self.terminations, self.truncations, self.infos):
                del table[agent]
            self.agents.remove(agent)
            self._clear_rewards()
            self.agent_selection = following

    def _enter(self, agent: str, place: int) -> None:
        self.agents.insert(place, agent)
        self.rewards[agent] = self._cumulative_rewards[agent] = 0.0
        self.terminations[agent] = self.truncations[agent] = False
        self.infos[agent] = {}

    def _alive(self) -> list[str]:
        return [agent for agent in self.agents if not (self.terminations[agent] or self.truncations[agent])]

    def _after(self, agent: str) -> str:
        """Who is selected next: with the dead taking their leave first, the next one alive."""
        alive = self._alive() if self._deads_first else self.agents
        start = self.agents.index(agent)
        order = [*self.agents[start + 1 :], *self.agents[: start + 1]]
        return next((name for name in order if name in alive), agent)

    def _inform(self) -> None:
        for agent in self.agents:
            self.infos[agent] = self._info(self._alive())


class LifecycleParallel(_Colony, TextParallelEnv):
    """Agents at once. Whoever a step kills is in that step's answer for the last time, newborns who never acted included.

    Args:
        most: so many agents there ever are; with `first` as many, nobody is born.
        first: so many there are at the start.
        cycles: after so many steps everyone alive is truncated.
        announced: see `LifecycleAEC`.
        numbers: see `LifecycleAEC`.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "lifecycle_parallel_v0"}  # type: ignore[misc]

    def __init__(
        self, most: int = 6, first: int = 2, cycles: int = 6, announced: bool = True, numbers: bool = False
    ) -> None:
        super().__init__(most, first, cycles, announced, numbers)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """The first agents."""
        self.seed_rng(seed)
        self.agents = self._found(self.rng)
        return self._views(self.agents), self._infos(self.agents)

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """All act, in the order of `agents`; a strike meets the living only."""
        present = self.agents[:]
        rewards = dict.fromkeys(present, 0.0)
        terminated, truncated = dict.fromkeys(present, False), dict.fromkeys(present, False)
        for agent in self.agents:
            alive = [name for name in present if not (terminated[name] or truncated[name]) or name == agent]
            paid, killed = self._deed(agent, actions[agent], alive)
            newborn, gifts, dying = self._fate(alive)
            for name in newborn:
                present.append(name)
                rewards[name], terminated[name], truncated[name] = 0.0, False, False
            for given in (paid, gifts):
                for name, reward in given.items():
                    rewards[name] += reward
            for name in sorted(killed | dying):
                if not (terminated[name] or truncated[name]):
                    (truncated if self._cut() else terminated)[name] = True
                    self.log.append(("died", name))
        self.cycle += 1
        self.agents = [agent for agent in present if not (terminated[agent] or truncated[agent])]
        if self.cycle >= self.cycles:
            truncated.update(dict.fromkeys(self.agents, True))
            self.agents = []
        return self._views(present), rewards, terminated, truncated, self._infos(present)

    def _views(self, present: list[str]) -> dict[str, Any]:
        return {agent: self._look(agent, self.agents) for agent in present}

    def _infos(self, present: list[str]) -> dict[str, dict[str, Any]]:
        return {agent: self._info(self.agents) for agent in present}
