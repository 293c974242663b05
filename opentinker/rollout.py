"""Seats + coordinator + environments -> groups of episodes.

Every draw is keyed by (run seed, purpose, step, group, member, agent, turn): a step can be played again by itself.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opentinker.cast import Cast, Look, Serving
from opentinker.config import RunConfig, load_config
from opentinker.coordinators import Coordinator, Table, agents_of, coordinator_factory, forget_failures, play_episode
from opentinker.envs import EnvHandle, EnvStats, open_env
from opentinker.errors import ConfigError, EnvError, RolloutFailed
from opentinker.players import ScriptedPlayer
from opentinker.seeding import Key, derive
from opentinker.types import Episode, EpisodeStatus, Group, Seat

CHECK_TIMEOUT = 600.0
"""Seconds for a game in which everybody leaves when first asked."""


def brief(error: str) -> str:
    """The first line of an episode's error and the innermost place its traceback names."""
    places = [line.strip() for line in error.splitlines() if line.lstrip().startswith("File ")]
    return error.splitlines()[0] + (f" ({places[-1]})" if places else "")


def _stillborn(id: str, env: str, seed: int, group: int, member: int) -> Episode:
    """The record of a game whose environment could not be made. Called while its error is handled."""
    nothing: dict[str, Any] = {"roles": {}, "opponents": {}, "turns": (), "messages": (), "final_prompts": {}, "rewards": {}}
    error = f"environment {env} could not be made:\n{traceback.format_exc()}"
    return Episode(id, env, seed, group, member, **nothing, status=EpisodeStatus.FAILED, error=error)


def _env_seed(run_seed: int, purpose: str, step: int, group: int) -> int:
    return derive(run_seed, purpose, step, group, "env") % 2**31  # what every environment's generator takes


class Rollout:
    """Plays a run's episodes and keeps its environments between steps."""

    def __init__(self, config: RunConfig, host: Serving) -> None:
        self.config = config
        self.host = host
        self.cast = Cast(config, host)
        self.env_stats = EnvStats()
        self._idle: list[EnvHandle] = []
        self._closing: list[asyncio.Future[None]] = []
        self._make_coordinator = coordinator_factory(config.coordinator.id, config.coordinator.kwargs)

    async def check(self, drivable: bool = False) -> tuple[EnvHandle, dict[str, Seat]]:
        """Opens one environment, makes a seat for every agent and looks at the first prompts of one game.

        Args:
            drivable: whether every legal action must fit into a policy's `max_tokens`, as for a warm start.

        Returns:
            The environment, which stays the rollout's own, and the seats of the agents known before a game starts.

        Raises:
            ConfigError: an agent without a seat, a first prompt that does not fit into its model, ...
            RolloutFailed: the game failed before anybody was asked.
        """
        env = await asyncio.to_thread(self._open)  # a constructor may be slow
        seats = {agent: self.cast.seat(agent, (), (0, 0)) for agent in agents_of(self._coordinator(), env)}
        looks: list[Look] = []

        def look(agent: str) -> Seat:
            looks.append(Look(self.cast, agent, drivable))
            return looks[-1]

        seed = _env_seed(self.config.seed, "check", 0, 0)
        table = Table(env, look, episode_id="check", seed=seed)
        timeout = self.config.coordinator.episode_timeout or CHECK_TIMEOUT
        episode = await play_episode(self._coordinator(), env, table, episode_timeout=timeout)
        if episode.status is EpisodeStatus.FAILED or "deadline" in episode.outcome:
            error = episode.error or episode.outcome["deadline"]
            raise RolloutFailed(f"{env.id} failed before anybody had acted (seed {seed}): {brief(error)}", [episode])
        for seen in looks:
            self._check_room(seen)
        self._idle.append(env)
        return env, seats

    def _check_room(self, seen: Look) -> None:
        room = self.host.max_context(seen.policy) if seen.policy is not None else None
        if room is not None and seen.tokens >= room:
            raise ConfigError(
                f"the first prompt of {seen.agent!r} has {seen.tokens} tokens, the model of policy {seen.policy!r} has room "
                f"for {room}, reply included; shorten the observation or the system prompt, or take another model"
            )

    async def collect(
        self,
        step: int,
        *,
        purpose: str = "train",
        groups: int | None = None,
        group_size: int | None = None,
        driver: ScriptedPlayer | None = None,
    ) -> list[Group]:
        """All groups of a step, played side by side; returns when the last episode has ended.

        Args:
            step: keys every draw, with the run's seed and `purpose`.
            purpose: keeps the seeds of training, warm start and evaluation apart.
            groups: how many tasks; default: the configuration's.
            group_size: episodes of each; default: the configuration's.
            driver: a scripted player who answers in the policies' stead (for supervised targets).

        Raises:
            RolloutFailed: more episodes failed than `rollout.max_failed` allows.
        """
        n_groups = groups or self.config.rollout.groups
        size = group_size or self.config.rollout.group_size
        jobs = [(group, member) for group in range(n_groups) for member in range(size)]
        episodes: list[Episode | None] = [None] * len(jobs)
        workers = min(self.config.rollout.concurrency or len(jobs), len(jobs))
        pace = self.host.sampler
        forget_failures()
        pace.enter(workers)

        async def work(first: int) -> None:
            # a fixed share for every worker: what plays beside what does not depend on timing
            try:
                for index in range(first, len(jobs), workers):
                    episodes[index] = await self._play(step, purpose, *jobs[index], driver)
            finally:
                pace.leave()

        tasks = [asyncio.ensure_future(work(index)) for index in range(workers)]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        played = [episode for episode in episodes if episode is not None]
        self._refuse_too_many_failures(played)
        name = self.config.env.id
        return [Group(name, tuple(played[start : start + size])) for start in range(0, len(played), size)]

    async def _play(
        self, step: int, purpose: str, group: int, member: int, driver: ScriptedPlayer | None
    ) -> Episode:
        run_seed = self.config.seed
        place = (group, member)
        seed_key: tuple[Key, ...] = (run_seed, purpose, step)
        coordinator = self.config.coordinator
        id, seed = f"{step:06d}/{group:04d}/{member:02d}", _env_seed(run_seed, purpose, step, group)
        try:
            # away from the event loop, and before the episode's clock starts: a constructor may take its time
            env = self._idle.pop() if self._idle else await asyncio.to_thread(self._open)
        except EnvError:
            return _stillborn(id, self.config.env.id, seed, group, member)
        table = Table(
            env,
            lambda agent: self.cast.seat(agent, seed_key, place, driver),
            episode_id=id,
            seed=seed,
            group=group,
            member=member,
            turn_timeout=coordinator.turn_timeout,
            pace=self.host.sampler,
        )
        try:
            episode = await play_episode(self._coordinator(), env, table, episode_timeout=coordinator.episode_timeout)
        except BaseException:
            self._closing.append(asyncio.ensure_future(env.close()))
            raise
        if episode.status is EpisodeStatus.FAILED or "deadline" in episode.outcome:
            # whatever raised may be broken, and a call may still be under way: closing waits for it or abandons it
            self._closing.append(asyncio.ensure_future(env.close()))
        elif not env.abandoned:
            self._idle.append(env)
        return episode

    def _coordinator(self) -> Coordinator:
        # a fresh one for every episode: what a script keeps on itself belongs to one game
        return self._make_coordinator()

    def _open(self) -> EnvHandle:
        env = self.config.env
        return open_env(
            env.id,
            env.kwargs,
            isolation=env.isolation,
            step_timeout=env.step_timeout,
            action_names=env.action_names,
            stats=self.env_stats,
        )

    def _refuse_too_many_failures(self, played: Sequence[Episode]) -> None:
        failed = [episode for episode in played if episode.status is EpisodeStatus.FAILED]
        if len(failed) > self.config.rollout.max_failed * len(played):
            raise RolloutFailed(
                f"{len(failed)} of {len(played)} episodes failed, more than rollout.max_failed="
                f"{self.config.rollout.max_failed} allows; the first, {failed[0].id}: {brief(failed[0].error)}",
                failed,
            )

    async def close(self) -> None:
        """Closes the environments; one that will not close is logged and left behind."""
        await asyncio.gather(*self._closing, *(env.close() for env in self._idle))
        self._closing.clear()
        self._idle.clear()


def rollout(
    config: RunConfig | Mapping[str, Any] | str, host: Serving, *, step: int = 1, groups: int | None = None
) -> list[Group]:
    """Plays the episodes of one step, for loops of your own: `rollout()`, a credit function, `host.update()`.

    Args:
        config: a configuration tree, a mapping or a YAML file's path.
        host: a `LocalHost`, or anything with `sampler`, `tokenizer` and `max_context`.
        step: keys the random draws; the same step gives the same games.
        groups: how many tasks; default: the configuration's.

    Returns:
        One `Group` per task, its episodes in member order.

    Raises:
        ConfigError: the configuration is wrong or an agent has no seat.
        RolloutFailed: more episodes failed than `rollout.max_failed` allows.
    """
    settings = load_config(config)

    async def play() -> list[Group]:
        session = Rollout(settings, host)
        try:
            await session.check()
            return await session.collect(step, groups=groups)
        finally:
            await session.close()

    return run_async(play)  # type: ignore[no-any-return]


def run_async(main: Callable[[], Any]) -> Any:
    """Runs a coroutine function to its end, also where an event loop already runs (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    from threading import Thread

    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(asyncio.run(main()))
        except BaseException as error:  # handed to the caller's thread
            errors.append(error)

    thread = Thread(target=run, name="opentinker-run")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result[0]
