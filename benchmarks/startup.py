"""Seconds from the command to the first training step of the quickstart, and where they go.

Two moments are told: the first gradient step (the warm start's, where the configuration has one) and the end of step 1, the
first update on what the policies played themselves, which lies behind the whole warm start. The goal is on the second.
Files are read once before (a warm cache). Seconds depend on what else the machine does, CPU seconds less: cores that share
their caches slow each other down, so look at the load.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOAL_S = 15.0
COMMANDS = {
    "import opentinker": ["-c", "import opentinker"],
    "opentinker --help": ["-m", "opentinker.cli", "--help"],
    "opentinker config": ["-m", "opentinker.cli", "config"],
    "opentinker envs list": ["-m", "opentinker.cli", "envs", "list"],
}
LIBRARIES = "import opentinker.run, opentinker.training.host as h; h.bring_up()"


class Marks:
    """A run's `Progress` that writes down when it heard of what, and ends the process after step 1."""

    def __init__(self, started: float) -> None:
        self.started, self.seen = started, []

    def mark(self, name: str) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        self.seen.append((name, time.time() - self.started, used.ru_utime + used.ru_stime))

    def warm(self, done: int, total: int) -> None:
        if done == 1:
            self.mark("first gradient step")

    def begin(self, config: Any, done: int) -> None:
        self.mark("rest of the warm start")

    def step(self, row: Any) -> None:
        self.mark("step 1")
        print(json.dumps(self.seen), flush=True)
        os._exit(0)

    def stopping(self, what: str) -> None:
        pass


def child(started: float, config: str, overrides: list[str]) -> None:
    """Trains as the command does, in the same order, with a mark after each stage."""
    marks = Marks(started)
    marks.mark("interpreter")
    import opentinker.cli
    import opentinker.run
    from opentinker.collector import paused_collector

    marks.mark("command, configuration, environments")
    with paused_collector():  # as `train` does
        import opentinker.training.host as host

        marks.mark("torch, transformers")
        host.bring_up()
        marks.mark("verl, ray")
    make = host.LocalHost.__init__

    def made(*arguments: Any, **named: Any) -> None:
        make(*arguments, **named)
        marks.mark("models, engines")

    host.LocalHost.__init__ = made  # type: ignore[method-assign]
    opentinker.run.train(config, *overrides, progress=marks)


def timed(arguments: list[str], folder: str) -> tuple[float, float, str]:
    """Seconds, CPU seconds and output of one Python process."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, done.stdout + done.stderr


def train_once(options: argparse.Namespace) -> list[tuple[str, float, float]]:
    """The marks of one run in a fresh process and folder."""
    config = str(Path(options.config).resolve())
    with tempfile.TemporaryDirectory() as folder:
        here = [__file__, "--child", str(time.time()), "--config", config, "--set", *options.set]
        return json.loads(timed(here, folder)[2].splitlines()[-1])


def by_library(folder: str) -> dict[str, float]:
    """Seconds each library's own modules take to import, by `-X importtime`; the ten largest, and the rest."""
    own: Counter[str] = Counter()
    for line in timed(["-X", "importtime", "-c", LIBRARIES], folder)[2].splitlines():
        if found := re.match(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\w+)", line):
            own[found[2]] += int(found[1]) / 1e6
    largest = own.most_common(10)
    return {name: round(seconds, 2) for name, seconds in [*largest, ("rest", own.total() - sum(s for _, s in largest))]}


def main() -> None:
    """Runs the benchmark and prints its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="once, with a warm start of one step")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--config", default=str(ROOT / "configs" / "kuhn_selfplay.yaml"))
    parser.add_argument("--set", nargs="*", default=[], help="overrides, key.path=value")
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.config, options.set)
    if options.quick:
        options.repeats, options.set = 1, [*options.set, "warm_start.steps=1"]
    train_once(options)  # reads every file once
    runs = [train_once(options) for _ in range(options.repeats)]
    load = round(os.getloadavg()[0], 1)
    figures: dict[str, Any] = {"goal_s": GOAL_S, "cores": os.cpu_count(), "load": load, "repeats": options.repeats}
    print(f"{figures['cores']} cores, load {load}; medians of {options.repeats}, since the start (this stage)")
    figures["stages"] = {}
    before = (0.0, 0.0)
    for number, (name, *_) in enumerate(runs[0]):
        seconds, cpu = (statistics.median(run[number][which] for run in runs) for which in (1, 2))
        print(f"{seconds:6.2f} s  {cpu:6.2f} CPU s  (+{cpu - before[1]:5.2f})  {name}")
        figures["stages"][name] = [round(seconds - before[0], 2), round(cpu - before[1], 2)]
        before = (seconds, cpu)
        if name in ("first gradient step", "step 1"):
            figures |= {f"{name.replace(' ', '_')}_s": round(seconds, 2), f"{name.replace(' ', '_')}_cpu_s": round(cpu, 2)}
    with tempfile.TemporaryDirectory() as folder:
        figures["commands"] = {}
        for name, arguments in COMMANDS.items():
            times = [timed(arguments, folder)[:2] for _ in range(options.repeats)]
            seconds, cpu = (statistics.median(column) for column in zip(*times, strict=True))
            print(f"{seconds:6.2f} s  {cpu:6.2f} CPU s  {name}")
            figures["commands"][name] = [round(seconds, 2), round(cpu, 2)]
        figures["imports"] = by_library(folder)
    print("imports, seconds of their own: " + ", ".join(f"{name} {s}" for name, s in figures["imports"].items()))
    figures["met"] = figures["step_1_s"] <= GOAL_S
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
