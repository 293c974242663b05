"""A configuration that changed since a run's last checkpoint: what may change, what that does, and the record of it.

    config_changes.jsonl   {"after_step": 300, "at": "…", "changed": {"train.steps": {"old": 1000, "new": 1200}}}

`config.yaml` holds the newest configuration; read backwards, the lines say which one every step ran with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from opentinker.config import RunConfig
from opentinker.errors import ConfigError
from opentinker.runs.checkpoints import write_synced

FILE = "config_changes.jsonl"

FOLLOWS_FOLDER = ("name", "runs_dir")
"""The folder may have moved."""
FREE = (
    "train.checkpoint_every",
    "train.keep_last",
    "train.keep_best",
    "evaluate.every",
    "evaluate.opponents",
    "evaluate.games",
    "evaluate.policy_version",
    "evaluate.temperature",
    "rollout.record",
    "rollout.record_every",
    "rollout.max_failed_fraction",
    "loggers",
)
"""What is kept, measured and written: the training is the same bit for bit."""
MACHINE = (
    "env.isolation",
    "env.step_timeout",
    "coordinator.turn_timeout",
    "coordinator.episode_timeout",
    "rollout.concurrency",
    "train.micro_batch_tokens",
    "train.merge_identical",
    "runtime.deterministic",
    "runtime.threads",
    "runtime.kv_cache_mib",
)
"""How it is computed: the same mathematics, other roundings and other clocks."""
SCHEDULES = ("train.steps", "train.optim.lr", "train.legal_entropy")
"""Read anew at every step: they hold from the next step on."""

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Change:
    """A key with another value than before."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.old)} there, {_shown(self.new)} now"

    def is_of(self, keys: Sequence[str]) -> bool:
        """Whether it is one of these keys or below one."""
        return any(self.key == key or self.key.startswith(key + ".") for key in keys)


def changes(old: RunConfig, new: RunConfig) -> list[Change]:
    """What differs, save for what follows the folder."""
    return [change for change in _differences(old.dump(), new.dump(), "") if not change.is_of(FOLLOWS_FOLDER)]


def refuse(found: Sequence[Change], new: RunConfig, path: Path, newest: int) -> None:
    """Ends where a change would make another run of it.

    Args:
        found: all changes.
        new: the configuration that is asked for.
        path: the run's folder.
        newest: the step of its newest checkpoint.

    Raises:
        ConfigError: with every key that changed, and what may change.
    """
    allowed = (*FREE, *MACHINE, *SCHEDULES)
    if not all(change.is_of(allowed) for change in found):
        lines = [f"  {change}{' (may change)' if change.is_of(allowed) else ''}" for change in found]
        raise ConfigError(
            f"run {path.name!r} in {path} has another configuration; go on with the same one or choose another name "
            "(name=…):\n" + "\n".join(lines) + f"\nmay change when a run goes on: {', '.join(allowed)}"
        )
    if new.train.steps < newest and any(change.key == "train.steps" for change in found):
        raise ConfigError(f"train.steps: {path} has a checkpoint of step {newest} already (given: {new.train.steps})")


def consequences(found: Sequence[Change], old: RunConfig, new: RunConfig, done: int) -> list[str]:
    """What allowed changes do to the training, one sentence each; empty where they do nothing to it."""
    said = []
    machine = [change for change in found if change.is_of(MACHINE)]
    if machine:
        said.append(
            f"from step {done + 1} on the figures need not be those of an uninterrupted run bit for bit: "
            + "; ".join(map(str, machine))
        )
    schedules = {
        "train.optim.lr": (old.train.optim.lr, new.train.optim.lr),
        "train.legal_entropy": (old.train.legal_entropy, new.train.legal_entropy),
    }
    for key, (before, now) in schedules.items():
        left, goes_on = before.at(max(done - 1, 0), old.train.steps), now.at(done, new.train.steps)
        moved = before != now or old.train.steps != new.train.steps and now.start != now.end
        if moved and done < new.train.steps:
            said.append(
                f"{key} goes from {now.start:g} at step 1 to {now.end:g} at step {new.train.steps} from now on: "
                f"{left:.4g} at step {done}, {goes_on:.4g} at step {done + 1}"
            )
    return said


def record(folder: Path, found: Sequence[Change], done: int) -> None:
    """Writes that these changes hold after a step; called before `config.yaml` is replaced."""
    changed = {change.key: {"old": _plain(change.old), "new": _plain(change.new)} for change in found}
    line = {"after_step": done, "at": datetime.now(UTC).isoformat(timespec="seconds"), "changed": changed}
    write_synced(folder / FILE, "".join(json.dumps(item) + "\n" for item in [*read_changes(folder), line]))


def cut(folder: Path, done: int, config: RunConfig) -> None:
    """After a rewind: what changed after a later step changed after this one, as far as anything was done before it.

    A last line whose values are not those of `config.yaml` was written by a start that was killed before they held.
    """
    lines = read_changes(folder)
    if not lines:
        return
    held = config.dump()
    while lines and any(_value(held, key) != _plain(value["new"]) for key, value in lines[-1]["changed"].items()):
        lines.pop()
    kept = [{**line, "after_step": min(line["after_step"], done)} for line in lines] if done >= 0 else []
    write_synced(folder / FILE, "".join(json.dumps(line) + "\n" for line in kept))


def read_changes(folder: Path) -> list[dict[str, Any]]:
    """The lines of `config_changes.jsonl`, oldest first; empty where nothing ever changed."""
    try:
        return [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise ConfigError(f"{folder / FILE} is not what this version writes: {error}; move it elsewhere") from error


def _differences(old: Any, new: Any, key: str) -> list[Change]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for name in dict.fromkeys([*old, *new]):
            below = f"{key}.{name}" if key else str(name)
            found += _differences(old.get(name, _ABSENT), new.get(name, _ABSENT), below)
        return found
    return [] if old == new else [Change(key, old, new)]


def _value(data: Any, key: str) -> Any:
    for name in key.split("."):  # the keys that may change hold no names of the user's choice
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _plain(value: Any) -> Any:
    return None if value is _ABSENT else value


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else repr(value)
