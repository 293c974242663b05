import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest
from gymnasium.spaces import Discrete

from opentinker.cast import Cast
from opentinker.config import load_config
from opentinker.coordinators import Table
from opentinker.envs.codec import TextCodec
from opentinker.errors import ConfigError, InvalidAction, UnknownId
from opentinker.players import Situation, check_player, make_player, player_label, random_legal
from opentinker.seats import ScriptedSeat

SPACE = TextCodec(Discrete(1), Discrete(3), action_names=("left", "stay", "right"))


def situation(seed=0, mask=None):
    return Situation("player_0", "player_0", "where?", SPACE, mask, seed)


def first_legal(seen):
    return seen.space.legal(seen.mask)[0]


def test_random_legal_draws_evenly_among_the_legal():
    drawn = Counter(random_legal(situation(seed, [1, 0, 1])) for seed in range(400))
    assert set(drawn) == {0, 2}
    assert 150 < drawn[0] < 250
    assert [random_legal(situation(5)) for _ in range(3)] == [random_legal(situation(5))] * 3


def test_always_plays_what_the_environment_reads():
    player = make_player("always:right")
    assert player(situation()) == 2
    with pytest.raises(InvalidAction, match="not legal now"):
        player(situation(mask=[1, 1, 0]))


def test_players_are_found_by_id_and_by_path():
    assert make_player("random_legal") is make_player("random") is random_legal
    assert make_player("opentinker.players:random_legal") is random_legal


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("random_lega", UnknownId, "did you mean 'random_legal'"),
        ("always:", ConfigError, "names no action"),
        ("no.such.module:player", ConfigError, "cannot import"),
        ("opentinker.players:PLAYERS", ConfigError, "must be a function of a Situation"),
    ],
)
def test_players_that_are_none_are_refused(text, error, message):
    with pytest.raises(error, match=message):
        make_player(text)


def test_labels_tell_who_plays():
    assert player_label(random_legal) == "random_legal"
    assert player_label(make_player("always:left")) == "always:left"
    assert player_label(first_legal) == "first_legal"


def test_a_player_that_knows_other_games_only_is_refused_with_what_it_plays():
    check_player(make_player("minimax"), "kuhn_poker")
    check_player(first_legal, "bandit")
    with pytest.raises(
        ConfigError, match="'minimax' cannot play 'bandit'; it plays kuhn_poker, .*'random' plays everything"
    ):
        check_player(make_player("minimax"), "bandit")
    config = {"env": {"id": "bandit"}, "coordinator": {"id": "solo"}, "agents": {"agent": {"player": "minimax"}}}
    with pytest.raises(ConfigError, match="cannot play 'bandit'"):
        Cast(load_config(config), None)


class Recording:
    """Takes the first action and keeps what it saw."""

    def __init__(self):
        self.situations = []

    def __call__(self, seen):
        self.situations.append(seen)
        return seen.space.legal(seen.mask)[0]


def test_a_player_sees_the_raw_observation_whatever_the_words():
    world, player = {"observation": [1, 2], "action_mask": [0, 1, 1]}, Recording()
    space = TextCodec(None, Discrete(3), render=lambda seen: "words only")
    env = SimpleNamespace(id="some/env", calls=0, codec=lambda agent: space)
    table = Table(env, lambda agent: ScriptedSeat(agent, player, env="some/env"), episode_id="0", seed=0)
    assert asyncio.run(table.ask("agent", world)) == 1
    (seen,) = player.situations
    assert seen.world is world and seen.env == "some/env" and seen.observation == "words only"
