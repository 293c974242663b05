"""All agents act at once in a PettingZoo parallel environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from opentinker.answers import flag
from opentinker.coordinators.base import Coordinator, Query, check_cap, mask_in, strangers, unpack
from opentinker.errors import EnvError, value_text

if TYPE_CHECKING:
    from opentinker.coordinators.table import Table
    from opentinker.envs.handle import EnvHandle


class Simultaneous(Coordinator):
    """Plays any `pettingzoo.ParallelEnv`: a barrier a step, nobody sees another's action before all have acted.

    Agents that die are asked no more; agents that appear in a step's observations are asked from then on.
    """

    kind = "parallel"

    def __init__(self, max_turns: int | None = None) -> None:
        """Makes the coordinator.

        Args:
            max_turns: truncate after so many steps; None: no limit but the environment's.
        """
        self.max_turns = check_cap(max_turns)

    async def play(self, env: EnvHandle, table: Table) -> None:
        """Plays one episode."""
        known = frozenset(env.possible_agents)
        observations, infos = _by_agent(await env.reset(table.seed), 2, "reset", env)
        strangers(known, observations, env)
        ended: set[str] = set()
        turns = 0
        while live := [agent for agent in observations if agent not in ended]:
            queries = {agent: Query(observations[agent], mask=mask_in(infos.get(agent), env)) for agent in live}
            actions = await table.ask_all(queries)
            observations, rewards, terminated, truncated, infos = _by_agent(await env.step(actions), 5, "step", env)
            strangers(known, (*observations, *rewards), env)
            turns += 1
            for agent, reward in rewards.items():
                table.reward(agent, reward)
            cut = turns == self.max_turns
            was_over = _end(table, live, observations, terminated, truncated, ended, cut)
            if cut:
                if not was_over:
                    table.note("max_turns", turns)
                return


def _by_agent(given: Any, n: int, call: str, env: EnvHandle) -> Any:
    """What an environment's call returned, if it is n mappings of agents.

    Raises:
        EnvError: it is not.
    """
    parts = unpack(given, n, call, env)
    for part in parts:
        if type(part) is not dict and not isinstance(part, Mapping):
            raise EnvError(
                f"{env.id!r} returned a {type(part).__name__} among its {n} values from {call}: {value_text(part)}; "
                "each must be a dict by agent"
            )
    return parts


def _end(
    table: Table,
    live: list[str],
    observations: dict[str, Any],
    terminated: dict[str, Any],
    truncated: dict[str, Any],
    ended: set[str],
    cut: bool,
) -> bool:
    """Ends the agents that a step ended, flagged or left out of its answer, and, at a cut, all others.

    Returns:
        Whether the environment itself had ended everyone.
    """
    was_over = True
    for agent in dict.fromkeys((*live, *observations)):
        if agent in ended:
            continue
        # an agent without flags and without an observation is gone: nobody can ask it any more
        over = flag(terminated.get(agent, agent not in observations), "terminated", agent, table.env.id)
        late = flag(truncated.get(agent, False), "truncated", agent, table.env.id)
        was_over = was_over and (over or late)
        if over or late or cut:
            ended.add(agent)
            table.end(agent, over, late or cut, observation=observations.get(agent))
    return was_over
