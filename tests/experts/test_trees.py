"""Strategies for games with hidden cards, against known values, the league's figures and OpenSpiel's."""

from __future__ import annotations

from collections import Counter

import pyspiel
import pytest
from open_spiel.python import policy as spiel_policy
from open_spiel.python.algorithms import exploitability as spiel

from opentinker.envs.games.kuhn_poker import KuhnTree
from opentinker.envs.games.leduc_poker import ACTIONS, LeducPoker, LeducTree, view
from opentinker.envs.games.matrix_game import MatrixGame
from opentinker.errors import ConfigError
from opentinker.experts.players import leduc_equilibrium
from opentinker.experts.trees import TreePlayer, answer_to_random, equilibrium
from opentinker.league.exploitability import best_response, expected_returns, exploitability, information_states
from opentinker.players import Situation


def uniform(tree):
    states = information_states(tree)
    return {who: {seen: dict.fromkeys(acts, 1 / len(acts)) for seen, acts in own.items()} for who, own in states.items()}


def test_the_equilibrium_of_leduc_poker_by_our_figures_and_openspiels():
    play = leduc_equilibrium()
    assert exploitability(LeducTree(), play) < 1e-3
    # the value known from the literature and from OpenSpiel's linear program
    assert expected_returns(LeducTree(), play)["player_0"] == pytest.approx(-0.0856, abs=1e-3)
    game = pyspiel.load_game("leduc_poker")
    table = spiel_policy.TabularPolicy(game)
    for state in table.states:
        player, history = state.current_player(), state.full_history()
        cards = "".join("JQK"[step.action // 2] for step in history if step.player < 0)
        moves = "".join("/" if step.player < 0 else "fcr"[step.action] for step in history[2:])
        row = table.action_probability_array[table.state_lookup[state.information_state_string(player)]]
        row[:] = [play[f"player_{player}"][view(cards[player], cards[2:], moves)].get(move, 0.0) for move in ACTIONS]
    assert spiel.exploitability(game, table) < 1e-3
    assert spiel.exploitability(game, table) == pytest.approx(exploitability(LeducTree(), play), abs=1e-6)


def test_more_iterations_come_nearer_and_kuhn_pokers_value_is_known():
    tree = KuhnTree()
    found = [exploitability(tree, equilibrium(tree, iterations)) for iterations in (1, 30, 1000)]
    assert found[0] > found[1] > found[2] and found[2] < 1e-4
    assert expected_returns(tree, equilibrium(tree, 1000))["player_0"] == pytest.approx(-1 / 18, abs=1e-4)


def test_rock_paper_scissors_with_a_weighted_table_is_solved():
    """Rock against scissors counts 2: by symmetry the value is 0, and rock 1/4, paper 1/2, scissors 1/4 makes all equal."""
    table = [[[0, 0], [-1, 1], [2, -2]], [[1, -1], [0, 0], [-1, 1]], [[-2, 2], [1, -1], [0, 0]]]
    play = equilibrium(MatrixGame(table).tree(), 3000)
    for own in play.values():
        (chances,) = own.values()
        assert list(chances.values()) == pytest.approx([1 / 4, 1 / 2, 1 / 4], abs=2e-3)


@pytest.mark.parametrize("tree", [KuhnTree(), LeducTree()], ids=["kuhn", "leduc"])
def test_the_answer_to_random_play_is_a_best_response(tree):
    answer, even = answer_to_random(tree), uniform(tree)
    for player, other in (("player_0", "player_1"), ("player_1", "player_0")):
        play = {player: answer[player], other: even[other]}
        assert expected_returns(tree, play)[player] == pytest.approx(best_response(tree, even, player)[0], abs=1e-12)
    assert all(set(chances.values()) <= {0.0, 1.0} for own in answer.values() for chances in own.values())


def test_moves_are_drawn_with_the_strategys_chances():
    text, env = "Card J. Board -. Moves -. c/r?", LeducPoker()
    player = TreePlayer(lambda: {"player_0": {text: {"c": 0.25, "r": 0.75}}})
    space = env.action_space("player_0")
    drawn = Counter(player(Situation("player_0", "a", "any words", space, None, seed, world=text)) for seed in range(2000))
    assert drawn["r"] / 2000 == pytest.approx(0.75, abs=0.04) and set(drawn) == {"c", "r"}
    with pytest.raises(ConfigError, match="knows the environment's own observations only, given: 'Hello'"):
        player(Situation("player_0", "a", "Hello", space, None, 0))
    with pytest.raises(ConfigError, match="for 'player_1'"):
        player(Situation("player_1", "a", text, space, None, 0))
