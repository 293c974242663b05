"""Seats + coordinator + environments -> groups of episodes.

Every draw is keyed by (run seed, purpose, step, group, member, agent, turn): a step can be played again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, TypeAlias

from opentinker.cast import Cast, Look, Serving
from opentinker.config import RunConfig, load_config
from opentinker.coordinators import (
    Coordinator,
    Table,
    agents_of,
    coordinator_factory,
    forget_failures,
    play_episode,
)
from opentinker.coordinators.failures import log_failure
from opentinker.envs import EnvHandle, EnvStats
from opentinker.errors import ConfigError, EnvError, RolloutFailed
from opentinker.players import ScriptedPlayer
from opentinker.pool import EnvPool
from opentinker.seeding import Key, derive
from opentinker.types import AgentID, Episode, EpisodeStatus, Group, Seat

log = logging.getLogger(__name__)

CHECK_TIMEOUT = 600.0
"""Seconds for a game in which everybody leaves when first asked."""
CHECK_TRIES = 3
"""Games that may fail in a row before a run is refused, where `rollout.max_failed_fraction` lets any game fail."""
_CAUSED = "The above exception was the direct cause"
HELD_OUT = 2**31
"""Seeds of evaluation's environments start here (and end below 2**32); those of all other purposes lie below."""

SeatMaker: TypeAlias = Callable[[AgentID, tuple[Key, ...], tuple[int, int]], Seat]
"""(agent, key of its draws, (group, member)) -> a fresh seat for that episode."""


def brief(error: str) -> str:
    """The first line of an episode's error and the innermost place of what caused it."""
    cause, _, _ = error.partition(_CAUSED)  # Python shows the cause first
    places = [line.strip() for line in cause.splitlines() if line.lstrip().startswith("File ")]
    return error.splitlines()[0] + (f" ({places[-1]})" if places else "")


def too_many(failed: int, played: int, allowed: float) -> bool:
    """Whether more than the allowed fraction of the episodes failed; exactly that many are not too many."""
    # a quotient, not a product: 29 / 100 is the number that 0.29 reads as, 0.29 * 100 is less than 29
    return failed / played > allowed


def at_least_one(name: str, given: int) -> int:
    """The number, if it is one that something can be played with.

    Raises:
        ConfigError: it is less than 1, or no whole number.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigError(f"{name} is {given!r}; give a whole number, at least 1")
    return given


def _stillborn(id: str, env: str, seed: int, group: int, member: int, why: EnvError) -> Episode:
    """The record of a game whose environment could not be made."""
    nothing: dict[str, Any] = {"roles": {}, "opponents": {}, "turns": (), "messages": (), "final_prompts": {}, "rewards": {}}
    error = f"episode {id} of {env} (seed {seed}): the environment could not be made: {why}\n"
    error += "".join(traceback.format_exception(why))
    log_failure(error)
    return Episode(id, env, seed, group, member, **nothing, status=EpisodeStatus.FAILED, error=error)


def _refuse_silence(played: Sequence[Episode]) -> None:
    ended = [episode for episode in played if episode.status is not EpisodeStatus.FAILED]
    if ended and not any(episode.turns for episode in ended):
        raise RolloutFailed(
            f"nobody was asked anything in any of {len(ended)} episodes, so there is nothing to learn from; a coordinator "
            "asks with `await table.ask(agent, observation)`, and an environment must not be over when it begins",
            ended[:8],
        )


def _env_seed(run_seed: int, purpose: str, step: int, group: int) -> int:
    # 31 bits are what every environment's generator takes; a bit above them holds evaluation apart from all the rest
    return derive(run_seed, purpose, step, group, "env") % 2**31 + (HELD_OUT if purpose == "eval" else 0)


class Rollout:
    """Plays a run's episodes and keeps its environments between steps."""

    def __init__(self, config: RunConfig, host: Serving) -> None:
        self.config = config
        self.host = host
        self.cast = Cast(config, host)
        self._pool = EnvPool(config.env)
        self._make_coordinator = coordinator_factory(config.coordinator.id, config.coordinator.kwargs)

    @property
    def env_stats(self) -> EnvStats:
        """Counts over all environments so far."""
        return self._pool.stats

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
        # what goes wrong in a share of all games may do so here, and the run is told to bear it
        tries = CHECK_TRIES if self.config.rollout.max_failed_fraction else 1
        for attempt in range(tries):
            try:
                return await self._check(attempt, drivable)
            except (RolloutFailed, EnvError) as error:
                if attempt == tries - 1:
                    raise
                log.warning("the first look at %s, try %d of %d: %s", self.config.env.id, attempt + 1, tries, error)
        raise AssertionError("no try was made")

    async def _check(self, attempt: int, drivable: bool) -> tuple[EnvHandle, dict[str, Seat]]:
        env = await self._pool.take()
        try:
            seats = {agent: self.cast.seat(agent, (), (0, 0)) for agent in agents_of(self._coordinator(), env)}
            for agent in seats:
                self.cast.check_action(agent, env)
            await self._look(env, attempt, drivable)
        except BaseException:
            self._pool.drop(env)
            raise
        self._pool.put(env)
        return env, seats

    async def _look(self, env: EnvHandle, attempt: int, drivable: bool) -> None:
        looks: list[Look] = []

        def look(agent: str) -> Seat:
            looks.append(Look(self.cast, agent, drivable))
            return looks[-1]

        seed = _env_seed(self.config.seed, "check", 0, attempt)
        table = Table(env, look, episode_id="check", seed=seed)
        timeout = self.config.coordinator.episode_timeout or CHECK_TIMEOUT
        episode = await play_episode(self._coordinator(), env, table, episode_timeout=timeout)
        if episode.status is EpisodeStatus.FAILED or "deadline" in episode.outcome:
            error = episode.error or episode.outcome["deadline"]
            raise RolloutFailed(f"{env.id} failed before anybody had acted (seed {seed}): {brief(error)}", [episode])
        for seen in looks:
            self._check_room(seen)

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
        seats: SeatMaker | None = None,
        refuse: bool = True,
        concurrency: int | None = None,
    ) -> list[Group]:
        """All groups of a step, played side by side; returns when the last episode has ended.

        Args:
            step: keys every draw, with the run's seed and `purpose`.
            purpose: keeps the seeds of training, warm start and evaluation apart; with `eval`, the environments' seeds
                come from a range of their own.
            groups: how many tasks; default: the configuration's.
            group_size: episodes of each; default: the configuration's.
            driver: a scripted player who answers in the policies' stead (for supervised targets).
            seats: who sits where; default: the configuration's cast.
            refuse: whether too many failures are an error.
            concurrency: episodes at once; default: the configuration's.

        Raises:
            ConfigError: fewer groups, episodes of a group, or episodes at once, than one.
            RolloutFailed: more episodes failed than `rollout.max_failed_fraction` allows, or nobody was asked in any.
        """
        settings = self.config.rollout
        n_groups = at_least_one("groups", settings.groups if groups is None else groups)
        size = at_least_one("group_size", settings.group_size if group_size is None else group_size)
        at_least_one("concurrency", 1 if concurrency is None else concurrency)
        jobs = [(group, member) for group in range(n_groups) for member in range(size)]
        episodes: list[Episode | None] = [None] * len(jobs)
        make = seats or functools.partial(self.cast.seat, driver=driver)
        workers = min(concurrency or settings.concurrency or len(jobs), len(jobs))
        pace = self.host.sampler
        forget_failures()
        pace.enter(workers)

        async def work(first: int) -> None:
            # a fixed share for every worker: what plays beside what does not depend on timing
            try:
                for index in range(first, len(jobs), workers):
                    episodes[index] = await self._play(step, purpose, *jobs[index], make)
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
        if refuse:
            self._refuse_too_many_failures(played)
            _refuse_silence(played)
        name = self.config.env.id
        return [Group(name, tuple(played[start : start + size])) for start in range(0, len(played), size)]

    async def _play(self, step: int, purpose: str, group: int, member: int, seats: SeatMaker) -> Episode:
        run_seed = self.config.seed
        place = (group, member)
        seed_key: tuple[Key, ...] = (run_seed, purpose, step)
        coordinator = self.config.coordinator
        id, seed = f"{step:06d}/{group:04d}/{member:02d}", _env_seed(run_seed, purpose, step, group)
        try:
            env = await self._pool.take()  # before the episode's clock starts
        except EnvError as why:
            return _stillborn(id, self.config.env.id, seed, group, member, why)
        table = Table(
            env,
            lambda agent: seats(agent, seed_key, place),
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
            self._pool.drop(env)
            raise
        if episode.status is EpisodeStatus.FAILED or "deadline" in episode.outcome:
            self._pool.drop(env)
        else:
            self._pool.put(env)
        return episode

    def _coordinator(self) -> Coordinator:
        # a fresh one for every episode: what a script keeps on itself belongs to one game
        return self._make_coordinator()

    def _refuse_too_many_failures(self, played: Sequence[Episode]) -> None:
        failed = [episode for episode in played if episode.status is EpisodeStatus.FAILED]
        if too_many(len(failed), len(played), self.config.rollout.max_failed_fraction):
            raise RolloutFailed(
                f"{len(failed)} of {len(played)} episodes failed, more than rollout.max_failed_fraction="
                f"{self.config.rollout.max_failed_fraction} allows; the first: {brief(failed[0].error)}",
                failed,
            )

    async def close(self) -> None:
        """Closes the environments; one that will not close is logged and left behind."""
        await self._pool.close()


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
        RolloutFailed: more episodes failed than `rollout.max_failed_fraction` allows.
    """
    settings = load_config(config)

    async def play() -> list[Group]:
        session = Rollout(settings, host)
        try:
            at_least_one("groups", settings.rollout.groups if groups is None else groups)
            await session.check()
            return await session.collect(step, groups=groups)
        finally:
            await session.close()

    return run_async(play)  # type: ignore[no-any-return]


def run_async(main: Callable[[], Any]) -> Any:
    """Runs a coroutine function to its end, also where an event loop already runs (a notebook).

    What interrupts the caller meanwhile (KeyboardInterrupt) cancels the coroutine, and is raised when that has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        running = False
    else:
        running = True
    if not running:  # outside of the handler: what main() raises must not seem to follow from it
        return asyncio.run(main())
    result: list[Any] = []
    errors: list[BaseException] = []
    began: Future[Callable[[], Any]] = Future()
    done = Event()

    async def cancellable() -> Any:
        task = asyncio.ensure_future(main())
        loop = asyncio.get_running_loop()
        began.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await task

    def run() -> None:
        try:
            result.append(asyncio.run(cancellable()))
        except BaseException as error:  # handed to the caller's thread
            errors.append(error)
        finally:
            if not began.done():
                began.set_result(lambda: None)
            done.set()

    thread = Thread(target=run, name="opentinker-run")
    thread.start()
    try:
        done.wait()  # Python takes a thread whose join() was interrupted for one that has ended
    except BaseException:
        with contextlib.suppress(RuntimeError):  # its loop has closed: it had ended anyway
            began.result()()
        done.wait()
        raise
    finally:
        thread.join()
    if errors:
        raise errors[0]
    return result[0]
