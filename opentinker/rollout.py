"""Seats + coordinator + environments -> groups of episodes.

Every draw is keyed by (run seed, purpose, step, group, member, agent, turn): a step can be played again by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol

from opentinker.config import RunConfig, SeatConfig, Window, load_config
from opentinker.coordinators import Coordinator, Table, coordinator_factory, play_episode
from opentinker.envs import EnvHandle, EnvStats, open_env
from opentinker.errors import ConfigError, RolloutFailed
from opentinker.players import ScriptedPlayer, make_player
from opentinker.render import Renderer, make_renderer
from opentinker.seats import InvalidRule, PolicySeat, ScriptedSeat
from opentinker.seeding import Key, derive
from opentinker.types import (
    ActionText,
    Attempt,
    Decision,
    Episode,
    EpisodeStatus,
    Group,
    Pace,
    PolicyRef,
    Sampler,
    SamplingParams,
    Seat,
    Verdict,
)


class PacedSampler(Sampler, Pace, Protocol):
    """A sampler that can wait until every live coroutine has asked."""


class Serving(Protocol):
    """What a rollout needs of a policy host."""

    @property
    def sampler(self) -> PacedSampler:
        """Draws the policies' completions."""

    def tokenizer(self, policy: str) -> Any:
        """The policy's Hugging Face tokenizer."""

    def max_context(self, policy: str) -> int | None:
        """Tokens that prompt and completion may have together."""


class Cast:
    """Who sits where: agent names and globs of the configuration, resolved to seats."""

    def __init__(self, config: RunConfig, host: Serving) -> None:
        self.config = config
        self.host = host
        self._renderers: dict[str, Renderer] = {}
        self._players: dict[str, ScriptedPlayer] = {
            seat.player: make_player(seat.player) for seat in config.agents.values() if seat.player is not None
        }

    def seat_config(self, agent: str) -> SeatConfig:
        """The entry of `agents` for an agent: its exact name, else the first glob that matches.

        Raises:
            ConfigError: nothing matches.
        """
        agents = self.config.agents
        if agent in agents:
            return agents[agent]
        for pattern, seat in agents.items():
            if fnmatchcase(agent, pattern):
                return seat
        raise ConfigError(
            f"agent {agent!r} of {self.config.env.id!r} has no seat: `agents` has {sorted(agents)}; add it or a glob"
        )

    def policy_of(self, agent: str) -> PolicyRef | None:
        """The policy in an agent's seat; None for scripted ones."""
        name = self.seat_config(agent).policy
        return PolicyRef.parse(name) if name is not None else None

    def renderer(self, policy: str) -> Renderer:
        """The policy's renderer, made once."""
        if policy not in self._renderers:
            self._renderers[policy] = make_renderer(self.host.tokenizer(policy))
        return self._renderers[policy]

    def seat(
        self, agent: str, seed_key: tuple[Key, ...], place: tuple[int, int], driver: ScriptedPlayer | None = None
    ) -> Seat:
        """A fresh seat for one episode."""
        chosen = self.seat_config(agent)
        if chosen.policy is None:
            assert chosen.player is not None
            return ScriptedSeat(
                agent,
                self._players[chosen.player],
                role=chosen.role,
                seed_key=seed_key,
                place=place,
                rule=_rule(chosen) if "on_invalid" in chosen.model_fields_set else None,
            )
        ref = PolicyRef.parse(chosen.policy)
        policy = self.config.policies[ref.name]
        sampling = policy.sampling
        return PolicySeat(
            agent,
            ref=ref,
            sampler=self.host.sampler,
            renderer=self.renderer(ref.name),
            params=SamplingParams(
                sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k, tuple(sampling.stop)
            ),
            role=chosen.role,
            system=chosen.system,
            memory=chosen.memory.window if isinstance(chosen.memory, Window) else chosen.memory,
            format=chosen.format,
            rule=_rule(chosen),
            trainable=policy.trainable and ref.version == "latest",
            seed_key=seed_key,
            place=place,
            max_context=self.host.max_context(ref.name),
            driver=driver,
        )


def _rule(seat: SeatConfig) -> InvalidRule:
    rule = seat.on_invalid
    return InvalidRule(rule.then, rule.retry, rule.penalty, rule.others)


def _env_seed(run_seed: int, purpose: str, step: int, group: int) -> int:
    return derive(run_seed, purpose, step, group, "env") % 2**31  # what every environment's generator takes


class _Look:
    """Sits in for a seat, sees how long its first prompt is, and leaves."""

    trainable = False

    def __init__(self, seat: Seat) -> None:
        self.agent, self.role, self.policy, self.label = seat.agent, seat.role, seat.policy, seat.label
        self.tokens = 0
        self._seat = seat

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        how = space.describe(mask)
        self.tokens = len(self._seat.final_prompt(f"{observation}\n{how}" if how else observation))
        return Decision((Attempt((), None, "", None, valid=False),), None, Verdict.TRUNCATE, "only looked")

    def tell(self, sender: str, text: str) -> None:
        self._seat.tell(sender, text)

    def final_prompt(self, observation: str) -> tuple[int, ...]:
        return ()


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

    async def check(self) -> EnvHandle:
        """Opens one environment, makes a seat for every agent and looks at the first prompts of one game.

        Returns:
            The environment; it stays the rollout's own.

        Raises:
            ConfigError: an agent without a seat, a first prompt that does not fit into its model, ...
            RolloutFailed: the game failed before anybody was asked.
        """
        env = await asyncio.to_thread(self._open)  # a constructor may be slow
        for agent in self._coordinator().agents(env):
            self.cast.seat(agent, (), (0, 0))
        looks: list[_Look] = []

        def look(agent: str) -> Seat:
            looks.append(_Look(self.cast.seat(agent, (), (0, 0))))
            return looks[-1]

        seed = _env_seed(self.config.seed, "check", 0, 0)
        table = Table(env, look, episode_id="check", seed=seed)
        timeout = self.config.coordinator.episode_timeout
        episode = await play_episode(self._coordinator(), env, table, episode_timeout=timeout)
        if episode.status is EpisodeStatus.FAILED:
            raise RolloutFailed(f"{env.id} failed before anybody was asked (seed {seed}):\n{episode.error}")
        for seen in looks:
            self._check_room(seen)
        self._idle.append(env)
        return env

    def _check_room(self, seen: _Look) -> None:
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
        env = self._idle.pop() if self._idle else self._open()
        table = Table(
            env,
            lambda agent: self.cast.seat(agent, seed_key, place, driver),
            episode_id=f"{step:06d}/{group:04d}/{member:02d}",
            seed=_env_seed(run_seed, purpose, step, group),
            group=group,
            member=member,
            turn_timeout=coordinator.turn_timeout,
            pace=self.host.sampler,
        )
        episode = await play_episode(self._coordinator(), env, table, episode_timeout=coordinator.episode_timeout)
        if "deadline" in episode.outcome and not env.abandoned:
            # a call may still be under way in it: it is closed, which waits for that call or abandons it
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
                f"{self.config.rollout.max_failed} allows; the first, {failed[0].id}:\n{failed[0].error}"
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
