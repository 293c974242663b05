"""What a run has left: its configuration, figures, episodes and weights, for whoever reads it from Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opentinker.config import RunConfig
from opentinker.errors import UnknownId
from opentinker.report.record import episode_from_json
from opentinker.report.runs import PLACES, json_line, lines_of
from opentinker.runs.reading import RunRef, find_run, read_config, read_metrics
from opentinker.types import Episode

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run on disk. What is not there yet (the curves of a run that still trains, say) comes with its time."""

    folder: Path
    """The run's folder."""
    config: RunConfig = field(repr=False)
    """The resolved configuration."""
    rows: list[Row] = field(repr=False)
    """The lines of `metrics.jsonl`."""

    @property
    def curves(self) -> Path:
        """The PNG of its curves, drawn when a run ends."""
        return self.folder / "report" / "curves.png"

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.seed

    def last(self, key: str) -> Any:
        """The latest value of a figure.

        Raises:
            KeyError: it was never measured.
        """
        return self.figure(key)[-1][1]

    def figure(self, key: str) -> list[tuple[int, Any]]:
        """A figure over time: (step, value), oldest first.

        Raises:
            KeyError: it was never measured.
        """
        found = [(row["step"], row[key]) for row in self.rows if key in row]
        if not found:
            raise KeyError(f"{key!r} was never measured; {self.folder / 'metrics.jsonl'} has the keys of this run")
        return found

    def episodes(self, kind: Literal["training", "play", "evaluation"] = "training") -> Iterator[Episode]:
        """The episodes that were written down, read from disk one by one; lines that are torn or none are left out.

        Args:
            kind: `training` for those of the steps (see `rollout.record`), oldest first; `play` and `evaluation` for
                those of `opentinker play` and `opentinker eval`.

        Raises:
            KeyError: no such kind.
        """
        place = dict(PLACES)[kind]
        for file in sorted((self.folder / place).rglob("*.jsonl")):
            for line in lines_of(file):
                row = json_line(line)
                if row is None:
                    continue
                try:
                    yield episode_from_json(row)
                except (KeyError, TypeError, ValueError, AttributeError):  # another kind of line
                    continue

    def weights(self, policy: str, step: int | None = None) -> Path:
        """The folder of a policy's weights at a checkpoint.

        In Hugging Face layout, which `model` of a configuration takes, or in PEFT's for a policy with an adapter.

        Args:
            policy: its name.
            step: of the checkpoint; None: the newest.

        Raises:
            UnknownId: no such policy.
            CheckpointError: no such checkpoint, or it is damaged.
        """
        if policy not in self.config.policies:
            raise UnknownId("policy", policy, self.config.policies)
        return RunRef(self.folder, step).load().policy_folder(policy) / "weights"


def read_run(run: str | Path) -> RunResult:
    """Reads a run, also while it trains. Nothing heavy is imported, nothing on disk changed.

    Args:
        run: its folder, or its name below `runs/`.

    Raises:
        UnknownId: no such run, with near names.
        ConfigError: its configuration is not what this version writes.
    """
    path = find_run(str(run))
    return RunResult(path, read_config(path), read_metrics(path))
