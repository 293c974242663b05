"""What memory a run takes over its steps, and what an environment that hangs or lives in a process of its own costs.

Two runs of `opentinker.train`, 50 steps each, the tiny model, one core:

- kuhn: Kuhn poker in self-play, 64 games a step
- trouble: a game of three rounds with full memory in threads, 40 games a step, of which one in ten raises, hangs beyond its
  deadline or returns garbage; its environment is replaced. A call that hangs returns when its step is over

Every tenth step the resident set is read twice: `raw` as it is, and `held` after a garbage collection and after the C
library has given back what it keeps of freed memory. `slope` is that of a line through `held`, in MiB a step, and `ratio`
step 50 over step 10, which should stay below 1.02. Between two collections `raw` may stand higher and come down again.

An environment that never returns keeps its thread: `abandoned_kib` is what one takes. `process_mib` is the resident set of
the interpreter that an environment with `isolation: process` has to itself.

    python benchmarks/memory.py [--quick] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from opentinker.envs import EnvHandle, open_env
from opentinker.errors import EnvTimeout
from opentinker.run import Silent, train
from opentinker.testing.trouble import GARBAGE, HANGING, RAISING, TUPLES, Trouble

GOAL = 1.02
TROUBLED = "opentinker.testing.trouble:TroubledEnv"
PAGE = os.sysconf("SC_PAGE_SIZE")

KUHN: dict[str, Any] = {
    "env": {"id": "kuhn_poker"},
    "coordinator": {"id": "turns"},
    "agents": {"*": {"policy": "learner", "memory": "last", "on_invalid": {"forfeit": -2}}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1}}},
    "rollout": {"groups": 64, "max_failed_fraction": 0.5},
}
TROUBLE: dict[str, Any] = {
    "env": {
        "id": TROUBLED,
        "kwargs": {"kinds": [*RAISING, *HANGING, *GARBAGE, *TUPLES]},
        "isolation": "thread",
        "step_timeout": 0.5,
    },
    "coordinator": {"id": "solo"},
    "agents": {"agent": {"policy": "learner", "on_invalid": {"penalty": -1}}},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 4}}},
    "rollout": {"groups": 20, "group_size": 2, "max_failed_fraction": 0.5},
}


def resident(pid: int | str = "self") -> float:
    """A process's resident set in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 2**20


class Scale(Silent):
    """Reads the memory every so many steps, and after each lets what hangs go on."""

    def __init__(self, every: int) -> None:
        self.raw: dict[int, float] = {}
        self.held: dict[int, float] = {}
        self.failed = self.abandoned = 0
        self._every = every

    def step(self, row: Mapping[str, Any]) -> None:
        """A step is done."""
        Trouble.released.set()
        self.failed += int(row["rollout/all/failed"])
        self.abandoned = int(row["rollout/all/abandoned_envs"])
        if row["step"] % self._every == 0:
            time.sleep(0.2)  # what was let go ends
            self.raw[row["step"]] = resident()
            give_back()
            self.held[row["step"]] = resident()
        Trouble.released.clear()


def give_back() -> None:
    """Collects garbage and, with glibc, returns free memory to the system."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def slope(points: Mapping[int, float]) -> float:
    """Of the line through points by least squares."""
    x, y = mean(points), mean(points.values())
    return sum((at - x) * (value - y) for at, value in points.items()) / sum((at - x) ** 2 for at in points)


def measure(load: Mapping[str, Any], seed: int, steps: int, every: int, folder: str) -> dict[str, Any]:
    """Trains and tells the memory of its steps."""
    scale = Scale(every)
    settings = {
        **load,
        "name": "run",
        "seed": seed,
        "runs_dir": folder,
        "train": {"steps": steps, "checkpoint_every": 20, "ema": 0.9, "optim": {"lr": 1e-4}},
    }
    train(settings, progress=scale)
    return {
        "raw": {str(step): round(mib, 1) for step, mib in scale.raw.items()},
        "held": {str(step): round(mib, 1) for step, mib in scale.held.items()},
        "slope": round(slope(scale.held), 4),
        "ratio": round(scale.held[steps] / scale.held[every], 4),
        "failed": scale.failed,
        "abandoned": scale.abandoned,
    }


async def hang(env: EnvHandle) -> None:
    """A call that never returns."""
    try:
        await env.reset(0)
    except EnvTimeout:
        return
    raise AssertionError("it returned")


def abandoned_kib(n: int) -> float:
    """What an environment takes that was abandoned in a call that does not return, in KiB."""

    async def main() -> None:
        kwargs = {"kinds": ["reset hangs"], "share": 1}
        await asyncio.gather(*(hang(open_env(TROUBLED, kwargs, isolation="thread", step_timeout=0.5)) for _ in range(n)))

    gc.collect()
    before = resident()
    asyncio.run(main())
    gc.collect()
    after = resident()
    Trouble.released.set()
    return 1024 * (after - before) / n


def process_mib(n: int) -> float:
    """The resident set of an environment's own interpreter in MiB: a mean over n."""

    async def main() -> float:
        known = children()
        envs = [open_env(TROUBLED, isolation="process") for _ in range(n)]
        for env in envs:
            await env.reset(1)
        total = sum(resident(pid) for pid in children() - known)
        await asyncio.gather(*(env.close() for env in envs))
        return total / n

    return asyncio.run(main())


def children() -> set[int]:
    """The process ids of this process's children."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:  # it has ended meanwhile
            continue
        if int(parent) == os.getpid():
            found.add(int(path.parent.name))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark and prints its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few steps, which say little about 50")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    steps, every, n = (6, 2, 4) if options.quick else (50, 10, 100)
    logging.disable(logging.WARNING)  # of the trouble, which is meant
    print(f"command: {' '.join(['python', *sys.argv])}")
    print(f"machine: {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"seed: {options.seed}, steps: {steps}")
    figures: dict[str, Any] = {"goal": GOAL, "seed": options.seed, "steps": steps}
    for name, load in (("kuhn", KUHN), ("trouble", TROUBLE)):
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = measure(load, options.seed, steps, every, folder)
        print(f"{name}: {figures[name]}")
    figures["abandoned_kib"] = round(abandoned_kib(n), 1)
    figures["process_mib"] = round(process_mib(2 if options.quick else 5), 1)
    print(f"an abandoned environment: {figures['abandoned_kib']} KiB; one in a process: {figures['process_mib']} MiB")
    figures["met"] = all(figures[name]["ratio"] <= GOAL for name in ("kuhn", "trouble"))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
