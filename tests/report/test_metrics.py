import math
from dataclasses import replace

import pytest

from opentinker.report.metrics import figure_name, rollout_figures
from opentinker.types import Completion, Episode, EpisodeStatus, FinishReason, Group, Turn


def completion(*logprobs, finish=FinishReason.EOS):
    return Completion(tuple(range(len(logprobs))), logprobs, "", finish, "learner", 1)


def turn(agent, index=0, attempt=0, *, valid=True, penalty=0.0, policy="learner", drawn=None):
    return Turn(
        agent=agent,
        role="",
        policy=policy,
        version=1,
        index=index,
        attempt=attempt,
        phase="",
        prompt_ids=(1,),
        completion=drawn,
        observation="",
        action=None,
        valid=valid,
        n_legal=2,
        trainable=True,
        reward=99.0,  # the episode's rewards count, not these
        penalty=penalty,
    )


def episode(rewards, *turns, roles=None, status=EpisodeStatus.TERMINATED, **outcome):
    return Episode(
        id="",
        env="e",
        seed=0,
        group=0,
        member=0,
        roles=roles or {agent: agent for agent in ("a", "b")},
        opponents={},
        turns=turns,
        messages=(),
        final_prompts={},
        rewards=rewards,
        status=status,
        outcome=outcome,
    )


# Game 1: a says something invalid, is asked again, plays; b plays; a plays again and wins 2. b's second reply is cut.
# Game 2: seats changed roles: agent b has role x. It wins 1; the game was cut short.
GAME_1 = episode(
    {"a": 2.0, "b": -2.0},
    turn("a", 0, 0, valid=False, penalty=-0.5, drawn=completion(-1.0, -2.0)),
    turn("a", 0, 1, drawn=completion(-3.0)),
    turn("b", 0, 0, policy="other", drawn=completion(-0.5, -0.5, finish=FinishReason.LENGTH)),
    turn("a", 1, 0, drawn=completion()),
    roles={"a": "x", "b": "y"},
)
GAME_2 = episode(
    {"a": -1.0, "b": 1.0},
    turn("b", 0, 0, policy=None),
    turn("a", 0, 0, policy="other", drawn=completion(-2.0)),
    roles={"a": "y", "b": "x"},
    status=EpisodeStatus.TRUNCATED,
    forfeit="a",
)


def test_figures_of_two_small_games_by_hand():
    assert rollout_figures([Group("t", (GAME_1,)), Group("t", (GAME_2,))]) == pytest.approx(
        {
            "rollout/all/episodes": 2,
            "rollout/all/failed": 0,
            "rollout/all/truncated": 1,
            "rollout/all/forfeited": 1,
            "rollout/all/turns_mean": (4 + 2) / 2,
            "rollout/all/tokens": 2 + 1 + 2 + 0 + 1,
            "rollout/x/return_mean": (2 + 1) / 2,
            "rollout/x/turns_mean": (2 + 1) / 2,  # decisions, not attempts
            "rollout/x/invalid_rate": 1 / 4,  # of the replies
            "rollout/x/penalty_mean": -0.5 / 2,
            "rollout/x/win_rate": 1.0,
            "rollout/x/draw_rate": 0.0,
            "rollout/x/loss_rate": 0.0,
            "rollout/y/return_mean": (-2 - 1) / 2,
            "rollout/y/turns_mean": 1.0,
            "rollout/y/invalid_rate": 0.0,
            "rollout/y/penalty_mean": 0.0,
            "rollout/y/win_rate": 0.0,
            "rollout/y/draw_rate": 0.0,
            "rollout/y/loss_rate": 1.0,
            "rollout/learner/entropy": (1 + 2 + 3) / 3,
            "rollout/learner/reply_tokens_mean": (2 + 1 + 0) / 3,
            "rollout/learner/length_rate": 0.0,
            "rollout/other/entropy": (0.5 + 0.5 + 2) / 3,
            "rollout/other/reply_tokens_mean": (2 + 1) / 2,
            "rollout/other/length_rate": 1 / 2,
        }
    )


def test_no_episodes_give_noughts_and_no_roles():
    nothing = {
        "rollout/all/episodes": 0,
        "rollout/all/failed": 0,
        "rollout/all/truncated": 0,
        "rollout/all/forfeited": 0,
        "rollout/all/turns_mean": 0.0,
        "rollout/all/tokens": 0,
    }
    assert rollout_figures([]) == rollout_figures([Group("t", ())]) == nothing
    failed = replace(GAME_1, status=EpisodeStatus.FAILED, error="Traceback")
    assert rollout_figures([Group("t", (failed, failed))]) == {**nothing, "rollout/all/episodes": 2, "rollout/all/failed": 2}


def test_failed_episodes_count_nowhere_else():
    failed = replace(GAME_2, status=EpisodeStatus.FAILED)
    alone, beside = rollout_figures([Group("t", (GAME_1,))]), rollout_figures([Group("t", (GAME_1, failed))])
    assert beside == {**alone, "rollout/all/episodes": 2, "rollout/all/failed": 1}


@pytest.mark.parametrize(
    ("rewards", "wins", "draws", "losses"),
    [
        ({"a": 1.0, "b": -1.0}, {"a": 1, "b": 0}, 0, {"a": 0, "b": 1}),
        ({"a": 0.5, "b": 0.5}, {"a": 0, "b": 0}, 1, {"a": 0, "b": 0}),
        ({"a": 1.0}, {"a": 1, "b": 0}, 0, {"a": 0, "b": 1}),  # b was never rewarded: its return is 0
        ({}, {"a": 0, "b": 0}, 1, {"a": 0, "b": 0}),
    ],
)
def test_who_won_by_hand(rewards, wins, draws, losses):
    figures = rollout_figures([Group("t", (episode(rewards),))])
    for role in "ab":
        assert figures[f"rollout/{role}/win_rate"] == wins[role]
        assert figures[f"rollout/{role}/draw_rate"] == draws
        assert figures[f"rollout/{role}/loss_rate"] == losses[role]


def test_with_three_players_the_mean_of_the_others_decides():
    game = episode({"a": 1.0, "b": 2.0, "c": 0.0}, roles={"a": "a", "b": "b", "c": "c"})
    figures = rollout_figures([Group("t", (game,))])
    won = [figures[f"rollout/{role}/{figure}_rate"] for role, figure in (("a", "draw"), ("b", "win"), ("c", "loss"))]
    assert won == [1, 1, 1]


def test_a_lone_player_neither_wins_nor_loses():
    figures = rollout_figures([Group("t", (episode({"a": 1.0}, turn("a"), roles={"a": "a"}),))])
    assert figures["rollout/a/return_mean"] == 1.0
    assert not [key for key in figures if key.endswith(("win_rate", "draw_rate", "loss_rate"))]


def test_two_seats_of_one_role_share_its_figures():
    figures = rollout_figures([Group("t", (episode({"a": 1.0, "b": -1.0}, roles={"a": "r", "b": "r"}),))])
    assert (figures["rollout/r/return_mean"], figures["rollout/r/win_rate"], figures["rollout/r/loss_rate"]) == (
        0.0,
        0.5,
        0.5,
    )


def test_only_empty_replies_have_no_entropy_and_no_negative_nought():
    figures = rollout_figures([Group("t", (episode({"a": 0.0}, turn("a", drawn=completion())),))])
    assert math.copysign(1, figures["rollout/learner/entropy"]) == 1
    assert figures["rollout/learner/entropy"] == 0.0


def test_a_reward_that_is_not_finite_shows():
    figures = rollout_figures([Group("t", (episode({"a": math.nan, "b": 1.0}), GAME_1))])
    assert math.isnan(figures["rollout/a/return_mean"])


def test_agents_whose_names_are_no_part_of_a_key_have_figures_of_their_own():
    """Environments may name their agents only while a game runs; `all` stands for the step, and "/" parts a key."""
    names = ["all", "team/1", "team%2F1", "%all", "", "%", "ann"]
    played = episode(dict.fromkeys(names, 1.0), roles={name: name for name in names})
    figures = rollout_figures([Group("g", (played,))])
    assert {key for key in figures if key.endswith("/return_mean")} == {
        "rollout/%all/return_mean",
        "rollout/team%2F1/return_mean",
        "rollout/team%252F1/return_mean",
        "rollout/%25all/return_mean",
        "rollout/%/return_mean",
        "rollout/%25/return_mean",
        "rollout/ann/return_mean",
    }
    assert all(len(key.split("/")) == 3 for key in figures)
    assert figures["rollout/all/episodes"] == 1 and "rollout/all/return_mean" not in figures


def test_usual_names_are_their_own():
    assert [figure_name(name) for name in ("player_0", "worker-3", "Ann Bee", "\u00e4")] == [
        "player_0",
        "worker-3",
        "Ann Bee",
        "\u00e4",
    ]
