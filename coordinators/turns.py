"""Agents take turns in a PettingZoo AEC environment."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from opentinker.answers import flag
from opentinker.coordinators.base import Coordinator, check_cap, mask_in, strangers
from opentinker.errors import EnvError, SeatOut

if TYPE_CHECKING:
    from opentinker.coordinators.table import Table
    from opentinker.envs.handle import EnvHandle
    from opentinker.envs.world import AgentTurn


class Turns(Coordinator):
    """Plays any `pettingzoo.AECEnv`: whoever the environment selects acts and sees what the others did before.

    A reward counts when `last()` shows it to its agent, once. What the environment has given and not yet shown is collected
    when a player leaves early, and when it ends without a last turn for everyone.
    """

    kind = "aec"

    def __init__(self, max_turns: int | None = None) -> None:
        """Makes the coordinator.

        Args:
            max_turns: truncate after so many decisions of all agents together; None: no limit but the environment's.
        """
        self.max_turns = check_cap(max_turns)

    async def play(self, env: EnvHandle, table: Table) -> None:
        """Plays one episode."""
        known = frozenset(env.possible_agents)
        await env.reset(table.seed)
        turn = await env.turn()
        turns, ended = 0, set[str]()
        while turn is not None:
            agent = turn.agent
            if agent not in known:
                strangers(known, (agent,), env)
            table.reward(agent, turn.reward)
            terminated = flag(turn.terminated, "terminated", agent, env.id)
            truncated = flag(turn.truncated, "truncated", agent, env.id)
            if terminated or truncated:
                ended.add(agent)
                table.end(agent, terminated, truncated, observation=turn.observation)
                turn = await env.step_turn(None)  # how PettingZoo buries a dead agent
                continue
            if agent in ended:
                raise EnvError(
                    f"{env.id!r} brought {agent!r} back to life; an agent that has ended stays dead until the next reset: "
                    "give the newborn a name of its own"
                )
            if turns == self.max_turns:
                await self._cut(env, table, turn, ended)
                return
            turns += 1
            try:
                action = await table.ask(agent, turn.observation, mask=mask_in(turn.info, env))
            except SeatOut:
                await _collect(env, table, but={*ended, agent})
                raise
            turn = await env.step_turn(action)
        if not known or len(ended) < len(known):
            await _collect(env, table, but=ended)

    async def _cut(self, env: EnvHandle, table: Table, turn: AgentTurn, ended: set[str]) -> None:
        table.note("max_turns", self.max_turns)
        await _collect(env, table, but={*ended, turn.agent})
        for agent in turn.agents:
            if agent not in ended:
                table.end(agent, False, True, observation=turn.observation if agent == turn.agent else None)


async def _collect(env: EnvHandle, table: Table, but: Collection[str]) -> None:
    """Credits what the environment has given and not yet shown, except to agents whose `last()` was read since."""
    for agent, reward in (await env.owed()).items():
        if agent not in but and reward:
            table.reward(agent, reward)
