"""One game of a human against a saved run's agents."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentinker.cast import Cast
from opentinker.config import RunConfig
from opentinker.errors import ConfigError, RolloutFailed, UnknownId
from opentinker.human import HumanSeat, WatchedSeat, excerpt, printable
from opentinker.league.match import Opponent
from opentinker.report.record import episode_to_json
from opentinker.rollout import Rollout, brief, run_async
from opentinker.runs.reading import RunRef, parse_run_ref, read_config
from opentinker.saved import SELF, Opponents, open_run, refuse_early, write_stamped
from opentinker.seeding import Key
from opentinker.types import AgentID, Episode, EpisodeStatus, Seat


@dataclass(frozen=True, slots=True)
class Played:
    """A game that is over."""

    episode: Episode
    file: Path
    """Its transcript: one line, an episode as `opentinker.report.record` reads it."""
    agent: AgentID
    """Whom the human played."""
    seed: int
    """The same seed gives the same world and the same draws."""

    def describe(self) -> str:
        """The result in words, for the human."""
        episode = self.episode
        lines = [f"game over ({episode.status})"]
        if "out" in episode.outcome:
            details = episode.outcome.get("detail", {})
            lines += [f"{agent} left: {details.get(agent, why)}" for agent, why in episode.outcome["out"].items()]
        for agent, role in episode.roles.items():
            who = "you" if agent == self.agent else self._label(agent)
            name = agent if agent == role else f"{agent} ({role})"
            lines.append(f"  {name}, {who}: {episode.rewards.get(agent, 0.0):g}")
        moves = [f"{turn.agent} {turn.reply.strip()}" for turn in episode.turns if turn.valid]
        if moves:
            lines.append(f"moves: {', '.join(moves)}")
        return printable("\n".join(lines))

    def _label(self, agent: AgentID) -> str:
        policies = [turn.policy for turn in self.episode.turns if turn.agent == agent and turn.policy is not None]
        return self.episode.opponents.get(agent) or (policies[0] if policies else "trained")


def play_run(
    run: str | Path,
    agent: AgentID | None,
    *,
    show: Callable[[str], None],
    read: Callable[[], str],
    against: str = SELF,
    seed: int | None = None,
    runs_dir: str | Path = "runs",
) -> Played:
    """A human plays one agent of a saved run; everybody else is played by the run itself, or by an opponent.

    The game is written to `play/*.jsonl` in the run's folder, also when the human leaves in the middle.

    Args:
        run: RUN or RUN@VERSION, as for `evaluate_run`.
        agent: whom the human plays, by name or by a role that only one agent has.
        show: puts a text before the human.
        read: the human's next line; raises `opentinker.human.Left` where there is none.
        against: who sits in the other seats; `self`: the run's own agents.
        seed: of the world and of every draw; None: another one each time.
        runs_dir: where runs named by a bare name live.

    Raises:
        UnknownId: no such run, agent or opponent.
        ConfigError: no agent was named, or an opponent that cannot play this game.
        CheckpointError: a checkpoint that cannot be used.
        RolloutFailed: the game broke; it was written down.
    """
    ref = parse_run_ref(str(run), runs_dir)
    config = read_config(ref.path)
    seed = secrets.randbelow(2**31) if seed is None else seed
    # people take their time
    patient = config.coordinator.model_copy(update={"turn_timeout": None, "episode_timeout": None})
    own = {"seed": seed, "coordinator": patient, "runs_dir": str(ref.path.parent)}
    config = config.model_copy(update=own)
    refuse_early(ref, config, [against])
    return run_async(lambda: _play(ref, config, agent, against, show, read))  # type: ignore[no-any-return]


async def _play(
    ref: RunRef,
    config: RunConfig,
    named: AgentID | None,
    against: str,
    show: Callable[[str], None],
    read: Callable[[], str],
) -> Played:
    saved = await asyncio.to_thread(open_run, ref, config)
    rollout = Rollout(config, saved.host)
    try:
        env, seats = await rollout.check()
        agent = _agent(named, seats.values())
        opponent = Opponents(config, saved.cast, seats, saved.host.sampler).make(against)
        if opponent.seat is not None and len(seats) == 1:
            raise ConfigError(f"{agent!r} plays alone in {config.env.id!r}, so {against!r} has no seat; leave --against out")
        if opponent.player is not None:
            for other in seats:
                if other != agent:
                    saved.cast.check_action(other, env, opponent.player)
        chairs = _Chairs(saved.cast, saved.host.tokenizer, opponent, agent, show, read)
        show(_welcome(saved.cast, agent, list(seats), against, config.seed))
        groups = await rollout.collect(0, purpose="play", groups=1, group_size=1, seats=chairs.seat, refuse=False)
    finally:
        await rollout.close()
        saved.host.close()
    episode = groups[0].episodes[0]
    text = json.dumps(episode_to_json(episode), allow_nan=False) + "\n"
    file = write_stamped(ref.path / "play", agent.replace("/", "_"), {".jsonl": text})
    if episode.status is EpisodeStatus.FAILED:
        raise RolloutFailed(f"the game failed: {brief(episode.error)}; its transcript is {file}", [episode])
    return Played(episode, file, agent, config.seed)


def _agent(named: str | None, seats: Iterable[Seat]) -> AgentID:
    """Whom the human plays."""
    roles = {seat.agent: seat.role for seat in seats}
    listed = ", ".join(agent if agent == role else f"{agent} ({role})" for agent, role in roles.items())
    if named is None:
        raise ConfigError(f"say whom you play: --as AGENT; the agents are {listed}")
    if named in roles:
        return named
    holders = [agent for agent, role in roles.items() if role == named]
    if len(holders) != 1:
        raise UnknownId("agent", named, roles, f"the agents are {listed}")
    return holders[0]


def _welcome(cast: Cast, agent: AgentID, agents: list[AgentID], against: str, seed: int) -> str:
    others = [other for other in agents if other != agent]
    who = "trained" if against == SELF else against
    lines = [
        f"You play {agent}" + (f" against {', '.join(others)} ({who})" if others else "") + f"; seed {seed}. :help helps."
    ]
    system = cast.seat_config(agent).system
    return printable("\n".join([*lines, *([system] if system else [])]))


class _Chairs:
    """Seats everybody, and knows what each has seen."""

    def __init__(
        self,
        cast: Cast,
        tokenizer: Callable[[str], Any],
        opponent: Opponent,
        human: AgentID,
        show: Callable[[str], None],
        read: Callable[[], str],
    ) -> None:
        self._own = cast.seat
        self._others = opponent.seat or cast.seat
        self._role = cast.seat_config(human).role
        self._tokenizer, self._human, self._show, self._read = tokenizer, human, show, read
        self._watched: dict[AgentID, WatchedSeat] = {}

    def seat(self, agent: AgentID, seed_key: tuple[Key, ...], place: tuple[int, int]) -> Seat:
        """A seat whose prompts are kept."""
        inner: Seat
        if agent == self._human:
            inner = HumanSeat(agent, show=self._show, read=self._read, seen=self.seen, role=self._role)
        else:
            inner = self._others(agent, seed_key, place)
        decode = None if inner.policy is None else self._decoder(inner)
        self._watched[agent] = WatchedSeat(inner, decode)
        return self._watched[agent]

    def seen(self, agent: AgentID | None) -> str:
        """What one agent or all have seen so far."""
        if agent is not None and agent not in self._watched:
            return printable(f"nobody is called {excerpt(agent)!r}; the agents are {', '.join(self._watched)}")
        chosen = self._watched if agent is None else {agent: self._watched[agent]}
        parts = []
        for name, seat in chosen.items():
            texts = seat.seen or ["nothing yet"]
            parts += [
                f"=== {name} ({seat.label}) {number} of {len(texts)} ===\n{text}" for number, text in enumerate(texts, 1)
            ]
        return printable("\n".join(parts))

    def _decoder(self, seat: Seat) -> Callable[[tuple[int, ...]], str]:
        # the label is of the form NAME@VERSION, and the name is the one that the host serves
        tokenizer = self._tokenizer(seat.label.rpartition("@")[0])
        return lambda ids: str(tokenizer.decode(list(ids)))
