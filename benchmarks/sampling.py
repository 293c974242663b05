"""What the embedded sampler draws in a second, over what Hugging Face's `generate` draws with the same model.

Both sides answer the same prompts with as many ids at temperature 1 (no end of text), one core, in turn:

- equal_1, equal_8, equal_32: so many prompts of 64 ids, 64 ids each
- dialogues: 32 dialogues of six turns; each turn adds an observation of 256 ids and a reply of 16
- ragged: 32 prompts of 16 to 96 ids, replies of 4 to 128 ids; `generate` does either all at once up to the longest, or one
  by one, whichever is faster

`generate` runs batched, left-padded, with its cache. The sampler is in its deterministic mode; `free` is its other one,
where it draws in a thread of its own. Figures are medians over rounds of tokens a second (`ours`, `free`, `theirs`) and of
each round's own ratio ours / theirs, which should stay above the goal. Seconds are the process's CPU time.

    python benchmarks/sampling.py [--quick] [--seed N] [--only LOAD]
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import PreTrainedModel

from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.types import PolicyRef, SamplingParams

CONTEXT = 2048
LEARNER = PolicyRef("learner")
Ids = list[int]


@dataclass(frozen=True)
class Load:
    """What both sides are asked for: dialogues, all of as many turns."""

    goal: float
    observations: list[list[Ids]]
    """By dialogue and turn: what its prompt gains."""
    replies: list[int]
    """By dialogue: ids of each reply."""

    @property
    def tokens(self) -> int:
        """Ids to draw."""
        return sum(len(turns) * n for turns, n in zip(self.observations, self.replies, strict=True))


def equal(n: int, draw: random.Random) -> Load:
    """Single requests of one size."""
    return Load(1.1, [[ids(draw, 64)] for _ in range(n)], [64] * n)


def dialogues(draw: random.Random) -> Load:
    """Prompts that go on from one another."""
    return Load(2.0, [[ids(draw, 256) for _ in range(6)] for _ in range(32)], [16] * 32)


def ragged(draw: random.Random) -> Load:
    """Single requests of many sizes."""
    replies = [round(4 + 124 * at / 31) for at in range(32)]
    draw.shuffle(replies)
    return Load(1.5, [[ids(draw, draw.randint(16, 96))] for _ in range(32)], replies)


LOADS: dict[str, Callable[[random.Random], Load]] = {
    "equal_1": lambda draw: equal(1, draw),
    "equal_8": lambda draw: equal(8, draw),
    "equal_32": lambda draw: equal(32, draw),
    "dialogues": dialogues,
    "ragged": ragged,
}


def ids(draw: random.Random, n: int) -> Ids:
    """Random ids without special ones."""
    return [draw.randrange(3, 259) for _ in range(n)]


def generate(model: PreTrainedModel, prompts: list[Ids], n: int) -> list[Ids]:
    """`generate` on left-padded prompts."""
    width = max(map(len, prompts))
    rows = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    found: Any = model.generate(  # type: ignore[operator]  # a mixin's method
        rows, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=n, use_cache=True
    )
    return [row[width:] for row in found.tolist()]


def theirs(model: PreTrainedModel, load: Load, *, together: bool) -> None:
    """`generate`'s answers, dialogue after dialogue or side by side."""
    groups = [range(len(load.replies))] if together else [[at] for at in range(len(load.replies))]
    for group in groups:
        histories: list[Ids] = [[] for _ in group]
        n = max(load.replies[at] for at in group)
        for turn in range(len(load.observations[group[0]])):
            prompts = [old + load.observations[at][turn] for old, at in zip(histories, group, strict=True)]
            answers = generate(model, prompts, n)
            histories = [prompt + new for prompt, new in zip(prompts, answers, strict=True)]


def ours(sampler: HFSampler, load: Load, seed: int) -> None:
    """The sampler's answers."""

    async def dialogue(at: int) -> None:
        history: Ids = []
        for turn, observation in enumerate(load.observations[at]):
            history += observation
            params = SamplingParams(max_tokens=load.replies[at], seed=seed * 1000 + at * 10 + turn)
            found = await sampler.sample(LEARNER, history, params, key=(at, 0, "agent", turn, 0))
            assert len(found.token_ids) == load.replies[at]
            history += found.token_ids
        sampler.leave()

    async def main() -> None:
        sampler.enter(len(load.replies))
        await asyncio.gather(*[dialogue(at) for at in range(len(load.replies))])

    asyncio.run(main())


def tokens_per_second(load: Load, call: Callable[[], Any]) -> float:
    """Of the process's CPU time."""
    started = time.process_time()
    call()
    return load.tokens / (time.process_time() - started)


def measure(make: Callable[[random.Random], Load], seed: int, rounds: int) -> dict[str, Any]:
    """Medians over rounds; the sides' order turns with the round, and each round has prompts of its own."""
    model, tokenizer = build_tiny(seed)
    model.config.max_position_embeddings = CONTEXT
    generation: Any = model.generation_config
    generation.eos_token_id, generation.pad_token_id = None, 0
    draw = random.Random(seed)
    load = make(draw)
    samplers = {name: HFSampler(deterministic=name == "ours") for name in ("ours", "free")}
    for sampler in samplers.values():
        sampler.add("learner", model, tokenizer, eos_ids=[])
    sides: dict[str, Callable[[Load, int], None]] = {
        "ours": lambda load, seed: ours(samplers["ours"], load, seed),
        "theirs": lambda load, seed: theirs(model, load, together=True),
        "free": lambda load, seed: ours(samplers["free"], load, seed),
    }
    if len(set(load.replies)) > 1:
        sides["one_by_one"] = lambda load, seed: theirs(model, load, together=False)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(-1, rounds):
        names = list(sides)
        turn = index % len(names)
        load = make(draw)
        for name in names[turn:] + names[:turn]:
            speed = tokens_per_second(load, functools.partial(sides[name], load, index))
            if index >= 0:  # the first only warms up
                found[name].append(speed)
    for sampler in samplers.values():
        sampler.close()
    best = [max(both) for both in zip(found["theirs"], found.pop("one_by_one", found["theirs"]), strict=True)]
    ratios = {name: median(a / b for a, b in zip(found[name], best, strict=True)) for name in ("ours", "free")}
    return {
        **{name: round(median(values)) for name, values in found.items()},
        "theirs": round(median(best)),
        "ratio": round(ratios["ours"], 2),
        "free_ratio": round(ratios["free"], 2),
        "goal": load.goal,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark and prints its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=LOADS, help="a single load")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rounds = 1 if options.quick else 7
    print(f"command: {' '.join(['python', *sys.argv])}")
    python, cores = platform.python_version(), os.cpu_count()
    print(f"machine: {platform.machine()}, {cores} cores, Python {python}, torch {torch.__version__}")
    print(f"seed: {options.seed}, rounds: {rounds}, torch threads: 1")
    figures: dict[str, Any] = {"seed": options.seed, "rounds": rounds}
    for name in [options.only] if options.only else LOADS:
        figures[name] = measure(LOADS[name], options.seed, rounds)
        print(f"{name}: {figures[name]}", flush=True)
    measured = [value for value in figures.values() if isinstance(value, dict)]
    figures["met"] = all(value["ratio"] >= value["goal"] for value in measured)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
