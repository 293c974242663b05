"""Environments that misbehave, or that do rare but legal things."""

from __future__ import annotations

import threading
import time
from typing import Any, ClassVar

from opentinker.envs.text import TextAECEnv, TextEnv, TextParallelEnv, TextSpace


class SlowEnv(TextEnv):
    """`steps` steps with the only action `go`, a reward of 1 each, every one of which sleeps for `seconds`."""

    def __init__(self, seconds: float = 0.2, steps: int = 1) -> None:
        self.observation_space = TextSpace(64)
        self.action_space = TextSpace(choices=("go",))
        self.seconds = seconds
        self.steps = steps
        self.seed: int | None = None
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Starts over."""
        super().reset(seed=seed)
        self.seed, self._step = seed, 0
        self.work()
        return self._observation(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One step."""
        self._step += 1
        self.work()
        return self._observation(), 1.0, self._step >= self.steps, False, {}

    def work(self) -> None:
        """What takes its time; after `reset` the step is 0, after the first `step` 1."""
        if self._step:
            time.sleep(self.seconds)

    def _observation(self) -> str:
        return f"step {self._step} of {self.steps}"


class HangingEnv(SlowEnv):
    """Hangs in step number `at` (0: in `reset`) until `release` is called, at most an hour."""

    def __init__(self, at: int = 1, steps: int = 3) -> None:
        super().__init__(0.0, steps)
        self.at = at
        self._released = threading.Event()

    def work(self) -> None:
        """Hangs."""
        if self._step == self.at:
            self._released.wait(3600)

    def release(self) -> None:
        """Lets the hanging call return, and every later one."""
        self._released.set()


class RaisingEnv(SlowEnv):
    """Raises a RuntimeError in step number `at` (0: in `reset`); with `seed` only in episodes of that seed."""

    def __init__(self, at: int = 1, steps: int = 3, only_seed: int | None = None, message: str = "the world broke") -> None:
        super().__init__(0.0, steps)
        self.at = at
        self.only_seed = only_seed
        self.message = message

    def work(self) -> None:
        """Raises."""
        if self._step == self.at and self.only_seed in (None, self.seed):
            raise RuntimeError(self.message)


class OffTurnDeathEnv(TextAECEnv):
    """Players shoot each other: the victim dies off-turn and has its last turn, without an action, out of order.

    In turn each says `wait` or `shoot`; a shot kills the next player alive (+1, and -1 for the victim). It ends when one is
    left or everyone alive has acted `rounds` times; each survivor then gets 0.5.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "off_turn_death_v0", "is_parallelizable": False}  # type: ignore[misc]

    def __init__(self, players: int = 3, rounds: int = 2) -> None:
        self.possible_agents = [f"player_{number}" for number in range(players)]
        self.observation_spaces = {agent: TextSpace(256) for agent in self.possible_agents}
        self.action_spaces = {agent: TextSpace(choices=("wait", "shoot")) for agent in self.possible_agents}
        self.rounds = rounds
        self.render_mode = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """All alive, the first to act."""
        super().reset(seed=seed, options=options)
        self._acted = dict.fromkeys(self.agents, 0)
        self._last = "Nothing happened yet."

    def observe(self, agent: str) -> str:
        """What happened last."""
        return self._last

    def step(self, action: str) -> None:
        """The selected player acts, or, dead, takes its leave."""
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._acted[agent] += 1
        self._last = f"{agent} said {action}."
        follower = self._after(agent)
        if action == "shoot":
            self.terminations[follower] = True
            self.rewards[agent], self.rewards[follower] = 1.0, -1.0
            self._last += f" {follower} died."
        alive = [other for other in self.agents if not self.terminations[other]]
        if len(alive) == 1 or all(self._acted[other] >= self.rounds for other in alive):
            for other in alive:
                self.terminations[other] = True
                self.rewards[other] += 0.5
        else:
            self.agent_selection = self._after(agent)
        self._accumulate_rewards()
        self._deads_step_first()

    def _after(self, agent: str) -> str:
        order = self.possible_agents
        at = order.index(agent)
        following = [*order[at + 1 :], *order[:at]]
        return next(other for other in following if other in self.agents and not self.terminations[other])


class BirthsEnv(TextParallelEnv):
    """Workers that say `work` (a reward of 1) or `spawn` (a new worker from the next step on); the third step is the last.

    A worker that says `quit` dies at once. At most `most` workers are ever born.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "births_v0"}  # type: ignore[misc]

    def __init__(self, most: int = 4, steps: int = 3) -> None:
        self.possible_agents = [f"worker_{number}" for number in range(most)]
        self.observation_spaces = {agent: TextSpace(64) for agent in self.possible_agents}
        self.action_spaces = {agent: TextSpace(choices=("work", "spawn", "quit")) for agent in self.possible_agents}
        self.steps = steps
        self.render_mode = None

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """One worker."""
        self.begin(seed)
        self.agents = self.possible_agents[:1]
        self._born = 1
        self._step = 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, str]
    ) -> tuple[dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """All act; the newborn are in the answer."""
        self._step += 1
        acting = self.agents[:]
        for _ in [agent for agent in acting if actions[agent] == "spawn"]:
            self.agents += self.possible_agents[self._born : self._born + 1]
            self._born = min(self._born + 1, len(self.possible_agents))
        present = self.agents[:]
        over = self._step >= self.steps
        observations = self._observations()
        rewards = {agent: float(agent in acting and actions[agent] == "work") for agent in present}
        quitting = {agent: agent in acting and actions[agent] == "quit" for agent in present}
        truncated = {agent: over and not quitting[agent] for agent in present}
        self.agents = [agent for agent in present if not (quitting[agent] or truncated[agent])]
        return observations, rewards, quitting, truncated, {agent: {} for agent in present}

    def _observations(self) -> dict[str, str]:
        return {agent: f"step {self._step}, {len(self.agents)} at work" for agent in self.agents}
