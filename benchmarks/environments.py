"""What text and isolation cost over the environment alone, and whether slow environments run side by side.

1. Ten environments of different kinds play the same recorded games on four sides, taken in turn; every figure is the
   process's CPU time a step, as a ratio to `raw`:

   - raw: the environment's own API
   - adapter: through an inline `EnvHandle`
   - text: the same with a codec: masks split off, observations rendered, answers described, replies parsed
   - thread: the same with a thread for the environment

2. 500 episodes of an environment that sleeps 20 ms a step, in one process, a thread each, all at once; then 100 ms a step.
   The ideal is that all take as long as one of them sleeps. Figures are parts of that rate, by the clock:

   - bare: so many threads that sleep and do nothing else, which is the most that this machine allows
   - calls: steps through the handle
   - episodes: whole ones, with coordinator, table and a seat that answers at once

   20 ms ask for 25,000 steps a second, one every 40 us. Every step hands Python's lock to the environment's thread twice;
   what one hand-over takes is told beside the figures.

    python benchmarks/environments.py [--quick] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import platform
import random
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import gymnasium
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from opentinker.collector import rare_collections
from opentinker.coordinators import Solo, Table, play_episode
from opentinker.envs import EnvHandle, TextCodec, make_env, open_env
from opentinker.envs.world import kind_of
from opentinker.seeding import derive
from opentinker.types import ActionText, Attempt, Decision, EpisodeStatus

GOAL = 0.9
"""Of the ideal rate."""
AT_ONCE = 500
SLEEPS = (0.02, 0.1)
"""Seconds a step; the goal is meant for the first."""
MOST_STEPS = 50
"""Of a recorded game."""
SIDES = ("raw", "adapter", "text", "thread")
ROWS = ("bare", "calls", "episodes")


class Nested(gymnasium.Env[Any, Any]):
    """Spaces inside spaces; the same few observations over and over, so that the world itself costs little."""

    def __init__(self) -> None:
        self.observation_space = Dict(
            {
                "place": Box(-1.0, 1.0, (2, 3)),
                "bag": Tuple((Discrete(5), MultiDiscrete([3, 4]))),
                "lamps": Dict({"lit": MultiBinary(4)}),
            }
        )
        self.action_space = Discrete(6)
        self.observation_space.seed(0)
        self._seen = [self.observation_space.sample() for _ in range(8)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The first observation."""
        self._step = 0
        return self._seen[0], {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Another observation."""
        self._step += 1
        return self._seen[self._step % len(self._seen)], float(action), self._step == MOST_STEPS, False, {}


ENVIRONMENTS: Mapping[str, Callable[[], Any]] = {
    id: (lambda id=id: make_env(id))  # type: ignore[misc]
    for id in (
        "gymnasium/FrozenLake-v1",
        "gymnasium/Taxi-v4",
        "gymnasium/Blackjack-v1",
        "gymnasium/CartPole-v1",
        "gymnasium/Pendulum-v1",
        "kuhn_poker",
        "negotiation",
        "pettingzoo/classic/tictactoe_v3",
        "matrix_game",
    )
} | {"nested": Nested}


@dataclass
class Recorded:
    """One game: its seed and, step by step, the actions and the texts that name them, by agent."""

    seed: int
    steps: list[dict[str, tuple[Any, str]]] = field(default_factory=list)


Question = tuple[str, Any, Any]
"""An agent, its observation and its info."""


def questions(env: Any, kind: str, seed: int) -> Generator[list[Question], dict[str, Any], None]:
    """What is asked at each step of a game; takes the actions."""
    if kind == "solo":
        observation, info = env.reset(seed=seed)
        over = False
        while not over:
            actions = yield [("agent", observation, info)]
            observation, _, terminated, truncated, info = env.step(actions["agent"])
            over = terminated or truncated
    elif kind == "parallel":
        observations, infos = env.reset(seed=seed)
        while env.agents:
            actions = yield [(agent, observations[agent], infos[agent]) for agent in env.agents]
            observations, _, _, _, infos = env.step(actions)
    else:
        env.reset(seed=seed)
        while env.agents:
            observation, _, terminated, truncated, info = env.last()
            if terminated or truncated:
                env.step(None)
            else:
                agent = env.agent_selection
                actions = yield [(agent, observation, info)]
                env.step(actions[agent])


def raw_solo(env: Any, game: Recorded) -> None:
    """A recorded game of a Gymnasium environment."""
    env.reset(seed=game.seed)
    for step in game.steps:
        env.step(step["agent"][0])


def raw_parallel(env: Any, game: Recorded) -> None:
    """A recorded game of a PettingZoo environment whose agents act at once."""
    env.reset(seed=game.seed)
    for step in game.steps:
        env.step({agent: action for agent, (action, _) in step.items()})


def raw_aec(env: Any, game: Recorded) -> None:
    """A recorded game of a PettingZoo environment whose agents take turns."""
    env.reset(seed=game.seed)
    for step in game.steps:
        env.last()
        env.step(step[env.agent_selection][0])
    while env.agents:
        _, _, terminated, truncated, _ = env.last()
        if not (terminated or truncated):
            return
        env.step(None)


@dataclass
class Codecs:
    """One environment's codecs, and what a step asks of them."""

    env: Any
    kind: str
    made: dict[str, TextCodec] = field(default_factory=dict)

    def of(self, agent: str) -> TextCodec:
        """The agent's codec."""
        if agent not in self.made:
            env = self.env
            spaces = (
                (env.observation_space, env.action_space)
                if self.kind == "solo"
                else (env.observation_space(agent), env.action_space(agent))
            )
            self.made[agent] = TextCodec(*spaces)
        return self.made[agent]

    def read(self, agent: str, observation: Any, info: Any, reply: str) -> Any:
        """All that text costs at one decision; returns the action."""
        codec = self.of(agent)
        seen, mask = codec.split(observation, info)
        codec.render(seen)
        codec.describe(mask)
        return codec.parse(reply, mask)


class Sides:
    """The four ways to play one environment's recorded games. Each returns the number of steps."""

    def __init__(self, make: Callable[[], Any], seed: int, games: int) -> None:
        self.env = make()
        self.kind = kind_of(self.env)
        self.codecs = Codecs(self.env, self.kind)
        self.handles = {"inline": EnvHandle.wrap(make(), isolation="inline")}
        self.handles["thread"] = EnvHandle.wrap(make(), isolation="thread")
        rng = random.Random(seed)
        self.games = [self._record(rng.getrandbits(31)) for _ in range(games)]

    def _record(self, seed: int) -> Recorded:
        """A game of legal actions drawn at random."""
        game, draws, played = Recorded(seed), itertools.count(), questions(self.env, self.kind, seed)
        asked = next(played)
        for _ in range(MOST_STEPS):
            step = {}
            for agent, observation, info in asked:
                codec = self.codecs.of(agent)
                _, mask = codec.split(observation, info)
                action = codec.sample(derive(seed, next(draws)), mask)
                step[agent] = action, codec.render_action(action)
            game.steps.append(step)
            try:
                asked = played.send({agent: action for agent, (action, _) in step.items()})
            except StopIteration:
                break
        return game

    def raw(self) -> int:
        """The environment's own API."""
        play = {"solo": raw_solo, "aec": raw_aec, "parallel": raw_parallel}[self.kind]
        for game in self.games:
            play(self.env, game)
        return sum(len(game.steps) for game in self.games)

    def adapter(self) -> int:
        """Through an inline handle."""
        return asyncio.run(self._handled("inline", text=False))

    def text(self) -> int:
        """Through an inline handle, in words."""
        return asyncio.run(self._handled("inline", text=True))

    def thread(self) -> int:
        """Through a handle with a thread, in words."""
        return asyncio.run(self._handled("thread", text=True))

    async def _handled(self, name: str, text: bool) -> int:
        env, play = self.handles[name], getattr(self, f"_{self.kind}")
        for game in self.games:
            await play(env, game, text)
        return sum(len(game.steps) for game in self.games)

    def _decide(self, agent: str, observation: Any, info: Any, step: Mapping[str, tuple[Any, str]], text: bool) -> Any:
        action, reply = step[agent]
        return self.codecs.read(agent, observation, info, reply) if text else action

    async def _solo(self, env: EnvHandle, game: Recorded, text: bool) -> None:
        observation, info = await env.reset(game.seed)
        for step in game.steps:
            observation, _, _, _, info = await env.step(self._decide("agent", observation, info, step, text))

    async def _parallel(self, env: EnvHandle, game: Recorded, text: bool) -> None:
        observations, infos = await env.reset(game.seed)
        for step in game.steps:
            actions = {agent: self._decide(agent, observations[agent], infos[agent], step, text) for agent in step}
            observations, _, _, _, infos = await env.step(actions)

    async def _aec(self, env: EnvHandle, game: Recorded, text: bool) -> None:
        await env.reset(game.seed)
        turn, steps = await env.turn(), iter(game.steps)
        while turn is not None:
            if turn.terminated or turn.truncated:
                turn = await env.step_turn(None)
                continue
            step = next(steps, None)
            if step is None:
                return
            turn = await env.step_turn(self._decide(turn.agent, turn.observation, turn.info, step, text))

    def close(self) -> None:
        """Ends the handles' threads."""

        async def closed() -> None:
            for handle in self.handles.values():
                await handle.close()

        asyncio.run(closed())


def ratios(make: Callable[[], Any], seed: int, steps: int, repeats: int) -> dict[str, float]:
    """Microseconds a step of `raw`, and each other side as a ratio to it; medians, each repeat compared with itself."""
    sides = Sides(make, seed, 4)
    length = sum(len(game.steps) for game in sides.games) / 4
    sides.close()
    sides = Sides(make, seed, max(4, round(steps / length)))
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    try:
        for repeat in range(-1, repeats):
            for name in SIDES if repeat % 2 else reversed(SIDES):
                gc.collect()
                start = time.process_time()
                done = getattr(sides, name)()
                seconds = time.process_time() - start
                if repeat >= 0:  # the first is for warming up
                    taken[name].append(seconds / done * 1e6)
    finally:
        sides.close()
    found = {"raw_us": round(median(taken["raw"]), 1)}
    for name in SIDES[1:]:
        compared = [side / raw for side, raw in zip(taken[name], taken["raw"], strict=True)]
        found[name] = round(median(compared), 2)
    return found


class AtOnce:
    """A seat that always says `go`; what deciding costs is another matter."""

    policy: str | None = None
    trainable = False
    label = "at once"
    decision = Decision((Attempt((), None, "go", "go", True),), "go", n_legal=1)

    def __init__(self, agent: str) -> None:
        self.agent = self.role = agent

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """Go."""
        return self.decision

    def tell(self, sender: str, text: str) -> None:
        """Hears nothing."""

    def final_prompt(self, observation: str) -> tuple[int, ...]:
        """Has no tokens."""
        return ()


def handover(count: int = 2000) -> float:
    """Microseconds until another thread goes on, when one waits for it."""
    ball, back = threading.Lock(), threading.Lock()

    def other() -> None:
        for _ in range(count):
            ball.acquire()
            back.release()

    ball.acquire()
    back.acquire()
    thread = threading.Thread(target=other)
    thread.start()
    start = time.perf_counter()
    for _ in range(count):
        ball.release()
        back.acquire()
    taken = time.perf_counter() - start
    thread.join()
    return taken / (2 * count) * 1e6


def bare(steps: int, sleep: float) -> float:
    """The part of the ideal rate that threads reach without any of this package."""
    go = threading.Event()

    def work() -> None:
        go.wait()
        for _ in range(steps):
            time.sleep(sleep)

    threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    go.set()
    for thread in threads:
        thread.join()
    return steps * sleep / (time.perf_counter() - start)


async def at_once(episodes: bool, steps: int, sleep: float) -> float:
    """The part of the ideal rate that slow environments reach."""
    kwargs = {"seconds": sleep, "steps": steps}
    envs = [open_env("opentinker.testing.envs:SlowEnv", kwargs, isolation="thread") for _ in range(AT_ONCE)]

    async def calls(env: EnvHandle, number: int) -> None:
        await env.reset(number)
        for _ in range(steps):
            await env.step("go")

    async def episode(env: EnvHandle, number: int) -> None:
        played = await play_episode(Solo(), env, Table(env, AtOnce, episode_id=str(number), seed=number))
        if played.status is not EpisodeStatus.TERMINATED or len(played.turns) != steps:
            raise RuntimeError(f"episode {number}: {played.status} after {len(played.turns)} turns; {played.error}")

    play = episode if episodes else calls
    start = time.perf_counter()
    await asyncio.gather(*[play(env, number) for number, env in enumerate(envs)])
    taken = time.perf_counter() - start
    await asyncio.gather(*[env.close() for env in envs])
    return steps * sleep / taken


def side_by_side(steps: int, sleep: float, repeats: int) -> dict[str, float]:
    """Medians over repeats, with the least and the most; the sides alternate."""
    reached: dict[str, list[float]] = {name: [] for name in ROWS}
    for repeat in range(repeats):
        for name in ROWS if repeat % 2 else reversed(ROWS):
            gc.collect()
            with rare_collections():  # as a run does
                if name == "bare":
                    part = bare(steps, sleep)
                else:
                    part = asyncio.run(at_once(name == "episodes", steps, sleep))
            reached[name].append(part)
    figures = {}
    for name, parts in reached.items():
        figures |= {name: median(parts), f"{name}_min": min(parts), f"{name}_max": max(parts)}
    return {name: round(part, 3) for name, part in figures.items()}


def machine() -> str:
    """What it ran on, and what else ran."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            cpu = next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.processor() or platform.machine()
    return f"{cpu}, {os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few games: seconds, not a figure to quote")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps, repeats = (200, 3) if options.quick else (4000, 9)
    seconds, slow_repeats = (0.3, 1) if options.quick else (2.0, 5)
    command, what = " ".join(["python", "benchmarks/environments.py", *sys.argv[1:]]), machine()
    print(f"command: {command}\nmachine: {what}\nseed: {options.seed}; {repeats} repeats of about {steps} steps a side")
    figures: dict[str, Any] = {"command": command, "machine": what, "seed": options.seed, "goal": GOAL}
    print(f"{'CPU time a step':32} {'raw, us':>8} " + " ".join(f"{name + '/raw':>12}" for name in SIDES[1:]))
    for id, make in ENVIRONMENTS.items():
        found = figures[id] = ratios(make, options.seed, steps, repeats)
        print(f"{id:32} {found['raw_us']:8.1f} " + " ".join(f"{found[name]:12.2f}" for name in SIDES[1:]), flush=True)
    figures["handover_us"] = round(median(handover() for _ in range(slow_repeats)), 1)
    print(f"a hand-over between threads: {figures['handover_us']} us")
    for sleep in SLEEPS:
        length = round(seconds / sleep)
        reached = figures[f"at_once_{sleep * 1000:g}_ms"] = side_by_side(length, sleep, slow_repeats)
        parts = [f"{name} {reached[name]} ({reached[f'{name}_min']} to {reached[f'{name}_max']})" for name in ROWS]
        print(
            f"{AT_ONCE} at once, {sleep * 1000:g} ms a step, {length} steps, {slow_repeats} repeats: of the ideal "
            f"{AT_ONCE / sleep:.0f} steps/s {', '.join(parts)}" + (f"; goal {GOAL}" if sleep == SLEEPS[0] else ""),
            flush=True,
        )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
