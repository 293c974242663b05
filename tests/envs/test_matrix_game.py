import numpy as np
import pytest

from opentinker.envs.games.matrix_game import MatrixGame
from opentinker.errors import ConfigError


@pytest.mark.filterwarnings("ignore:The old environment creation API")  # importing it imports a game in an old way
@pytest.mark.parametrize("rounds", [1, 3])
def test_passes_pettingzoo_s_parallel_api_test(rounds, capsys):
    from pettingzoo.test import parallel_api_test

    parallel_api_test(MatrixGame(rounds=rounds), num_cycles=100)
    assert "Passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("payoffs", "pair", "paid"),
    [
        ("rps", ("rock", "rock"), (0, 0)),
        ("rps", ("rock", "paper"), (-1, 1)),
        ("rps", ("rock", "scissors"), (1, -1)),
        ("rps", ("paper", "scissors"), (-1, 1)),
        ("rps", ("scissors", "paper"), (1, -1)),
        ("matching_pennies", ("heads", "heads"), (1, -1)),
        ("matching_pennies", ("tails", "heads"), (-1, 1)),
        ("prisoners_dilemma", ("cooperate", "cooperate"), (3, 3)),
        ("prisoners_dilemma", ("cooperate", "defect"), (0, 5)),
        ("prisoners_dilemma", ("defect", "defect"), (1, 1)),
        ([[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]], ("b", "c"), (11, 12)),
    ],
)
def test_pays_by_the_table(payoffs, pair, paid):
    env = MatrixGame(payoffs)
    env.reset(seed=1)
    _, rewards, terminations, truncations, infos = env.step({"player_0": pair[0], "player_1": pair[1]})
    assert rewards == {"player_0": paid[0], "player_1": paid[1]}
    assert set(terminations.values()) == {True} and set(truncations.values()) == {False}
    assert env.agents == [] and infos == {"player_0": {}, "player_1": {}}
    tree = env.tree()
    assert tree.returns(tree.next(tree.next(tree.root(), pair[0]), pair[1])) == rewards


def test_observations_ask_and_tell_the_rounds_that_are_over():
    env = MatrixGame("prisoners_dilemma", rounds=2)
    first, _ = env.reset()
    assert first == {"player_0": "cooperate/defect?", "player_1": "cooperate/defect?"}
    second, *_ = env.step({"player_0": "cooperate", "player_1": "defect"})
    assert second["player_0"] == "You-other: cooperate-defect. cooperate/defect?"
    assert second["player_1"] == "You-other: defect-cooperate. cooperate/defect?"
    last, _, terminations, _, _ = env.step({"player_0": "defect", "player_1": "defect"})
    assert last["player_1"] == "You-other: defect-cooperate, defect-defect." and terminations["player_0"]
    again, _ = env.reset()
    assert again == first and env.agents == ["player_0", "player_1"]


def test_the_table_can_be_shown():
    observations, _ = MatrixGame("prisoners_dilemma", show_payoffs=True).reset()
    expected = (
        "You-other pays you, other: cooperate-cooperate 3 3; defect-cooperate 5 0; cooperate-defect 0 5; defect-defect 1 1."
    )
    assert observations["player_1"] == f"{expected} cooperate/defect?"


def test_e10_the_second_player_s_information_state_does_not_show_the_first_s_move():
    tree = MatrixGame("rps").tree()
    after = [tree.next(tree.root(), action) for action in tree.legal(tree.root())]
    assert {tree.player(state) for state in after} == {"player_1"}
    assert {tree.observation(state) for state in after} == {"rock/paper/scissors?"}
    assert tree.chance(tree.root()) is None and tree.player(tree.next(after[0], "rock")) is None


def test_the_tree_of_several_rounds_shows_what_the_environment_shows():
    env = MatrixGame("matching_pennies", rounds=3)
    tree, observations = env.tree(), env.reset()[0]
    state, total = tree.root(), {"player_0": 0.0, "player_1": 0.0}
    for choices in (("heads", "tails"), ("tails", "tails"), ("heads", "heads")):
        for player, choice in zip(tree.players, choices, strict=True):
            assert tree.player(state) == player and tree.observation(state) == observations[player]
            state = tree.next(state, choice)
        observations, rewards, *_ = env.step(dict(zip(tree.players, choices, strict=True)))
        total = {player: total[player] + rewards[player] for player in total}
    assert tree.returns(state) == total == {"player_0": 1.0, "player_1": -1.0}


def test_the_table_may_be_an_array():
    env = MatrixGame(np.array([[[1, 0]], [[0, 1.5]]]))
    env.reset()
    assert env.step({"player_0": "b", "player_1": "a"})[1] == {"player_0": 0.0, "player_1": 1.5}


def test_names_of_actions():
    env = MatrixGame([[[1, 0]], [[0, 1]]], actions=[["up", "down"], ["only"]])
    assert env.action_space("player_0").choices == ("up", "down") and env.action_space("player_1").choices == ("only",)
    assert MatrixGame("rps", actions=["R", "P", "S"]).action_space("player_1").choices == ("R", "P", "S")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"payoffs": "chicken"}, "rps, matching_pennies, prisoners_dilemma, given: 'chicken'"),
        ({"payoffs": [[[0, 0]], [[0, 0], [1, 1]]]}, "equal rows of pairs"),
        ({"payoffs": [[[0]]]}, "equal rows of pairs"),
        ({"payoffs": []}, "equal rows of pairs"),
        ({"actions": ["a", "b"]}, "3 and 3 different choices"),
        ({"actions": ["a", "b", "b"]}, "3 and 3 different choices"),
        ({"rounds": 0}, "at least 1, given: 0"),
        ({"payoffs": [[[0, 0]] * 27]}, "needs names"),
        *[
            ({"payoffs": wrong}, "equal rows of pairs of numbers .*given: ")
            for wrong in (
                [[1, 2], [3]],
                [1, 2],
                3,
                None,
                {"a": 1},
                [["ab"]],
                [[[1, "2"]]],
                [[[1, None]]],
                [[[1, float("nan")]]],
                [[[1, float("inf")]]],
                [[[True, False]]],
                [[[[1], 2]]],
                [[[10**400, 1]]],
                [[]],
                np.zeros((2, 2)),
            )
        ],
        *[
            ({"actions": wrong}, "list of names for both players, or two lists of names, given: ")
            for wrong in (
                "abc",
                5,
                [1, 2, 3],
                [["a", "b", "c"], [1, 2, 3]],
                [["a", "b", "c"]],
                [["a"], "b"],
                ["a", "b", " "],
                {},
            )
        ],
        ({"actions": []}, "3 and 3 different choices"),
        *[({"rounds": wrong}, "whole number, at least 1, given: ") for wrong in (-1, 1.5, "3", True, None, float("nan"))],
        ({"show_payoffs": "no"}, "true or false, given: 'no'"),
    ],
)
def test_arguments_that_make_no_game_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        MatrixGame(**arguments)


@pytest.mark.parametrize("actions", [{"player_0": "rock"}, {"player_0": "rock", "player_1": "well"}, {}])
def test_a_missing_or_wrong_choice_is_an_error(actions):
    env = MatrixGame()
    env.reset()
    with pytest.raises(ValueError, match="rock, paper, scissors"):
        env.step(actions)


def test_a_round_too_many_is_an_error():
    env = MatrixGame()
    env.reset()
    env.step({"player_0": "rock", "player_1": "rock"})
    with pytest.raises(ValueError, match="over"):
        env.step({"player_0": "rock", "player_1": "rock"})
