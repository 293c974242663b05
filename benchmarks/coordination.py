"""What coordination costs: decisions a second through seats, table and coordinator, against a loop written by hand.

Three sides play the same games with the same moves, taken in turn, one core:

- full: inline `EnvHandle`, `Turns`, a `PolicySeat` per player, chat renderer, a whole `Episode` at the end
- hand: a loop that writes the chat text, encodes it, parses the reply and steps
- raw: the environment alone, no text

The sampler answers at once with a legal move's ids. Figures are medians over repeats; `ratio` is full / hand, each repeat
compared with itself; seconds are the process's CPU time. The renderer keeps the ids of short texts it has seen, the
hand-written loop encodes every time.

    python benchmarks/coordination.py [--quick] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from opentinker.coordinators import Table, Turns, play_episode
from opentinker.envs import EnvHandle, make_env
from opentinker.render import ChatRenderer
from opentinker.sampling.tiny import build_tokenizer
from opentinker.seats import PolicySeat
from opentinker.types import Completion, FinishReason, PolicyRef, SampleKey, SamplingParams

REF = PolicyRef("learner")
GOAL = 0.5


@dataclass(frozen=True)
class Game:
    """A game, and by hand what a codec does for it."""

    id: str
    legal: Callable[[Any], Sequence[Any]]
    """The legal actions of a live environment."""
    said: Callable[[Any, Any], str]
    """The user message for an observation and the legal actions."""
    parse: Callable[[str], Any]


def empty_squares(env: Any) -> list[int]:
    """Tic-tac-toe's legal actions."""
    return [square for square, owner in enumerate(env.unwrapped.board.squares) if not owner]


GAMES = {
    "kuhn": Game("kuhn_poker", lambda env: ("p", "b"), lambda observation, legal: observation, str.strip),
    "tictactoe": Game(
        "pettingzoo/classic/tictactoe_v3",
        empty_squares,
        lambda observation, legal: (
            f"{observation['observation'].tolist()}\nAnswer with one of: {', '.join(map(str, legal))}."
        ),
        int,
    ),
}


@dataclass
class Sampler:
    """Answers at once with the ids of a legal move, drawn from its own generator."""

    game: Game
    env: Any
    tokenizer: Any
    rng: random.Random = field(default_factory=random.Random)
    replies: dict[Any, Completion] = field(default_factory=dict)

    def answer(self) -> Completion:
        """A legal move; what it costs is in both sides alike."""
        legal = self.game.legal(self.env)
        move = legal[int(self.rng.random() * len(legal))]
        reply = self.replies.get(move)
        if reply is None:
            ids = tuple(self.tokenizer.encode(str(move), add_special_tokens=False))
            reply = Completion(ids, (-1.0,) * len(ids), str(move), FinishReason.LENGTH, REF.name, 0)
            self.replies[move] = reply
        return reply

    async def sample(
        self, ref: PolicyRef, prompt_ids: Sequence[int], params: SamplingParams, *, key: SampleKey
    ) -> Completion:
        """See `opentinker.types.Sampler`."""
        return self.answer()


class Sides:
    """The three ways to play one game. Each returns its decisions and the prompt ids it made."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.env = make_env(game.id)
        self.tokenizer = build_tokenizer()
        self.renderer = ChatRenderer(self.tokenizer)
        self.sampler = Sampler(game, self.env, self.tokenizer)

    def full(self, seeds: Sequence[int]) -> tuple[int, int]:
        """OpenTinker's whole path."""
        return asyncio.run(self._full(seeds))

    async def _full(self, seeds: Sequence[int]) -> tuple[int, int]:
        env = EnvHandle.wrap(self.env, id=self.game.id, isolation="inline")
        params = SamplingParams(max_tokens=1)
        decisions = tokens = 0
        for seed in seeds:
            self.sampler.rng.seed(seed)

            def seat(agent: str, seed: int = seed) -> PolicySeat:
                return PolicySeat(
                    agent,
                    ref=REF,
                    sampler=self.sampler,
                    renderer=self.renderer,
                    params=params,
                    memory="last",
                    seed_key=(seed,),
                )

            episode = await play_episode(Turns(), env, Table(env, seat, episode_id=str(seed), seed=seed))
            if episode.error or not all(turn.valid for turn in episode.turns):
                raise RuntimeError(f"{self.game.id}, seed {seed}: {episode.error or 'an invalid reply'}")
            decisions += len(episode.turns)
            tokens += sum(len(turn.prompt_ids) for turn in episode.turns)
        return decisions, tokens

    def hand(self, seeds: Sequence[int]) -> tuple[int, int]:
        """The loop a person would write for this game."""
        game, env, encode = self.game, self.env, self.tokenizer.encode
        decisions = tokens = 0
        for seed in seeds:
            self.sampler.rng.seed(seed)
            record: list[tuple[Any, ...]] = []
            env.reset(seed=seed)
            for agent in env.agent_iter():
                observation, reward, terminated, truncated, _ = env.last()
                if terminated or truncated:
                    record.append((agent, (), None, None, reward))
                    env.step(None)
                    continue
                legal = game.legal(env)
                text = f"<|im_start|>user\n{game.said(observation, legal)}<|im_end|>\n<|im_start|>assistant\n"
                prompt = tuple(encode(text, add_special_tokens=False))
                reply = self.sampler.answer()
                action = game.parse(reply.text)
                if action not in legal:
                    raise RuntimeError(f"{game.id}, seed {seed}: {reply.text!r} is not legal")
                record.append((agent, prompt, reply, action, reward))
                env.step(action)
            decisions += sum(reply is not None for _, _, reply, _, _ in record)
            tokens += sum(len(prompt) for _, prompt, *_ in record)
        return decisions, tokens

    def raw(self, seeds: Sequence[int]) -> tuple[int, int]:
        """The environment alone."""
        game, env = self.game, self.env
        decisions = 0
        for seed in seeds:
            self.sampler.rng.seed(seed)
            env.reset(seed=seed)
            for _ in env.agent_iter():
                _, _, terminated, truncated, _ = env.last()
                if terminated or truncated:
                    env.step(None)
                    continue
                env.step(game.parse(self.sampler.answer().text))
                decisions += 1
        return decisions, 0


def timed(side: Callable[[Sequence[int]], tuple[int, int]], seeds: Sequence[int]) -> tuple[float, int, float]:
    """(decisions a second, decisions, prompt ids a decision)."""
    gc.collect()
    # The process's own CPU time: no side waits for anything, and what else the machine does is left out.
    start = time.process_time()
    decisions, tokens = side(seeds)
    return decisions / (time.process_time() - start), decisions, tokens / decisions


def measure(game: Game, episodes: int, repeats: int, seed: int) -> dict[str, float]:
    """Medians over repeats; the sides alternate, so that what else the machine does falls on all of them."""
    sides = Sides(game)
    names = ("full", "hand", "raw")
    for name in names:
        getattr(sides, name)(range(seed, seed + 20))  # warm
    rates: dict[str, list[float]] = {name: [] for name in names}
    length: dict[str, float] = {}
    for repeat in range(repeats):
        first = seed + 1000 + repeat * episodes
        played = set()
        for name in names if repeat % 2 else reversed(names):
            rate, decisions, length[name] = timed(getattr(sides, name), range(first, first + episodes))
            rates[name].append(rate)
            played.add(decisions)
        if len(played) > 1:
            raise RuntimeError(f"{game.id}: the sides played different games, {sorted(played)} decisions")
    ratios = [full / hand for full, hand in zip(rates["full"], rates["hand"], strict=True)]
    return {
        **{name: round(median(rates[name])) for name in names},
        "ratio": round(median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "prompt_ids_full": round(length["full"], 1),
        "prompt_ids_hand": round(length["hand"], 1),
    }


def machine() -> str:
    """What it ran on."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            cpu = next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few episodes: seconds, not a figure to quote")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    episodes, repeats = (100, 3) if options.quick else (2000, 9)
    command = " ".join(["python", "benchmarks/coordination.py", *sys.argv[1:]])
    print(f"command: {command}\nmachine: {machine()}\nseed: {options.seed}; {repeats} repeats of {episodes} episodes a side")
    figures: dict[str, Any] = {"command": command, "machine": machine(), "seed": options.seed, "goal": GOAL}
    for name, game in GAMES.items():
        found = figures[name] = measure(game, episodes, repeats, options.seed)
        print(
            f"{name}: full {found['full']:.0f}, hand {found['hand']:.0f}, raw {found['raw']:.0f} decisions/s; full/hand "
            f"{found['ratio']} ({found['ratio_min']} to {found['ratio_max']}), goal {GOAL}; "
            f"prompt ids {found['prompt_ids_full']} and {found['prompt_ids_hand']}"
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
