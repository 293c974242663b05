"""One agent in a Gymnasium environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentinker.answers import flag
from opentinker.coordinators.base import Coordinator, check_cap, final_in, mask_in, unpack

if TYPE_CHECKING:
    from opentinker.coordinators.table import Table
    from opentinker.envs.handle import EnvHandle


class Solo(Coordinator):
    """Plays any `gymnasium.Env`: observe, act, until terminated or truncated."""

    kind = "solo"

    def __init__(self, max_turns: int | None = None) -> None:
        """Makes the coordinator.

        Args:
            max_turns: truncate after so many decisions; None: no limit but the environment's.
        """
        self.max_turns = check_cap(max_turns)

    async def play(self, env: EnvHandle, table: Table) -> None:
        """Plays one episode."""
        (agent,) = self.agents(env)
        observation, info = unpack(await env.reset(table.seed), 2, "reset", env)
        turns = 0
        while True:
            action = await table.ask(agent, observation, mask=mask_in(info, env))
            observation, reward, terminated, truncated, info = unpack(await env.step(action), 5, "step", env)
            table.reward(agent, reward)
            terminated = flag(terminated, "terminated", agent, env.id)
            truncated = flag(truncated, "truncated", agent, env.id)
            turns += 1
            if not (terminated or truncated) and turns == self.max_turns:
                truncated = True
                table.note("max_turns", turns)
            if terminated or truncated:
                table.end(agent, terminated, truncated, observation=final_in(info, observation, env))
                return
