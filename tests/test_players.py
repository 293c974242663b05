from collections import Counter

import pytest
from gymnasium.spaces import Discrete

from opentinker.envs.codec import TextCodec
from opentinker.errors import ConfigError, InvalidAction, UnknownId
from opentinker.players import Situation, make_player, player_label, random_legal

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
    assert make_player("random_legal") is random_legal
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
