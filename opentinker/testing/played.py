"""Environments of every family played to their ends by random text players: what is told of them, and of those refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from opentinker.coordinators import Table, make_coordinator, play_episode
from opentinker.envs import env_ids, open_env
from opentinker.envs.handle import EnvHandle
from opentinker.errors import OpenTinkerError, message_text
from opentinker.rollout import run_async
from opentinker.seeding import derive
from opentinker.testing.seats import FunctionSeat
from opentinker.types import ActionText, Episode, EpisodeStatus

COORDINATOR = {"solo": "solo", "aec": "turns", "parallel": "simultaneous"}
MAX_TURNS = 5000
"""Games are cut after so many decisions (steps, for a parallel environment)."""
STEP_TIMEOUT = 300.0
"""Seconds for one call of an environment: some of TextArena's Sokoban boards take one to find."""

Reply: TypeAlias = Callable[[str, ActionText, Any, int], str]
"""From (observation, space, mask, seed) to a text."""


@dataclass(frozen=True, slots=True)
class Played:
    """How one environment fared."""

    id: str
    kind: str
    """`solo`, `aec` or `parallel`; empty where the environment could not even be made."""
    agents: int
    """How many agents its games have at most."""
    games: int
    """Games played."""
    turns: int
    """Decisions in all of them together."""
    reason: str = ""
    """Why it was refused, in one line; empty for one that was played."""
    cut: int = 0
    """How many of the games had not ended after the turns that they were given."""


def random_text(observation: str, space: ActionText, mask: Any, seed: int) -> str:
    """A random legal action, as the space writes it."""
    return space.render_action(space.sample(seed, mask))


def play_id(
    id: str,
    *,
    games: int = 2,
    kwargs: Mapping[str, Any] | None = None,
    max_turns: int = MAX_TURNS,
    reply: Reply = random_text,
) -> Played:
    """Plays an environment with texts in all seats, with the seeds 0, 1, ..., on one object.

    Args:
        id: as for `make_env`.
        games: how many.
        kwargs: of its constructor.
        max_turns: of one game.
        reply: what everybody says.

    Returns:
        What was played; `reason` says what an environment raised or lacked. Nothing that concerns the environment is raised.
    """

    async def play() -> Played:
        world = open_env(id, kwargs, step_timeout=STEP_TIMEOUT)
        try:
            episodes = [await play_world(world, seed, max_turns=max_turns, reply=reply) for seed in range(games)]
        finally:
            await world.close()
        failed = [episode for episode in episodes if episode.status is EpisodeStatus.FAILED]
        acted = {turn.agent for episode in episodes for turn in episode.turns}
        turns = sum(len(episode.turns) for episode in episodes)
        reason = failed[0].error.strip().splitlines()[-1] if failed else "" if turns else "nobody was asked for an action"
        cut = sum("max_turns" in episode.outcome for episode in episodes)
        return Played(id, world.kind, len(world.possible_agents or acted), games - len(failed), turns, reason, cut)

    try:
        return run_async(play)  # type: ignore[no-any-return]
    except OpenTinkerError as error:
        return Played(id, "", 0, 0, 0, " ".join(message_text(error).split()))


def played(ids: Iterable[str] | None = None, *, games: int = 2) -> Iterator[Played]:
    """`play_id` of each; None: of all environments of our own, of Gymnasium and of PettingZoo."""
    if ids is None:
        ids = itertools.chain(env_ids(), env_ids("gymnasium"), env_ids("pettingzoo"))
    for id in ids:
        yield play_id(id, games=games)


async def play_world(world: EnvHandle, seed: int, *, max_turns: int = MAX_TURNS, reply: Reply = random_text) -> Episode:
    """One game in an open environment; see `play_id`."""
    numbers = itertools.count()

    def answer(observation: str, space: ActionText, mask: Any) -> str:
        return reply(observation, space, mask, derive(seed, next(numbers)))

    table = Table(world, lambda agent: FunctionSeat(agent, answer), episode_id=f"{world.id}/{seed}", seed=seed)
    script = make_coordinator(COORDINATOR[world.kind], max_turns=max_turns)
    return await play_episode(script, world, table)
