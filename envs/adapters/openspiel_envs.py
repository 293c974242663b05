"""OpenSpiel's games behind PettingZoo's two interfaces."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Dict, Sequence, Space

from opentinker.envs.adapters.openspiel_match import Match
from opentinker.envs.menu import MenuSpace
from opentinker.envs.text import TextAECEnv, TextParallelEnv, TextSpace
from opentinker.errors import EnvError

LONGEST = 2**20
"""Characters of an observation: an information state grows with the game."""

Told = dict[str, Any]
"""An observation and, beside it, the legal words."""


class OpenSpielAEC(TextAECEnv):
    """A game played turn by turn. The legal words are `infos[agent]["action_mask"]`."""

    def __init__(self, name: str, match: Match) -> None:
        self.metadata = {"name": f"openspiel_{name}", "render_modes": [], "is_parallelizable": False}
        self.render_mode = None
        self.possible_agents = [f"player_{player}" for player in range(match.players)]
        self.observation_spaces = {agent: TextSpace(LONGEST) for agent in self.possible_agents}
        self.action_spaces = {agent: MenuSpace() for agent in self.possible_agents}
        self._match = match

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """A new match."""
        super().reset(seed=seed, options=options)
        self._match.start(self.rng)
        self._settle()

    def observe(self, agent: str) -> str:
        """OpenSpiel's text for the agent."""
        return self._match.look(self.possible_agents.index(agent))

    def step(self, action: str | None) -> None:
        """The selected agent acts; None for one whose game is over.

        Raises:
            ValueError: not legal now.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._match.act({self.possible_agents.index(agent): str(action)})
        self._cumulative_rewards[agent] = 0.0
        self._settle()

    def history(self) -> list[tuple[int, int]]:
        """(player, action) of all that happened in OpenSpiel's numbers, chance included: player -1."""
        return [(step.player, step.action) for step in self._match.state.full_history()]

    def _settle(self) -> None:
        self.rewards = dict(zip(self.possible_agents, self._match.earned(), strict=True))
        self.infos = {agent: {} for agent in self.possible_agents}
        if self._match.over:
            self.terminations = dict.fromkeys(self.possible_agents, True)
        else:
            player = self._match.actor()
            self.agent_selection = self.possible_agents[player]
            self.infos[self.agent_selection] = {"action_mask": self._match.words(player)}
        self._accumulate_rewards()


class OpenSpielParallel(TextParallelEnv):
    """A game of simultaneous moves.

    An observation is `{"observation": text, "action_mask": legal words}`: PettingZoo's `parallel_api_test` knows no other
    place for masks.
    """

    observation_spaces: dict[str, Space[Any]]

    def __init__(self, name: str, match: Match) -> None:
        self.metadata = {"name": f"openspiel_{name}", "render_modes": []}
        self.render_mode = None
        self.possible_agents = [f"player_{player}" for player in range(match.players)]
        self.observation_spaces = {
            agent: Dict({"observation": TextSpace(LONGEST), "action_mask": Sequence(MenuSpace())})
            for agent in self.possible_agents
        }
        self.action_spaces = {agent: MenuSpace() for agent in self.possible_agents}
        self._name, self._match = name, match

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Told], dict[str, dict[str, Any]]]:
        """A new match."""
        self.begin(seed)
        self._match.start(self.rng)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, str]
    ) -> tuple[dict[str, Told], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """All act.

        Raises:
            ValueError: somebody's word is not legal now.
        """
        agents = self.agents
        self._match.act({self.possible_agents.index(agent): str(actions[agent]) for agent in agents})
        rewards = dict(zip(self.possible_agents, self._match.earned(), strict=True))
        observations = self._observations()
        over = self._match.over
        self.agents = [] if over else self.possible_agents[:]
        flags = dict.fromkeys(agents, over)
        return observations, rewards, flags, dict.fromkeys(agents, False), {agent: {} for agent in agents}

    def history(self) -> list[tuple[int, int]]:
        """(player, action) of all that happened in OpenSpiel's numbers, chance included: player -1."""
        return [(step.player, step.action) for step in self._match.state.full_history()]

    def _observations(self) -> dict[str, Told]:
        if not (self._match.over or self._match.together):
            raise EnvError(f"openspiel/{self._name} has turns of single players among its moves: make it with api='aec'")
        return {
            agent: {"observation": self._match.look(player), "action_mask": self._match.words(player)}
            for player, agent in enumerate(self.possible_agents)
        }
