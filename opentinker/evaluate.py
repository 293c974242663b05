"""What is measured: exploitability and games against opponents between updates, and both sides of a saved run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentinker.cast import Cast
from opentinker.config import RunConfig
from opentinker.envs import EnvHandle
from opentinker.envs.games.tree import GameTree
from opentinker.errors import ConfigError, EnvError, RolloutFailed
from opentinker.league.behaviour import Probe
from opentinker.league.exploitability import IterateAverage, exploitability
from opentinker.league.match import Match, Opponent, check_match, play_match
from opentinker.league.tally import METHOD
from opentinker.report.record import episode_to_json
from opentinker.rollout import Rollout, at_least_one, brief, run_async
from opentinker.runs.reading import RunRef, parse_run_ref, read_config
from opentinker.saved import SELF, Opponents, look_up, open_run, refuse_early, write_stamped
from opentinker.types import AgentID, EpisodeStatus

Figures = dict[str, float]

KEPT = 4
"""Games of each opponent and seat that are written down; failed ones always are."""


@dataclass(frozen=True, slots=True)
class Games:
    """Games against opponents, as they are played between updates."""

    rollout: Rollout
    cast: Cast
    agents: tuple[AgentID, ...]
    opponents: tuple[Opponent, ...]

    async def measure(self, games: int) -> Figures:
        """`eval/OPPONENT/…` for every opponent."""
        figures: Figures = {}
        for opponent in self.opponents:
            figures |= match_figures(await play_match(self.rollout, self.cast, opponent, self.agents, games=games))
        return figures


class Evaluator:
    """Measures a run. Its only memory is the iterate average, which belongs to the checkpoint."""

    def __init__(
        self, config: RunConfig, tree: GameTree | None = None, probe: Probe | None = None, games: Games | None = None
    ) -> None:
        """Made by `open`."""
        self.config = config
        self._tree, self._probe, self._games = tree, probe, games
        self._average = IterateAverage(tree) if tree is not None else None

    @classmethod
    async def open(
        cls, config: RunConfig, rollout: Rollout, host: Any, env: EnvHandle, agents: Sequence[AgentID]
    ) -> Evaluator:
        """Prepares what `evaluate.metrics` and `evaluate.opponents` ask for; policies of other runs are loaded once.

        Args:
            config: the run's.
            rollout: its environments and its cast.
            host: serves its policies; those of other runs go into the same sampler.
            env: one of the environments.
            agents: known before a game starts.

        Raises:
            ConfigError: a metric that this environment or these seats do not allow, or an opponent that cannot play here.
            UnknownId: no such opponent.
            CheckpointError: an opponent's checkpoint cannot be used.
        """
        games = None
        if config.evaluate.opponents:
            settings = config.evaluate
            cast = Cast(config, host, variant=settings.policy_version, temperature=settings.temperature)
            opponents = Opponents(config, cast, agents, host.sampler)
            made = tuple(opponents.make(text) for text in dict.fromkeys(config.evaluate.opponents))
            for opponent in made:
                check_match(cast, agents, opponent, env)
            games = Games(rollout, cast, tuple(agents), made)
        if "exploitability" not in config.evaluate.metrics:
            return cls(config, games=games)
        try:
            tree: GameTree = await env.call("tree")
        except EnvError as error:
            why = "has none" if isinstance(error.__cause__, AttributeError) else f"failed to give one: {error}"
            raise ConfigError(
                f"evaluate.metrics: exploitability needs a game tree, a method `tree()`; {config.env.id!r} {why}"
            ) from error
        return cls(config, tree, await Probe.open(tree, config, rollout.cast, host, env), games)

    async def measure(self, step: int) -> Figures:
        """Figures after a step's update; the iterate average takes in every step, the rest is measured when due."""
        settings = self.config.evaluate
        due = step == 0 or step % settings.every == 0 or step == self.config.train.steps
        figures = self._exploitability(step, due)
        if due and self._games is not None:
            figures |= await self._games.measure(settings.games)
        return figures

    def _exploitability(self, step: int, due: bool) -> Figures:
        if self._tree is None or self._probe is None or self._average is None:
            return {}
        averaging = step >= self.config.evaluate.average_from
        if not (due or averaging):
            return {}
        last = self._probe.read()
        if averaging:
            self._average.add(last.behaviour)
        if not due:
            return {}
        figures = {
            "eval/exploitability/last": exploitability(self._tree, last.behaviour),
            "eval/invalid_mass/last": last.invalid,
        }
        if averaging:
            figures["eval/exploitability/average"] = exploitability(self._tree, self._average.behaviour())
        if self.config.train.ema:
            ema = self._probe.read("ema")
            figures["eval/exploitability/ema"] = exploitability(self._tree, ema.behaviour)
            figures["eval/invalid_mass/ema"] = ema.invalid
        return figures

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {"average": self._average.state()} if self._average is not None else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes up a saved state."""
        if self._tree is not None:
            self._average = IterateAverage(self._tree, state["average"])


def match_figures(match: Match) -> Figures:
    """A match as figures of a run: rates over its games, the return's mean, and what failed."""
    found, prefix = match.overall, f"eval/{match.opponent.replace('/', '_')}"
    figures: Figures = {f"{prefix}/failed": found.failed}
    if not found.games:
        return figures
    for name in ("win", "draw", "loss", "success"):
        rate = getattr(found, name)
        if rate is not None:
            figures[f"{prefix}/{name}_rate"] = rate.rate
    figures[f"{prefix}/return_mean"] = found.mean_return.mean
    figures[f"{prefix}/invalid_rate"] = found.invalid_rate
    return figures


def check_opponents(config: RunConfig) -> None:
    """Says early, before anything slow, which of `evaluate.opponents` are none or cannot play. Reads no weights.

    Raises:
        UnknownId: neither a player nor a run.
        ConfigError: it cannot play this environment, or is a run whose checkpoint may change from one look to the next.
    """
    settings = config.evaluate
    if settings.opponents and settings.policy_version == "ema" and not config.train.ema:
        raise ConfigError("evaluate.policy_version is ema, but no averaged weights are kept: set train.ema above 0")
    for text in settings.opponents:
        found = None if text == SELF else look_up(text, config)
        if isinstance(found, RunRef) and found.step is None:
            raise ConfigError(
                f"evaluate.opponents: {text!r} may be other weights after a resume; name a step, as in {found.path.name}@120"
            )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A saved run's matches."""

    run: Path
    step: int
    """Of the checkpoint."""
    weights: str
    """`latest` or `ema`."""
    env: str
    seed: int
    games: int
    """For each seat."""
    temperature: float | None
    """Of the policies that train; None: their own `sampling.temperature`."""
    matches: dict[str, Match]
    """By opponent."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, with every interval, without the games."""
        return {
            "run": str(self.run),
            "step": self.step,
            "weights": self.weights,
            "env": self.env,
            "seed": self.seed,
            "games_per_seat": self.games,
            "temperature": self.temperature,
            "intervals": METHOD,
            "opponents": {label: match.to_json() for label, match in self.matches.items()},
        }

    def save(self) -> Path:
        """Writes `evaluations/NAME.json` in the run's folder, and the first games beside it as `NAME.jsonl`.

        Raises:
            WriteFailed: no space or no right; neither of them is there then.
        """
        mark = "" if self.weights == "latest" else f"-{self.weights}"
        games = [
            json.dumps(episode_to_json(episode), allow_nan=False) + "\n"
            for match in self.matches.values()
            for episode in match.episodes
            if episode.group < KEPT or episode.status is EpisodeStatus.FAILED
        ]
        texts = {".jsonl": "".join(games), ".json": json.dumps(self.to_json(), indent=1) + "\n"}
        return write_stamped(self.run / "evaluations", f"step-{self.step:06d}{mark}", texts)


def evaluate_run(
    run: str | Path,
    against: Sequence[str] = (),
    *,
    games: int | None = None,
    seed: int | None = None,
    temperature: float | None = None,
    runs_dir: str | Path = "runs",
) -> Evaluation:
    """Plays a saved run against opponents, on seeds that no training draws from. The run may be training meanwhile.

    Args:
        run: RUN or RUN@VERSION: a folder or a name below `runs_dir`; VERSION is a step, latest, best or ema.
        against: scripted players (`random`, `minimax`, `greedy`, `alphabeta:DEPTH`, `always:ACTION`,
            `module:function`) and other runs, RUN@VERSION; none: everybody plays its own seat, which for one agent alone
            measures returns on held-out seeds.
        games: for each opponent and seat; default: the run's `evaluate.games`.
        seed: of these games; default: the run's. Equal seeds give equal games.
        temperature: of the run's policies that train, 0: greedy; default: the run's `evaluate.temperature`.
        runs_dir: where runs named by a bare name live.

    Returns:
        The matches, with intervals; `save` writes them into the run's folder.

    Raises:
        UnknownId: no such run, or no such opponent.
        ConfigError: an opponent that cannot play this game, a checkpoint that is not there, or fewer games than one.
        CheckpointError: a checkpoint that cannot be used.
        RolloutFailed: not one game against an opponent could be played to its end.
    """
    ref = parse_run_ref(str(run), runs_dir)
    config = read_config(ref.path)
    count = at_least_one("games", config.evaluate.games if games is None else games)
    own: dict[str, Any] = {"seed": config.seed if seed is None else seed, "runs_dir": str(ref.path.parent)}
    if temperature is not None:
        if not 0 <= temperature <= 1e4:
            raise ConfigError(f"temperature: must be from 0 (greedy) to 10000 (given: {temperature})")
        own["evaluate"] = config.evaluate.model_copy(update={"temperature": temperature})
    config = config.model_copy(update=own)
    texts = list(dict.fromkeys(against)) or [SELF]
    refuse_early(ref, config, texts)
    return run_async(  # type: ignore[no-any-return]
        lambda: _evaluate(ref, config, texts, count)
    )


async def _evaluate(ref: RunRef, config: RunConfig, texts: Sequence[str], games: int) -> Evaluation:
    saved = await asyncio.to_thread(open_run, ref, config)
    rollout = Rollout(config, saved.host)
    try:
        env, seats = await rollout.check()
        opponents = Opponents(config, saved.cast, seats, saved.host.sampler)
        made = [opponents.make(text) for text in texts]
        for opponent in made:
            check_match(saved.cast, list(seats), opponent, env)
        matches = {}
        for opponent in made:
            match = await play_match(rollout, saved.cast, opponent, list(seats), games=games)
            if not match.overall.games:
                error = brief(match.episodes[0].error)
                raise RolloutFailed(
                    f"all {len(match.episodes)} games against {opponent.label!r} failed; the first: {error}", match.episodes
                )
            matches[opponent.label] = match
        told = config.evaluate.temperature
        return Evaluation(ref.path, saved.step, saved.weights, config.env.id, config.seed, games, told, matches)
    finally:
        await rollout.close()
        saved.host.close()
