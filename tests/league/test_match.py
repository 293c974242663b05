"""Matches on real environments and coordinators; replies are scripted, so that every result is known."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from opentinker.cast import Cast
from opentinker.config import load_config
from opentinker.envs.text import TextParallelEnv, TextSpace
from opentinker.errors import ConfigError, InvalidAction
from opentinker.league.match import Match, Opponent, check_match, play_match, scripted, seats_under_test
from opentinker.league.tally import wilson
from opentinker.players import make_player
from opentinker.rollout import HELD_OUT, Rollout
from opentinker.sampling.tiny import build_tiny
from opentinker.testing import ScriptedSampler
from opentinker.types import EpisodeStatus

SEAT = {"policy": "learner", "memory": "last", "on_invalid": {"forfeit": -2}}
KUHN = {
    "seed": 5,
    "env": {"id": "kuhn_poker"},
    "coordinator": {"id": "turns"},
    "agents": {"*": SEAT},
    "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 8}}},
}
_, WORDS = build_tiny(0)


class Host:
    """Answers with a text, or with what a function makes of a request."""

    def __init__(self, reply) -> None:
        answer = reply if callable(reply) else lambda request: reply
        self.sampler = ScriptedSampler(answer, tokenizer=WORDS)

    def tokenizer(self, policy):
        return WORDS

    def max_context(self, policy):
        return None


def run(config: dict[str, Any], reply, opponent: str | None, games: int = 6, **changes) -> tuple[Match, Rollout]:
    settings = load_config({**config, **changes})

    async def main() -> tuple[Match, Rollout]:
        host = Host(reply)
        rollout = Rollout(settings, host)
        try:
            env, seats = await rollout.check()
            cast = rollout.cast
            other = Opponent("self", None) if opponent is None else scripted(make_player(opponent), cast)
            check_match(cast, list(seats), other, env)
            return await play_match(rollout, cast, other, list(seats), games=games), rollout
        finally:
            await rollout.close()

    return asyncio.run(main())


def test_each_seat_is_tested_in_turn_on_the_same_worlds_for_every_seat_and_opponent():
    match, _ = run(KUHN, "b", "always:p")
    assert [episode.outcome["tested"] for episode in match.episodes] == ["player_0", "player_1"] * 6
    assert match.episodes[3].id == "always:p/000000/0001/01"
    for episode in match.episodes:
        tested = episode.outcome["tested"]
        (other,) = episode.opponents
        assert other != tested and episode.opponents[other] == "always:p"
        assert {turn.policy for turn in episode.turns if turn.agent == tested} <= {"learner"}
    seeds = [episode.seed for episode in match.episodes]
    assert seeds[::2] == seeds[1::2] and len(set(seeds)) == 6
    again, _ = run(KUHN, "p", "random")
    assert [episode.seed for episode in again.episodes] == seeds
    # who always bets wins the ante of who always folds, unless the folder passed first: then a bet wins it, too
    assert match.overall.win.count == match.overall.games == 12 and match.overall.mean_return.mean == 1
    assert {agent: own.win.count for agent, own in match.seats.items()} == {"player_0": 6, "player_1": 6}
    assert match.overall.mean_return.low == match.overall.mean_return.high == 1
    assert match.to_json()["seats"]["player_1"]["games"] == 6


def test_evaluations_worlds_are_none_that_a_run_trains_or_warms_up_on():
    async def seeds(purpose: str, steps: int) -> set[int]:
        rollout = Rollout(load_config(KUHN), Host("b"))
        try:
            found = [await rollout.collect(step, purpose=purpose, groups=40, group_size=1) for step in range(steps)]
        finally:
            await rollout.close()
        return {group.episodes[0].seed for groups in found for group in groups}

    held_out = asyncio.run(seeds("eval", 3))
    assert len(held_out) == 120 and all(HELD_OUT <= seed < 2 * HELD_OUT for seed in held_out)
    for purpose in ("train", "warm"):
        assert all(0 <= seed < HELD_OUT for seed in asyncio.run(seeds(purpose, 3)))


def test_a_reply_that_is_no_action_forfeits_and_counts_as_a_loss():
    match, _ = run(KUHN, "nonsense", "always:p")
    assert match.overall.loss.count == 12 and match.overall.invalid_rate == 1
    # the environment has paid nothing: only the losses tell
    assert match.overall.mean_return.mean == 0


def lost_for_words(situation):
    """Player 0 has no legal action to give; player 1 passes."""
    if situation.agent == "player_0":
        raise InvalidAction("well", "no word of the game")
    return "p"


def test_an_opponent_that_leaves_has_lost_and_how_often_it_left_is_told(caplog):
    match, _ = run(KUHN, "b", f"{__name__}:lost_for_words")
    assert match.overall.win.count == 12 and match.overall.invalid_rate == 0
    # it left as player_0, in half of all games
    assert (match.opponent_forfeits.count, match.opponent_forfeits.rate) == (6, 0.5)
    assert match.to_json()["opponent_forfeits"]["rate"] == 0.5 and not caplog.messages
    tested_second = {**KUHN, "agents": {"player_0": {"player": "random"}, "player_1": SEAT}}
    match, _ = run(tested_second, "b", f"{__name__}:lost_for_words")
    assert match.opponent_forfeits.count == 6
    assert "'lost_for_words' forfeited 6 of 6 games by replies that were no legal action" in caplog.text
    assert run(KUHN, "nonsense", "always:p")[0].opponent_forfeits.count == 0  # forfeits of who is under test


def test_an_action_that_the_game_does_not_have_is_refused_before_any_game():
    with pytest.raises(ConfigError, match="'always:zz' can never act as 'player_0': .*legal: p, b"):
        run(KUHN, "b", "always:zz")
    with pytest.raises(ConfigError, match="'always:zz' can never act as 'player_1'"):
        run({**KUHN, "agents": {"player_0": SEAT, "player_1": {"player": "always:zz"}}}, "b", "random")
    # legal at times only: that is for the game to say
    config = {**KUHN, "env": {"id": "pettingzoo/classic/tictactoe"}, "agents": {"*": {**SEAT, "on_invalid": "fallback"}}}
    assert run(config, "0", "always:4", games=1)[0].overall.games == 2
    with pytest.raises(ConfigError, match="'always:9' can never act as 'player_1'"):
        run(config, "0", "always:9", games=1)


def test_several_policies_sit_in_their_own_agents_seats():
    config = {
        **KUHN,
        "agents": {"player_0": {**SEAT, "policy": "first"}, "player_1": {**SEAT, "policy": "second", "role": "caller"}},
        "policies": {name: {"model": "tiny", "sampling": {"max_tokens": 8}} for name in ("first", "second")},
    }
    match, _ = run(config, lambda request: "b" if request.ref.name == "first" else "p", "random", games=8)
    for episode in match.episodes:
        policies = {turn.agent: turn.policy for turn in episode.turns if turn.policy}
        assert set(policies.items()) <= {("player_0", "first"), ("player_1", "second")}
        assert episode.roles == {"player_0": "player_0", "player_1": "caller"}  # of the seat, whoever sits there
    assert {turn.reply for episode in match.episodes for turn in episode.turns if turn.policy == "second"} <= {"p"}


def test_only_seats_that_learn_are_tested():
    config = {**KUHN, "agents": {"player_0": SEAT, "player_1": {"player": "random"}}}
    match, _ = run(config, "b", "always:p", games=3)
    assert list(match.seats) == ["player_0"] and match.overall.games == 3
    averaged = {**KUHN, "agents": {"player_0": SEAT, "player_1": {**SEAT, "policy": "learner@ema"}}, "train": {"ema": 0.5}}
    assert seats_under_test(Cast(load_config(averaged), Host("b")), ["player_0", "player_1"]) == ("player_0",)
    frozen = {**KUHN, "policies": {"learner": {"model": "tiny", "trainable": False}}}
    assert seats_under_test(Cast(load_config(frozen), Host("b")), ["player_0", "player_1"]) == ("player_0", "player_1")
    scripts = {**KUHN, "agents": {"*": {"player": "random"}}, "policies": {}}
    with pytest.raises(ConfigError, match="no policy to test: every seat of player_0, player_1 is played by a script"):
        seats_under_test(Cast(load_config(scripts), Host("b")), ["player_0", "player_1"])


def test_a_match_among_ones_own_gives_every_seat_its_figures():
    match, _ = run(KUHN, "b", None)
    assert len(match.episodes) == 6 and all(not episode.opponents for episode in match.episodes)
    first, second = match.seats["player_0"].mean_return.mean, match.seats["player_1"].mean_return.mean
    assert first == -second and {abs(value) for episode in match.episodes for value in episode.rewards.values()} == {2}
    assert match.opponent_forfeits is None and "opponent_forfeits" not in match.to_json()


def test_a_match_among_ones_own_counts_every_game_once_over_all_seats():
    match, _ = run(KUHN, "b", None)
    assert [own.games for own in match.seats.values()] == [6, 6]
    assert sum(own.win.count for own in match.seats.values()) == 6
    overall = match.overall
    assert (overall.games, overall.failed, overall.win, overall.loss) == (6, 0, None, None)
    assert (overall.draw.count, overall.draw) == (0, wilson(0, 6)) and overall.mean_return.mean == 0
    shared = {**KUHN, "env": {"id": "matrix_game"}, "coordinator": {"id": "simultaneous"}}
    assert run(shared, "rock", None)[0].overall.draw == wilson(6, 6)
    alone = {**KUHN, "agents": {"player_0": SEAT, "player_1": {"player": "random"}}}
    match, _ = run(alone, "b", None)  # one seat under test: its figures are the overall ones
    assert match.overall == match.seats["player_0"] and match.overall.win is not None


def test_moves_at_once():
    config = {**KUHN, "env": {"id": "matrix_game"}, "coordinator": {"id": "simultaneous"}}
    match, _ = run(config, "rock", "always:scissors")
    assert match.overall.win.count == match.overall.games == 12
    match, _ = run(config, "rock", "always:rock")
    assert match.overall.draw.count == 12


def test_one_agent_alone_is_measured_on_held_out_seeds_and_meets_nobody():
    config = {
        **KUHN,
        "env": {"id": "bandit", "kwargs": {"means": [0.0, 1.0]}},
        "coordinator": {"id": "solo"},
        "agents": {"agent": SEAT},
    }
    match, _ = run(config, "b", None, games=5)
    assert match.overall.success.count == match.overall.games == 5 and match.overall.win is None
    assert all(episode.seed >= HELD_OUT for episode in match.episodes)
    with pytest.raises(ConfigError, match="played by one agent, so nobody plays against 'random_legal'"):
        run(config, "b", "random")


def test_three_players():
    """Each shoots the next: with two players that wait, whoever shoots has the most."""
    config = {**KUHN, "env": {"id": "opentinker.testing:OffTurnDeathEnv", "kwargs": {"players": 3, "rounds": 1}}}
    match, _ = run(config, "shoot", "always:wait", games=2)
    assert [episode.outcome["tested"] for episode in match.episodes] == ["player_0", "player_1", "player_2"] * 2
    assert match.overall.win.count == match.overall.games == 6
    assert all(len(episode.opponents) == 2 for episode in match.episodes)
    match, _ = run(config, "wait", "always:wait", games=2)
    assert match.overall.draw.count == 6
    match, _ = run(config, "wait", "always:shoot", games=2)
    assert match.overall.loss.count > 0 and match.overall.win.count == 0


class Together(TextParallelEnv):
    """Three agents share one reward: how many said `up`, once."""

    metadata: ClassVar[dict[str, Any]] = {"name": "together_v0"}

    def __init__(self) -> None:
        self.possible_agents = ["ann", "bob", "cyd"]
        self.observation_spaces = {agent: TextSpace(8) for agent in self.possible_agents}
        self.action_spaces = {agent: TextSpace(choices=("up", "down")) for agent in self.possible_agents}

    def reset(self, seed=None, options=None):
        self.begin(seed)
        return dict.fromkeys(self.agents, "up/down?"), {agent: {} for agent in self.agents}

    def step(self, actions):
        agents, self.agents = self.agents, []
        reward = float(sum(action == "up" for action in actions.values()))
        return (
            dict.fromkeys(agents, ""),
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, True),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )


def test_a_shared_reward_has_returns_and_no_winners(monkeypatch):
    monkeypatch.setitem(sys.modules, "match_worlds", SimpleNamespace(Together=Together))
    config = {**KUHN, "env": {"id": "match_worlds:Together"}, "coordinator": {"id": "simultaneous"}}
    match, _ = run(config, "up", "random", games=6)
    assert match.overall.games == 18 and match.overall.win is None and match.overall.mean_return.mean > 1


def test_failed_games_are_counted_apart_and_end_nothing():
    config = {
        **KUHN,
        "env": {"id": "opentinker.testing:RaisingEnv", "kwargs": {"at": 1}},
        "coordinator": {"id": "solo"},
        "agents": {"agent": SEAT},
    }
    match, _ = run(config, "go", None, games=3)
    assert (match.overall.games, match.overall.failed) == (0, 3)
    assert all(episode.status is EpisodeStatus.FAILED for episode in match.episodes)


def test_a_player_of_other_games_is_refused():
    config = {**KUHN, "env": {"id": "matrix_game"}, "coordinator": {"id": "simultaneous"}}
    with pytest.raises(ConfigError, match="'minimax' cannot play 'matrix_game'"):
        run(config, "rock", "minimax")
