"""The same figures as OpenSpiel's, on its own games seen through our tree, and on our Kuhn poker."""

from __future__ import annotations

import random

import pyspiel
import pytest
from open_spiel.python import policy as spiel_policy
from open_spiel.python.algorithms import exploitability as spiel
from open_spiel.python.algorithms import policy_aggregator

from opentinker.envs.games.kuhn_poker import KuhnState, KuhnTree
from opentinker.league.exploitability import IterateAverage, best_response, expected_returns, exploitability, nash_conv


class SpielTree:
    """A sequential game of OpenSpiel's as a GameTree; actions are its numbers as text."""

    def __init__(self, name: str) -> None:
        self.game = pyspiel.load_game(name)
        self.players = tuple(map(str, range(self.game.num_players())))

    def root(self):
        return self.game.new_initial_state()

    def chance(self, state):
        return [(p, state.child(outcome)) for outcome, p in state.chance_outcomes()] if state.is_chance_node() else None

    def player(self, state):
        return None if state.is_terminal() else str(state.current_player())

    def legal(self, state):
        return tuple(map(str, state.legal_actions()))

    def next(self, state, action):
        return state.child(int(action))

    def returns(self, state):
        return dict(zip(self.players, state.returns(), strict=True))

    def observation(self, state):
        return state.information_state_string()


def random_policy(game, seed: int) -> spiel_policy.TabularPolicy:
    table = spiel_policy.TabularPolicy(game)
    draw = random.Random(seed)
    for probabilities, legal in zip(table.action_probability_array, table.legal_actions_mask, strict=True):
        weights = [draw.random() ** 3 * bool(ok) for ok in legal]
        probabilities[:] = [weight / sum(weights) for weight in weights]
    return table


def behaviour_of(table: spiel_policy.TabularPolicy):
    """The policy in our form."""
    found = {}
    for player, states in enumerate(table.states_per_player):
        found[str(player)] = {
            seen: {
                str(action): float(table.action_probability_array[table.state_lookup[seen]][action])
                for action, ok in enumerate(table.legal_actions_mask[table.state_lookup[seen]])
                if ok
            }
            for seen in states
        }
    return found


@pytest.mark.parametrize("seed", range(8))
def test_random_policies_in_kuhn_poker(seed):
    tree = SpielTree("kuhn_poker")
    table = random_policy(tree.game, seed)
    play = behaviour_of(table)
    assert exploitability(tree, play) == pytest.approx(spiel.exploitability(tree.game, table), abs=1e-12)
    detail = spiel.nash_conv(tree.game, table, return_only_nash_conv=False)
    assert nash_conv(tree, play) == pytest.approx(detail.nash_conv, abs=1e-12)
    now = expected_returns(tree, play)
    for number, player in enumerate(tree.players):
        gain = best_response(tree, play, player)[0] - now[player]
        assert gain == pytest.approx(detail.player_improvements[number], abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_our_kuhn_poker_is_openspiels(seed):
    """Cards 0, 1, 2 are J, Q, K; actions 0 and 1 are pass and bet."""
    game, tree = pyspiel.load_game("kuhn_poker"), KuhnTree()
    table = random_policy(game, seed)
    play = {player: {} for player in tree.players}
    for seen, row in table.state_lookup.items():
        card, moves = "JQK"[int(seen[0])], seen[1:]
        other = "K" if card != "K" else "Q"
        cards = card + other if len(moves) % 2 == 0 else other + card
        chances = table.action_probability_array[row]
        seat = tree.players[len(moves) % 2]
        play[seat][tree.observation(KuhnState(cards, moves))] = {"p": float(chances[0]), "b": float(chances[1])}
    assert exploitability(tree, play) == pytest.approx(spiel.exploitability(game, table), abs=1e-12)


SIMULTANEOUS = "turn_based_simultaneous_game(game={}())"


@pytest.mark.parametrize("name", ["leduc_poker", SIMULTANEOUS.format("matrix_rps"), SIMULTANEOUS.format("matrix_pd")])
def test_other_games(name):
    tree = SpielTree(name)
    table = random_policy(tree.game, 1)
    assert nash_conv(tree, behaviour_of(table)) == pytest.approx(spiel.nash_conv(tree.game, table), abs=1e-9)


def test_three_players():
    tree = SpielTree("kuhn_poker(players=3)")
    table = random_policy(tree.game, 1)
    assert nash_conv(tree, behaviour_of(table)) == pytest.approx(spiel.nash_conv(tree.game, table), abs=1e-9)


def test_the_iterate_average_is_openspiels_aggregate():
    """Four random iterates, drawn alike for each seat and game."""
    tree = SpielTree("kuhn_poker")
    tables = [random_policy(tree.game, seed) for seed in range(4)]
    average = IterateAverage(tree)
    for table in tables:
        average.add(behaviour_of(table))
    aggregator = policy_aggregator.PolicyAggregator(tree.game)
    theirs = aggregator.aggregate([0, 1], [tables, tables], [[0.25] * 4] * 2)
    assert exploitability(tree, average.behaviour()) == pytest.approx(spiel.exploitability(tree.game, theirs), abs=1e-9)
