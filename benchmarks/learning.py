"""What the shipped configurations learn: one run per seed, a table, one picture of the curves.

    python benchmarks/learning.py [CONFIG] [--seeds 201 202 203] [--set key.path=value …] [--plot FILE.png] [--quick]

Seconds are training time as in `metrics.jsonl` (`time_s`): set-up and imports are left out. Runs are kept in `--runs` and
not trained again if they are whole. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path
from statistics import median
from typing import Any

from opentinker.run import train

ROOT = Path(__file__).parents[1]
SHOWN = (
    "eval/exploitability/last",
    "eval/exploitability/average",
    "eval/exploitability/ema",
    "eval/invalid_mass/ema",
    "eval/random/loss_rate",
    "eval/minimax/draw_rate",
    "eval/random/invalid_rate",
    "eval/minimax/invalid_rate",
)


def measure(config: str, seed: int, runs: str, overrides: list[str]) -> dict[str, Any]:
    """The last figures of one run, and its rows."""
    name = f"{config}-{seed}".replace("_", "-")
    given = [f"seed={seed}", f"name={name}", f"runs_dir={runs}", *overrides]
    result = train(ROOT / "configs" / f"{config}.yaml", *given, resume=True)
    last = result.rows[-1]
    keys = [key for key in SHOWN if key in last] or [key for key in last if key.endswith("/return_mean")]
    if alone := [key for key in keys if key.startswith("eval/self/")]:
        keys = alone  # held-out games rather than those of the training
    return {"seed": seed, "seconds": last["time_s"], **{key: last[key] for key in keys}, "rows": result.rows}


def plot(runs: list[dict[str, Any]], file: Path, title: str) -> None:
    """Each figure over training time, a line per seed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    keys = [key for key in runs[0] if key not in ("seed", "seconds", "rows")]
    figure = Figure(figsize=(4 * len(keys), 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    for place, key in enumerate(keys, start=1):
        axes = figure.add_subplot(1, len(keys), place)
        axes.set_title(key, fontsize=9)
        axes.set_xlabel("seconds of training")
        axes.grid(alpha=0.3)
        for run in runs:
            points = [(row["time_s"], row[key]) for row in run["rows"] if row.get(key) is not None]
            axes.plot(*zip(*points, strict=True), label=f"seed {run['seed']}", linewidth=1.2)
        axes.set_ylim(bottom=0 if "exploitability" in key or "invalid" in key else None)
        axes.legend(fontsize=7)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


def main() -> None:
    """Runs, prints, plots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("config", nargs="?", default="kuhn_selfplay", help="a file of configs/, without .yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202, 203])
    parser.add_argument("--set", nargs="*", default=[], metavar="key.path=value", dest="overrides")
    parser.add_argument("--runs", default="runs", help="where the run folders lie")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--quick", action="store_true", help="one seed, 20 steps: shows that it works, measures nothing")
    options = parser.parse_args()
    seeds, overrides = options.seeds, list(options.overrides)
    runs_dir = options.runs
    if options.quick:
        seeds, overrides = seeds[:1], [*overrides, "train.steps=20", "warm_start.steps=10", "evaluate.every=10"]
        runs_dir = str(Path(runs_dir) / "quick")
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(f"machine: {machine}; config {options.config} {overrides}")
    runs = []
    for seed in seeds:
        runs.append(measure(options.config, seed, runs_dir, overrides))
        shown = {key: round(value, 4) for key, value in runs[-1].items() if key != "rows"}
        print("  ".join(f"{key.removeprefix('eval/')} {value}" for key, value in shown.items()), flush=True)
    if options.plot:
        plot(runs, options.plot, f"{options.config}, seeds {', '.join(map(str, seeds))}")
    keys = [key for key in runs[0] if key not in ("seed", "rows")]
    print(json.dumps({"config": options.config, "seeds": seeds, **{key: median(run[key] for run in runs) for key in keys}}))


if __name__ == "__main__":
    main()
