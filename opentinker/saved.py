"""Runs on disk, opened to play: the configuration, a checkpoint's policies, and who they meet."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentinker.cast import Cast
from opentinker.collector import paused_collector
from opentinker.config import RunConfig
from opentinker.envs.registry import canonical_id
from opentinker.errors import CheckpointError, ConfigError, UnknownId
from opentinker.league.match import Opponent, scripted
from opentinker.players import PLAYERS, ScriptedPlayer, check_player, make_player
from opentinker.runs.checkpoints import CheckpointStore
from opentinker.runs.reading import RunRef, parse_run_ref, read_config
from opentinker.runs.writing import write_whole, writing
from opentinker.types import AgentID

if TYPE_CHECKING:
    from opentinker.sampling.hf import HFSampler
    from opentinker.training.serve import ServingHost

log = logging.getLogger(__name__)

SELF = "self"
"""The opponent that is none: the run's own policies sit in all seats."""

_TRIES = 5
"""How often a checkpoint is looked up anew when some went away while one was read."""
_SAME = (
    "env.id", "env.kwargs", "env.action_names", "env.action_units", "env.observation_units", "env.render", "env.parse",
    "coordinator.id",
)  # fmt: skip
"""What two runs must share to meet."""


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run whose policies are served, as they were at one checkpoint."""

    ref: RunRef
    config: RunConfig
    step: int
    host: ServingHost
    cast: Cast

    @property
    def weights(self) -> str:
        """Which weights play for the policies that train: `latest` or `ema`."""
        return "ema" if self.ref.ema else "latest"


def refuse_early(ref: RunRef, config: RunConfig, against: Iterable[str] = ()) -> None:
    """Says what needs neither weights nor an environment to be known, before anything slow.

    Args:
        ref: which of the run's weights.
        config: the run's.
        against: opponents.

    Raises:
        UnknownId, ConfigError: no averaged weights, or an opponent that is none or cannot play.
    """
    if ref.ema and not config.train.ema:
        raise ConfigError(f"run {config.name!r} keeps no averaged weights (train.ema is 0); name another version")
    for text in against:
        if text != SELF:
            look_up(text, config)
            if config.coordinator.id == "solo":
                raise ConfigError(
                    f"{config.env.id!r} is played by one agent, so nobody plays against {text!r}; leave --against out to "
                    "measure returns on held-out seeds"
                )


def open_run(
    ref: RunRef, config: RunConfig | None = None, *, sampler: HFSampler | None = None, prefix: str = ""
) -> SavedRun:
    """Serves the policies of a run at a checkpoint. The run may be training meanwhile: its lock is not needed.

    Args:
        ref: which run and which of its checkpoints.
        config: replaces the run's own; for another seed, say.
        sampler: as for `ServingHost`.
        prefix: as for `ServingHost`.

    Raises:
        ConfigError: no such checkpoint, or no averaged weights.
        CheckpointError: no checkpoint can be used.
    """
    settings = config or read_config(ref.path)
    store = CheckpointStore(ref.path / "checkpoints")
    for left in reversed(range(_TRIES)):
        before = store.steps()
        if ref.step is not None and ref.step not in before:
            raise ConfigError(f"run {str(ref.path)!r} has no checkpoint of step {ref.step}; it has {_shown(before)}")
        try:
            step, host = _serve(ref, settings, sampler, prefix)
            break
        except (CheckpointError, OSError):
            # a run that trains keeps its last few: one may go away while it is read
            if store.steps() == before or not left:
                raise
    variant = "ema" if ref.ema else "latest"
    cast = Cast(settings, host, prefix=prefix, variant=variant, temperature=settings.evaluate.temperature)
    return SavedRun(ref, settings, step, host, cast)


def _serve(ref: RunRef, config: RunConfig, sampler: HFSampler | None, prefix: str) -> tuple[int, ServingHost]:
    with paused_collector():
        from opentinker.training.serve import ServingHost

    checkpoint = ref.load()
    threads = config.runtime.threads if sampler is None else None
    host = ServingHost(config, checkpoint.folder, ema=ref.ema, sampler=sampler, prefix=prefix, threads=threads)
    return checkpoint.step, host


def _shown(steps: list[int]) -> str:
    return ", ".join(map(str, steps if len(steps) <= 12 else [*steps[:5], "...", *steps[-5:]])) or "none yet"


def stamped(folder: Path, stem: str, suffix: str) -> Path:
    """A new, empty file named by a stem and the time; the folder is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    name, number = f"{stem}-{datetime.now(UTC):%Y%m%dT%H%M%S}", 1
    while True:
        file = folder / (f"{name}{suffix}" if number == 1 else f"{name}-{number}{suffix}")
        try:
            file.touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return file


def write_stamped(folder: Path, stem: str, texts: Mapping[str, str]) -> Path:
    """New files, named as by `stamped`: all of them, whole, or none.

    Args:
        folder: made where it is missing.
        stem: of their names.
        texts: by suffix.

    Returns:
        The file of the last suffix.

    Raises:
        WriteFailed: no space, no right.
    """
    with writing(folder):
        file = stamped(folder, stem, list(texts)[-1])
    try:
        for suffix, text in texts.items():
            write_whole(file.with_suffix(suffix), text)
    except BaseException:
        for suffix in texts:
            with contextlib.suppress(OSError):
                file.with_suffix(suffix).unlink()
        raise
    return file


class Opponents:
    """Resolves texts to opponents for one run, and closes what it opened.

    Args:
        config: of the run they meet.
        cast: its seats.
        agents: known before a game starts.
        sampler: serves the policies of other runs, beside the run's own.
    """

    def __init__(self, config: RunConfig, cast: Cast, agents: Iterable[AgentID], sampler: Any) -> None:
        self._config, self._cast, self._agents, self._sampler = config, cast, tuple(agents), sampler
        self._made: dict[str, Opponent] = {}

    def make(self, text: str) -> Opponent:
        """The opponent of a text: `self`, a scripted player or RUN@VERSION; made once.

        Raises:
            ConfigError, UnknownId: it is none, or cannot play this game.
            CheckpointError: the other run's checkpoint cannot be used.
        """
        if text not in self._made:
            self._made[text] = self._make(text)
        return self._made[text]

    def _make(self, text: str) -> Opponent:
        if text == SELF:
            return Opponent(SELF, None)
        found = look_up(text, self._config)
        if not isinstance(found, RunRef):
            return scripted(found, self._cast, text)
        other = open_run(found, sampler=self._sampler, prefix=f"{text}/")
        for agent in self._agents:
            try:
                other.cast.seat_config(agent)
            except ConfigError as error:
                raise ConfigError(f"opponent {text!r} cannot sit in the seat of {agent!r}: {error}") from error
        return Opponent(text, other.cast.seat)


def look_up(text: str, config: RunConfig) -> ScriptedPlayer | RunRef:
    """What a text means as an opponent: an id of a player, `always:ACTION`, `module:function` or a run. Reads no weights.

    Raises:
        UnknownId: neither a player nor a run.
        ConfigError: it cannot play the environment of `config`.
    """
    head = text.partition(":")[0]
    if text in PLAYERS or head == "always" or (":" in text and "@" not in text and "/" not in text):
        player = make_player(text)
        check_player(player, config.env.id)
        return player
    try:
        ref = parse_run_ref(text, config.runs_dir)
    except UnknownId as error:
        hint = f"or {SELF}, always:ACTION, alphabeta:DEPTH, package.module:function or RUN@STEP; {error}"
        raise UnknownId("opponent", text, PLAYERS, hint) from error
    _check_same_game(text, config, read_config(ref.path))
    return ref


def _check_same_game(text: str, config: RunConfig, other: RunConfig) -> None:
    differences = []
    for key in _SAME:
        section, name = key.split(".")
        own, theirs = (getattr(getattr(settings, section), name) for settings in (config, other))
        if own != theirs and (key != "env.id" or canonical_id(own) != canonical_id(theirs)):
            differences.append(f"{key} is {theirs!r} there and {own!r} here")
    if differences:
        raise ConfigError(f"opponent {text!r} plays another game: {'; '.join(differences)}")
