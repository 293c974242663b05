import pytest

from opentinker.errors import ConfigError, UnknownId
from opentinker.testing import play_game
from opentinker.types import EpisodeStatus


def test_everybody_answers_by_one_function():
    episode = play_game("bandit", "solo", lambda observation, space, mask: "b", means=[0.0, 1.0])
    assert (episode.status, dict(episode.rewards)) == (EpisodeStatus.TERMINATED, {"agent": 1.0})
    assert [turn.reply for turn in episode.turns] == ["b"]


def test_each_agent_answers_by_its_own_function():
    answers = {"player_0": lambda *asked: "b", "player_1": lambda *asked: "p"}
    episode = play_game("kuhn_poker", "turns", answers, seed=3)
    assert [(turn.agent, turn.reply) for turn in episode.turns] == [("player_0", "b"), ("player_1", "p")]
    assert dict(episode.rewards) == {"player_0": 1.0, "player_1": -1.0}  # who folds loses the ante


def test_the_seed_is_the_environments():
    cards = {play_game("kuhn_poker", "turns", lambda *asked: "p", seed=seed).turns[0].observation for seed in range(12)}
    assert len(cards) == 3


def test_what_cannot_be_played_is_said():
    with pytest.raises(UnknownId, match="did you mean 'bandit'"):
        play_game("bandid", "solo", lambda *asked: "a")
    with pytest.raises(ConfigError, match="use coordinator 'turns'"):
        play_game("kuhn_poker", "solo", lambda *asked: "bet")
    with pytest.raises(ConfigError, match=r"agent 'player_1' has no function: `answer` has \['player_0'\]"):
        play_game("kuhn_poker", "turns", {"player_0": lambda *asked: "p"})
