"""Matches: a policy under test in each of its seats in turn, an opponent in all others, on seeds nobody trains on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opentinker.cast import Cast
from opentinker.config import RolloutConfig
from opentinker.envs import EnvHandle
from opentinker.errors import ConfigError
from opentinker.league.tally import Rate, Tally, among_themselves, data, share_reward, tally, wilson
from opentinker.players import ScriptedPlayer, check_player, player_label
from opentinker.rollout import Rollout, SeatMaker
from opentinker.seats import ScriptedSeat
from opentinker.seeding import Key
from opentinker.types import AgentID, Episode, EpisodeStatus, OutReason, Seat

log = logging.getLogger(__name__)

TESTED = "tested"
"""Key of an episode's outcome: the agent whose seat was under test."""
LEAST, MOST = 16, 256
"""Games at once, where `rollout.concurrency` says nothing."""


@dataclass(frozen=True, slots=True)
class Opponent:
    """Who sits in all seats but the one under test."""

    label: str
    seat: SeatMaker | None
    """None: nobody else; the team under test plays among itself."""
    player: ScriptedPlayer | None = None
    """Who it is, where it is a script."""


@dataclass(frozen=True, slots=True)
class Match:
    """The games against one opponent."""

    opponent: str
    overall: Tally
    seats: dict[AgentID, Tally]
    """By the agent under test."""
    opponent_forfeits: Rate | None
    """Games that the opponent forfeited by a reply that was no legal action; None where there is no opponent."""
    episodes: tuple[Episode, ...]
    """All games, failed ones too; `outcome["tested"]` says whose seat was under test, where there is an opponent."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the games."""
        seats = {agent: own.to_json() for agent, own in self.seats.items()}
        forfeits = {} if self.opponent_forfeits is None else {"opponent_forfeits": data(self.opponent_forfeits)}
        return {"overall": self.overall.to_json(), "seats": seats, **forfeits}


def scripted(player: ScriptedPlayer, cast: Cast, label: str = "") -> Opponent:
    """A scripted player as an opponent, in the roles of the run under test.

    Raises:
        ConfigError: it cannot play this environment.
    """
    env = cast.config.env.id
    check_player(player, env)

    def seat(agent: AgentID, seed_key: tuple[Key, ...], place: tuple[int, int]) -> Seat:
        role = cast.seat_config(agent).role
        return ScriptedSeat(agent, player, role=role, seed_key=seed_key, place=place, env=env)

    return Opponent(label or player_label(player), seat, player)


def seats_under_test(cast: Cast, agents: Sequence[AgentID]) -> tuple[AgentID, ...]:
    """The seats under test: those whose policy trains, or, where none does, all that a policy has.

    Raises:
        ConfigError: no seat has a policy.
    """
    chosen = tuple(agent for agent in agents if cast.learns(agent))
    chosen = chosen or tuple(agent for agent in agents if cast.policy_of(agent) is not None)
    if not chosen:
        raise ConfigError(f"no policy to test: every seat of {', '.join(agents)} is played by a script")
    return chosen


def check_match(cast: Cast, agents: Sequence[AgentID], opponent: Opponent, env: EnvHandle | None = None) -> None:
    """Refuses a match that cannot be.

    Args:
        cast: the seats of the run under test.
        agents: the agents known before a game starts.
        opponent: who sits in the other seats.
        env: one of the environments; None: what the opponent can do is not looked at.

    Raises:
        ConfigError: no seat to test, a single agent and somebody to play against, or an opponent that never has a legal
            action.
    """
    tested = seats_under_test(cast, agents)
    if opponent.seat is not None and len(agents) == 1:
        raise ConfigError(
            f"{cast.config.env.id!r} is played by one agent, so nobody plays against {opponent.label!r}; "
            "leave the opponent out to measure returns on held-out seeds ('self' in evaluate.opponents)"
        )
    if opponent.player is not None and env is not None:
        for agent in agents:
            if tested != (agent,):
                cast.check_action(agent, env, opponent.player)


async def play_match(rollout: Rollout, cast: Cast, opponent: Opponent, agents: Sequence[AgentID], *, games: int) -> Match:
    """Plays `games` games for every seat under test.

    Game i has the same environment seed and the same table generator for every seat and every opponent; these seeds come
    from a range that training never draws from. In a configuration of several policies each sits in its own agent's seat.

    Args:
        rollout: the environments, the coordinator and the run's seed; nothing it does in training changes.
        cast: the seats of the run under test.
        opponent: who sits in the other seats.
        agents: the agents known before a game starts.
        games: for each seat.

    Raises:
        ConfigError: as `check_match`.
    """
    check_match(cast, agents, opponent)
    tested = seats_under_test(cast, agents)
    others = opponent.seat

    def seat(agent: AgentID, seed_key: tuple[Key, ...], place: tuple[int, int]) -> Seat:
        own = others is None or agent == tested[place[1]]
        make = cast.seat if own else others
        assert make is not None
        return make(agent, seed_key, place)

    members = 1 if others is None else len(tested)
    groups = await rollout.collect(
        0,
        purpose="eval",
        groups=games,
        group_size=members,
        seats=seat,
        refuse=False,
        concurrency=_concurrency(rollout.config.rollout),
    )
    episodes = [
        _marked(episode, opponent, None if others is None else tested[episode.member])
        for group in groups
        for episode in group.episodes
    ]
    played = {
        agent: [(agent, episode) for episode in episodes if others is None or tested[episode.member] == agent]
        for agent in tested
    }
    contest = len(agents) > 1 and not share_reward(episodes)
    overall = tally([game for own in played.values() for game in own], contest=contest)
    if others is None and len(tested) > 1:
        overall = among_themselves(overall, tested, episodes)
    seats = {agent: tally(own, contest=contest) for agent, own in played.items()}
    forfeits = None if others is None else _forfeits(opponent.label, episodes)
    return Match(opponent.label, overall, seats, forfeits, tuple(episodes))


def _forfeits(label: str, episodes: Sequence[Episode]) -> Rate:
    """How often others than who is under test forfeited; a warning where they did so in most games."""
    sound = [episode for episode in episodes if episode.status is not EpisodeStatus.FAILED]
    left = [one.outcome.get("out", {}) for one in sound]
    count = sum(
        any(why == OutReason.FORFEIT and agent != one.outcome[TESTED] for agent, why in out.items())
        for one, out in zip(sound, left, strict=True)
    )
    if 2 * count > len(sound):
        log.warning(
            "opponent %r forfeited %d of %d games by replies that were no legal action: its results say little",
            label,
            count,
            len(sound),
        )
    return wilson(count, len(sound))


def _concurrency(settings: RolloutConfig) -> int:
    """As many games at once as a step of training has, within bounds."""
    return settings.concurrency or min(max(settings.groups * settings.group_size, LEAST), MOST)


def _marked(episode: Episode, opponent: Opponent, tested: AgentID | None) -> Episode:
    """With an id that no game against another opponent has, and whose seat was under test."""
    outcome = dict(episode.outcome) if tested is None else {**episode.outcome, TESTED: tested}
    return replace(episode, id=f"{opponent.label}/{episode.id}", outcome=outcome)
