"""What one update costs through `LocalHost`, against verl's `TrainingWorker` called by hand on the same samples.

Three sides train the tiny model on the same samples, taken in turn, one core:

- host: `LocalHost.update`, from samples to new weights and their average served by the sampler
- bare: verl's worker on verl's own FSDP2 engine: nested batch, `train_batch`, one padded micro-batch; nothing is served
- lean: verl's worker on this package's engine: batch, `forward_backward`, `optimizer_step`; nothing is served

Two loads: `kuhn`, 160 answers of one id to 12 prompts of 45 ids; `dialogue`, 48 rows of 120 to 160 ids with nothing in
common, two answers of 8 ids each. Figures are medians over rounds; `ratio` is host / bare, each round compared with itself,
and should stay below 1.15; `overhead` is host / lean. Milliseconds are the process's CPU time.

    python benchmarks/training_step.py [--quick] [--seed N]
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from opentinker.config import PolicyConfig, TrainConfig
from opentinker.sampling.tiny import save_tiny
from opentinker.training.batch import make_rows
from opentinker.training.bringup import quiet, verl_environment
from opentinker.training.host import LocalHost
from opentinker.types import PolicyRef, Sample

GOAL = 1.15
LR = 1e-6  # so small that all rounds train the same policy
TRAIN = TrainConfig(optim={"lr": LR}, ema=0.99)  # type: ignore[arg-type]  # pydantic reads the mapping


def kuhn(draw: random.Random) -> list[tuple[list[int], list[list[int]]]]:
    """Prompts and, for each row, its answers with glue between them: here one answer of one id."""
    prompts = [[draw.randrange(3, 259) for _ in range(45)] for _ in range(12)]
    return [(prompts[index % 12], [[draw.randrange(3, 259)]]) for index in range(160)]


def dialogue(draw: random.Random) -> list[tuple[list[int], list[list[int]]]]:
    """Two answers of 8 ids, 10 ids of glue between them."""

    def ids(n: int) -> list[int]:
        return [draw.randrange(3, 259) for _ in range(n)]

    return [(ids(draw.randint(94, 134)), [ids(8), ids(10), ids(8)]) for _ in range(48)]


def to_sample(host: LocalHost, prompt: list[int], parts: list[list[int]], advantage: float) -> Sample:
    """A row with the sampler's own log-probabilities."""
    ids, mask, logprobs = list(prompt), [0] * len(prompt), [0.0] * len(prompt)
    for index, part in enumerate(parts):
        sampled = index % 2 == 0
        logprobs += host.score(PolicyRef("learner"), [ids], [part])[0] if sampled else [0.0] * len(part)
        ids, mask = ids + part, mask + [int(sampled)] * len(part)
    return Sample(
        policy="learner",
        agent="player_0",
        role="player_0",
        token_ids=tuple(ids),
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        advantages=tuple(advantage * scored for scored in mask),
    )


class Bare:
    """verl's worker on its own engine."""

    def __init__(self, folder: str) -> None:
        from verl.workers.engine_workers import TrainingWorker
        from verl.workers.utils.losses import ppo_loss

        from opentinker.training.worker import actor_config, worker_config

        with verl_environment(), quiet():
            os.environ["VERL_ENGINE_DEVICE"] = "cuda"  # the engine verl registers itself
            self.worker = TrainingWorker(worker_config(folder, TRAIN, {}))
            self.worker.reset()
        self.worker.set_loss_fn(functools.partial(ppo_loss, config=actor_config(TRAIN)))

    def step(self, samples: Sequence[Sample]) -> None:
        """One update."""
        self.worker.train_batch(self.batch(samples))

    def batch(self, samples: Sequence[Sample]) -> Any:
        """verl's layout: nested tensors of prompts and responses."""
        from verl.utils import tensordict_utils as tu

        def nest(rows: Sequence[Sequence[float]]) -> torch.Tensor:
            return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

        starts = [(row, row.loss_mask.index(1)) for row in samples]
        tensors: dict[str, torch.Tensor | list[Any]] = {
            "input_ids": nest([row.token_ids for row in samples]),
            "position_ids": nest([range(len(row.token_ids)) for row in samples]),
            "loss_mask": nest([row.loss_mask for row in samples]),
            "prompts": nest([row.token_ids[:start] for row, start in starts]),
            "responses": nest([row.token_ids[start:] for row, start in starts]),
            "response_mask": nest([row.loss_mask[start:] for row, start in starts]),
            "old_log_probs": nest([row.logprobs[start:] for row, start in starts]),
            "advantages": nest([row.advantages[start:] for row, start in starts]),
        }
        settings = {"temperature": 1.0, "global_batch_size": len(samples), "use_dynamic_bsz": False}
        return tu.get_tensordict(tensors, non_tensor_dict=settings | {"micro_batch_size_per_gpu": len(samples)})


def cpu_ms(call: Callable[[], Any]) -> float:
    """CPU time of a call in milliseconds."""
    started = time.process_time()
    call()
    return 1e3 * (time.process_time() - started)


def measure(host: LocalHost, lean: Any, bare: Bare, samples: list[Sample], rounds: int) -> dict[str, float]:
    """Medians over rounds; the sides' order turns with the round."""
    sides: dict[str, Callable[[], Any]] = {
        "host": lambda: host.update("learner", samples, lr=LR),
        "bare": lambda: bare.step(samples),
        "lean": lambda: lean.step(make_rows(samples), lean.ppo, LR),
    }
    for call in sides.values():
        call()
        call()
    found: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(rounds):
        names = list(sides)
        for name in names[index % 3 :] + names[: index % 3]:
            found[name].append(cpu_ms(sides[name]))
    pairs = zip(found["host"], found["bare"], found["lean"], strict=True)
    ratios = [(host_ms / bare_ms, host_ms / lean_ms) for host_ms, bare_ms, lean_ms in pairs]
    return {
        **{f"{name}_ms": round(median(values), 2) for name, values in found.items()},
        "ratio": round(median(ratio for ratio, _ in ratios), 3),
        "overhead": round(median(overhead for _, overhead in ratios), 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark and prints its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message=".*nested tensors.*")
    rounds = 6 if options.quick else 30
    print(f"command: {' '.join(['python', *sys.argv])}")
    python, cores = platform.python_version(), os.cpu_count()
    print(f"machine: {platform.machine()}, {cores} cores, Python {python}, torch {torch.__version__}")
    print(f"seed: {options.seed}, rounds: {rounds}, torch threads: 1")
    figures: dict[str, Any] = {"goal": GOAL, "seed": options.seed, "rounds": rounds}
    with tempfile.TemporaryDirectory() as folder:
        with quiet():
            save_tiny(folder, options.seed)
        host = LocalHost({"learner": PolicyConfig(model=folder)}, TRAIN, seed=options.seed, threads=1)
        from opentinker.training.worker import PolicyWorker

        lean, bare = PolicyWorker(folder, TRAIN, {}), Bare(folder)
        for name, load in (("kuhn", kuhn), ("dialogue", dialogue)):
            draw = random.Random(options.seed)
            samples = [to_sample(host, prompt, parts, draw.gauss(0, 1)) for prompt, parts in load(draw)]
            figures[name] = measure(host, lean, bare, samples, rounds)
            print(f"{name}: {figures[name]}")
        host.close()
    figures["met"] = all(figures[name]["ratio"] <= GOAL for name in ("kuhn", "dialogue"))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
