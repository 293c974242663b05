"""One run from its configuration to its last checkpoint: lease, play, credit, update, measure, again."""

from __future__ import annotations

import difflib
import gc
import glob
import logging
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from opentinker.collector import paused_collector, rare_collections
from opentinker.config import RunConfig, load_config
from opentinker.credit import make_credit
from opentinker.credit.shaping import form_penalty, legal_entropy
from opentinker.envs.registry import prepare
from opentinker.errors import ConfigError, Interrupted, RolloutFailed, WriteFailed
from opentinker.evaluate import Evaluator, check_opponents
from opentinker.players import check_player, make_player
from opentinker.report.curves import plot_curves
from opentinker.report.metrics import rollout_figures
from opentinker.report.record import episode_to_json
from opentinker.result import RunResult
from opentinker.rollout import Rollout, run_async
from opentinker.runs.checkpoints import Checkpoint
from opentinker.runs.folder import RunFolder
from opentinker.samples import to_samples
from opentinker.scheduler.client import LocalScheduler
from opentinker.signals import StopRequest
from opentinker.types import EpisodeStatus, Group, LeaseMode, Sample

log = logging.getLogger(__name__)

Row = dict[str, Any]

_ONE_RUN = threading.Lock()
"""verl's process group, torch's generator and the signals belong to the process, so one run at a time does."""


class Progress(Protocol):
    """Who is told how a run goes on."""

    def begin(self, config: RunConfig, done: int) -> None:
        """Training starts or goes on after `done` steps."""

    def warm(self, done: int, total: int) -> None:
        """A supervised step of the warm start is done."""

    def step(self, row: Row) -> None:
        """A step is done; `row` is its line of metrics."""

    def stopping(self, what: str) -> None:
        """A signal asked to stop; `what` is finished first, then the run is saved. Called from a signal's handler."""

    def leaving(self, signum: int) -> None:
        """A second signal: what comes next is KeyboardInterrupt, or the end of the process. Called from its handler."""


class Silent:
    """Tells nobody."""

    def begin(self, config: RunConfig, done: int) -> None:
        """Nothing."""

    def warm(self, done: int, total: int) -> None:
        """Nothing."""

    def step(self, row: Row) -> None:
        """Nothing."""

    def stopping(self, what: str) -> None:
        """Nothing."""

    def leaving(self, signum: int) -> None:
        """Nothing."""


def train(
    config: RunConfig | Mapping[str, Any] | str | Path,
    *overrides: str,
    resume: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Trains the policies of a configuration.

    Args:
        config: a YAML file's path, a mapping of the same shape, or a `RunConfig`.
        overrides: `"key.path=value"` texts, applied last.
        resume: go on with the run of this name from its last whole checkpoint; start it if there is none.
        progress: is told of every step.

    Returns:
        The run's folder, figures and curve.

    Raises:
        ConfigError: anything wrong with the configuration, before anything starts.
        RunExists: a run of this name exists and `resume` is false, or another process holds it.
        RolloutFailed: too many episodes of a step failed.
        TrainingFailed: an update left weights that are no numbers.
        CheckpointError: a checkpoint could not be written, or what is there must not be passed over.
        WriteFailed: figures or episodes could not be written; what the last checkpoint holds is kept.
        Interrupted: a signal asked to stop; the run was saved.
        KeyboardInterrupt: a second Ctrl-C; the run goes on from its last checkpoint when it is resumed.
    """
    settings = load_config(config, overrides)
    if not _ONE_RUN.acquire(blocking=False):
        raise ConfigError("another run trains in this process; one at a time, or start a process for each")
    try:
        with StopRequest(armed=False) as stop:
            return run_async(lambda: _train(settings, resume, progress or Silent(), stop))  # type: ignore[no-any-return]
    finally:
        _ONE_RUN.release()


async def _train(config: RunConfig, resume: bool, progress: Progress, stop: StopRequest) -> RunResult:
    RunFolder.check(config, resume)
    make_credit(config.train.credit, **config.train.credit_kwargs)
    if config.warm_start:
        check_player(make_player(config.warm_start.player), config.env.id)
    check_opponents(config)
    prepare(config.env.id, config.env.kwargs)  # before the slow imports: a wrong id is told at once
    if config.loggers:
        from opentinker.training.loggers import check_loggers

        check_loggers(config.loggers)
    gc.collect()  # what a former run of this process left
    with paused_collector():
        from opentinker.training.host import LocalHost

        host = LocalHost(
            config.policies,
            config.train,
            seed=config.seed,
            deterministic=config.runtime.deterministic,
            threads=config.runtime.threads,
            kv_cache_mib=config.runtime.kv_cache_mib,
        )
    try:
        trainer = Trainer(config, host, progress)
        try:
            await trainer.check()
            with closing(RunFolder.open(config, resume)) as folder:
                return await trainer.run(folder, stop)
        finally:
            await trainer.rollout.close()
    finally:
        host.close()


class Trainer:
    """The loop and the state that it carries from step to step."""

    def __init__(self, config: RunConfig, host: Any, progress: Progress) -> None:
        self.config = config
        self.host = host
        self.progress = progress
        self.rollout = Rollout(config, host)
        self.evaluator = Evaluator(config)
        self.scheduler = LocalScheduler(config.name)
        self.credit = make_credit(config.train.credit, **config.train.credit_kwargs)
        self.credit_state: Mapping[str, Any] = {}
        self.loggers: Any = None
        self.doing = "the preparations"
        self.time_s = 0.0
        self.temperatures = {name: policy.sampling.temperature for name, policy in config.policies.items()}
        self.trainable = [name for name, policy in config.policies.items() if policy.trainable]

    async def check(self) -> None:
        """Finds what does not fit before anything is written.

        Raises:
            ConfigError: an agent without a seat, a metric that cannot be measured, ...
        """
        env, seats = await self.rollout.check(drivable=self.config.warm_start is not None)
        self.evaluator = await Evaluator.open(self.config, self.rollout, self.host, env, list(seats))
        if not any(seat.trainable for seat in seats.values()):
            playing = ", ".join(f"{agent}: {seat.label}" for agent, seat in seats.items())
            raise ConfigError(
                f"nothing would be trained by this cast ({playing}); give a seat a trainable policy, at its latest version"
            )
        idle = sorted(set(self.config.policies) - {seat.policy for seat in seats.values()})
        for name in sorted(set(self.config.agents) - set(seats)):
            near = difflib.get_close_matches(name, seats, n=1)
            if near and not glob.has_magic(name):
                log.warning("agents.%s seats nobody known before a game; did you mean %r?", name, near[0])
        if idle:
            log.warning("policies %s play in none of the seats known before a game (%s)", idle, ", ".join(seats))

    async def run(self, folder: RunFolder, stop: StopRequest) -> RunResult:
        """Trains from the last checkpoint, or from the start, to the last step.

        The record stands before loggers are ended and curves drawn: a signal is no longer the run's business then.
        """
        def leave(signum: int) -> None:
            folder.status.left()
            self.progress.leaving(signum)

        listening = stop.listening(lambda: self.progress.stopping(self.doing), leave)
        try:
            with listening, rare_collections(), folder.status.follow():
                done = await self._begin(folder, stop)
                self.progress.begin(self.config, done)
                await self._steps(folder, done, stop)
        finally:
            if self.loggers is not None:
                self.loggers.close(1 if sys.exc_info()[0] else 0)
        rows = folder.read_metrics()
        plot_curves(rows, folder.path / "report" / "curves.png", self.config.name)
        return RunResult(folder.path, self.config, rows)

    async def _begin(self, folder: RunFolder, stop: StopRequest) -> int:
        checkpoint = folder.checkpoints.newest()
        if checkpoint is not None:
            self._restore(checkpoint)
            folder.rewind(checkpoint.step)
            self._start(folder, checkpoint.step)
            return checkpoint.step
        folder.rewind(-1)
        self._start(folder, -1)
        started = time.perf_counter()
        await self._warm_start(folder, stop)
        self.time_s += time.perf_counter() - started
        self._write(folder, {"step": 0, "time_s": self.time_s, **(await self.evaluator.measure(0))})
        self._save(folder, 0)
        return 0

    def _start(self, folder: RunFolder, done: int) -> None:
        folder.status.step(done)
        if self.config.loggers:
            from opentinker.training.loggers import Loggers

            self.loggers = Loggers(self.config, folder.path, done)

    def _write(self, folder: RunFolder, row: Row) -> None:
        folder.write_metrics(row)
        if self.loggers is not None:
            self.loggers.log(row)

    async def _steps(self, folder: RunFolder, done: int, stop: StopRequest) -> None:
        steps = self.config.train.steps
        for step in range(done + 1, steps + 1):
            self.doing = f"step {step}"
            row = await self._step(folder, step)
            self._write(folder, row)
            self.progress.step(row)
            if step % self.config.train.checkpoint_every == 0 or step == steps or stop.signum:
                self._save(folder, step)
            if stop.signum and step < steps:
                raise Interrupted(
                    stop.signum,
                    f"stopped after step {step} of {steps}, all saved; go on with: opentinker resume {folder.path} "
                    "(or the same command and --resume)",
                )

    async def _step(self, folder: RunFolder, step: int) -> Row:
        clock = Clock()
        groups = await self._collect(folder, step)
        clock.lap("rollout")
        row: Row = {"step": step, "time_s": 0.0, **rollout_figures(groups)}
        advantages = self._advantages(groups, step, row)
        samples, stats = to_samples(groups, advantages, temperatures=self.temperatures)
        row |= {
            "train/all/samples": stats.rows,
            "train/all/splits": stats.splits,
            "train/all/empty": stats.empty,
            "rollout/all/abandoned_envs": self.rollout.env_stats.abandoned,
        }
        self._record(folder, step, groups, advantages)
        clock.lap("credit")
        await self._update(step, samples, row)
        clock.lap("update")
        row |= await self.evaluator.measure(step)
        clock.lap("eval")
        self.time_s += clock.total
        row["time_s"] = self.time_s
        row |= {f"time/{name}_s": seconds for name, seconds in clock.laps.items()}
        row["time/tokens_per_s"] = row["rollout/all/tokens"] / max(clock.laps["rollout"], 1e-9)
        return row

    async def _collect(self, folder: RunFolder, step: int, **settings: Any) -> list[Group]:
        async with self.scheduler.lease(list(self.config.policies), LeaseMode.SERVE):
            try:
                return await self.rollout.collect(step, **settings)
            except RolloutFailed as failure:
                try:
                    folder.write_episodes(step, map(episode_to_json, failure.episodes))
                except WriteFailed as error:
                    log.warning("the failed episodes are lost: %s", error)
                raise

    def _advantages(self, groups: list[Group], step: int, row: Row) -> Mapping[str, tuple[float, ...]]:
        settings = self.config.train
        result = self.credit(groups, self.credit_state)
        self.credit_state = result.state
        row |= {f"credit/all/{name}": count for name, count in result.warnings.items()}
        advantages = form_penalty(groups, result.advantages)
        alpha = settings.legal_entropy.at(step - 1, settings.steps)
        if alpha:
            advantages = legal_entropy(groups, advantages, alpha)
            row["train/all/legal_entropy"] = alpha
        return advantages

    async def _update(self, step: int, samples: list[Sample], row: Row) -> None:
        lr = self.config.train.optim.lr.at(step - 1, self.config.train.steps)
        for name in self.trainable:
            own = [sample for sample in samples if sample.policy == name]
            if not own:
                row[f"train/{name}/skipped"] = 1  # nobody played it this step, or every game was dropped
                continue
            async with self.scheduler.lease([name], LeaseMode.TRAIN):
                result = self.host.update(name, own, lr=lr)
            row[f"train/{name}/version"] = result.version
            row |= {f"train/{name}/{key}": value for key, value in result.metrics.items()}

    async def _warm_start(self, folder: RunFolder, stop: StopRequest) -> None:
        settings = self.config.warm_start
        if settings is None or settings.steps == 0:
            return
        player = make_player(settings.player)
        for step in range(1, settings.steps + 1):
            groups = await self._collect(
                folder, step, purpose="warm", groups=settings.episodes, group_size=1, driver=player
            )
            ones = {
                episode.id: tuple(float(turn.trainable) for turn in episode.turns)
                for group in groups
                for episode in group.episodes
            }
            samples, _ = to_samples(groups, ones, temperatures=self.temperatures)
            for name in self.trainable:
                own = [sample for sample in samples if sample.policy == name]
                if own:
                    self.host.fit(name, own, lr=settings.lr.at(step - 1, settings.steps))
            self.progress.warm(step, settings.steps)
            self.doing = f"step {step + 1} of the warm start"
            if stop.signum:
                raise Interrupted(
                    stop.signum, "stopped during the warm start; it begins anew with the same command and --resume"
                )

    def _record(
        self, folder: RunFolder, step: int, groups: list[Group], advantages: Mapping[str, tuple[float, ...]]
    ) -> None:
        settings = self.config.rollout
        episodes = [episode for group in groups for episode in group.episodes]
        due = step % settings.record_every == 0 or step in (1, self.config.train.steps)
        kept = [
            episode
            for index, episode in enumerate(episodes)
            if (due and index < settings.record) or episode.status is EpisodeStatus.FAILED
        ]
        if kept:
            folder.write_episodes(step, (episode_to_json(episode, advantages.get(episode.id)) for episode in kept))

    def _save(self, folder: RunFolder, step: int) -> None:
        folder.sync_metrics()
        if self.loggers is not None:
            self.loggers.sync()
        state = {
            "time_s": self.time_s,
            "credit": self.credit_state,
            "evaluator": self.evaluator.state(),
            "scheduler_epoch": self.scheduler.epoch,
        }

        def write(policies: Path) -> None:
            for name in self.config.policies:
                self.host.save(name, str(policies / name))

        folder.checkpoints.save(step, state, write)
        folder.prune(step)

    def _restore(self, checkpoint: Checkpoint) -> None:
        for name in self.config.policies:
            self.host.load(name, str(checkpoint.policy_folder(name)))
        state = checkpoint.state
        self.time_s = state["time_s"]
        self.credit_state = state["credit"]
        self.evaluator.restore(state["evaluator"])
        self.scheduler.epoch = state["scheduler_epoch"]


class Clock:
    """Seconds per phase of a step."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._started = self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Ends a phase."""
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now

    @property
    def total(self) -> float:
        """Seconds since the start."""
        return self._last - self._started
