"""One game played by functions: to try a coordinator without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentinker.coordinators import Coordinator, Table, make_coordinator, play_episode
from opentinker.envs import open_env
from opentinker.errors import ConfigError
from opentinker.rollout import run_async
from opentinker.testing.seats import FunctionSeat
from opentinker.types import ActionText, AgentID, Episode

Answer = Callable[[str, ActionText, Any], Any]
"""From (observation, space, mask) to a reply text; see `FunctionSeat`."""


def play_game(
    env: str,
    coordinator: Coordinator | str,
    answer: Answer | Mapping[AgentID, Answer],
    *,
    seed: int = 0,
    **kwargs: Any,
) -> Episode:
    """Plays one game.

    Args:
        env: an environment's id.
        coordinator: one of yours, or an id.
        answer: what everybody says, or one function for each agent.
        seed: of the environment and of `table.rng`.
        kwargs: of the environment's constructor.

    Returns:
        The episode, whatever its end: a script or a world that raises gives one that has failed, with the traceback in
        its `error`.

    Raises:
        UnknownId, ConfigError: as `make_env` and `make_coordinator`, or an agent has no function.
        EnvError: the environment's constructor raised.
    """
    script = make_coordinator(coordinator) if isinstance(coordinator, str) else coordinator

    def seat(agent: AgentID) -> FunctionSeat:
        if isinstance(answer, Mapping) and agent not in answer:
            raise ConfigError(f"agent {agent!r} has no function: `answer` has {sorted(answer)}; add one for it")
        return FunctionSeat(agent, answer[agent] if isinstance(answer, Mapping) else answer)

    async def play() -> Episode:
        world = open_env(env, kwargs)
        try:
            return await play_episode(script, world, Table(world, seat, episode_id="game", seed=seed))
        finally:
            await world.close()

    return run_async(play)  # type: ignore[no-any-return]
