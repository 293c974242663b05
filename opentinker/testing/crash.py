"""Death at a chosen instant: what a run does when its process is killed can be tested only by killing it."""

from __future__ import annotations

import functools
import importlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Instant:
    """An instant in a process's life: a call of a function.

    Attributes:
        target: `module:attribute` as the caller looks it up, e.g. `opentinker.runs.checkpoints:os.rename`.
        nth: which call of it, from 1.
        when: before the call, after it returned, or `torn`: after it returned, with the file its last path argument names
            cut in half, as if the disk had got only so far.
        within: count only calls made within the so-many-th save of a checkpoint, from 1; 0: count all.
    """

    target: str
    nth: int
    when: Literal["before", "after", "torn"]
    within: int = 0


def die_at(instant: Instant) -> None:
    """Arranges that this process is killed (SIGKILL: no clean-up of any kind) at an instant."""
    module_name, _, dotted = instant.target.partition(":")
    *parents, name = dotted.split(".")
    owner = functools.reduce(getattr, parents, importlib.import_module(module_name))
    original = getattr(owner, name)
    saves = _count_saves() if instant.within else [0]
    calls = {"n": 0, "save": 0}

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if calls["save"] != saves[0]:
            calls["n"], calls["save"] = 0, saves[0]
        calls["n"] += 1
        now = calls["n"] == instant.nth and instant.within in (0, saves[0])
        if now and instant.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if now and instant.when == "torn":
            path = [argument for argument in (*args, *kwargs.values()) if isinstance(argument, (str, os.PathLike))][-1]
            os.truncate(path, os.path.getsize(path) // 2)
        if now:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def train_until(config: Mapping[str, Any], overrides: Sequence[str], instant: Instant | None) -> None:
    """Starts or resumes a run in this process, which dies at the instant, if one is given. For `multiprocessing`."""
    from opentinker.run import train

    if instant is not None:
        die_at(instant)
    train(config, *overrides, resume=True)


def _count_saves() -> list[int]:
    from opentinker.runs.checkpoints import CheckpointStore

    count = [0]
    original = CheckpointStore.save

    @functools.wraps(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return original(*args, **kwargs)

    CheckpointStore.save = save  # type: ignore[method-assign]
    return count
