"""Leduc poker by hand, and against OpenSpiel's."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pyspiel
import pytest
from open_spiel.python import policy as spiel_policy
from open_spiel.python.algorithms import exploitability as spiel

from opentinker.envs.games.leduc_poker import (
    ACTIONS,
    DEALS,
    LeducPoker,
    LeducState,
    LeducTree,
    is_over,
    legal_moves,
    paid,
    view,
    winnings,
)
from opentinker.league.exploitability import exploitability, information_states

MOVES = {"f": 0, "c": 1, "r": 2}
"""As OpenSpiel numbers them."""


@pytest.mark.parametrize(
    ("cards", "board", "moves", "won"),
    [
        ("KQ", "J", "cc/cc", 1),  # the ante, the higher card
        ("JQ", "J", "cc/cc", 1),  # a pair beats a higher card
        ("KQ", "Q", "rc/rc", -7),  # 1 + 2 + 4
        ("KK", "Q", "crrc/crrc", 0),  # equal cards share
        ("JJ", "Q", "rrc/cc", 0),
        ("QK", "J", "crrc/crrc", -13),  # 1 + 2 * 2 + 2 * 4
        ("QK", "", "rf", 1),  # the other folds its ante
        ("KJ", "", "crf", -1),  # player_0 checked, then folded
        ("KJ", "", "rrf", -3),  # raised, was raised, folded
        ("JK", "Q", "rc/crf", -3),
        ("JK", "Q", "rc/rf", 3),
        ("JK", "Q", "crrc/rrf", -9),  # 1 + 4 + 4
    ],
)
def test_every_kind_of_end_pays_by_the_rules(cards, board, moves, won):
    assert is_over(moves) and winnings(cards, board, moves) == won
    assert LeducTree().returns(LeducState(cards, board, moves)) == {"player_0": won, "player_1": -won}


def test_what_is_paid_before_the_end():
    assert [paid(moves) for moves in ("", "c", "r", "cr", "rr", "rc/", "rc/c", "rc/rr")] == [
        (1, 1),
        (1, 1),
        (3, 1),
        (1, 3),
        (3, 5),
        (3, 3),
        (3, 3),
        (7, 11),
    ]


def test_what_a_player_sees():
    env = LeducPoker()
    env.reset(seed=0)
    one, other, board = env._deal
    assert env.observe("player_0") == f"Card {one}. Board -. Moves -. c/r?"
    for move in "rc":
        env.step(move)
    assert env.agent_selection == "player_0"  # who begins every round
    assert env.observe("player_0") == f"Card {one}. Board {board}. Moves rc/. c/r?"
    for move in "cr":
        env.step(move)
    assert env.observe("player_0") == f"Card {one}. Board {board}. Moves rc/cr. f/c/r?"
    assert env.infos["player_0"]["action_mask"].tolist() == [1, 1, 1] and env.infos["player_1"] == {}
    env.step("r")
    assert env.observe("player_1") == f"Card {other}. Board {board}. Moves rc/crr. f/c?"
    assert env.infos["player_1"]["action_mask"].tolist() == [1, 1, 0]
    env.step("f")
    assert env.observe("player_1") == f"Card {other}. Board {board}. Moves rc/crrf."


def test_the_deals_are_equally_likely_and_the_board_is_hidden():
    assert len(DEALS) == 120 and Counter(DEALS)["JJQ"] == 4 and Counter(DEALS)["JQK"] == 8 and "JJJ" not in DEALS
    env, seen = LeducPoker(), Counter()
    for seed in range(4800):
        env.reset(seed=seed)
        seen[env._deal] += 1
    assert set(seen) == set(DEALS)
    assert all(abs(seen[deal] / 40 - count) < 3 for deal, count in Counter(DEALS).items() if count == 4)  # 160, sd 12.4
    for one, other in itertools.product("JQK", repeat=2):
        assert view("K", "", "c") == "Card K. Board -. Moves c. c/r?"
        assert LeducTree().observation(LeducState("K" + one, "", "")) == LeducTree().observation(LeducState("K" + other))


def test_random_games_go_as_openspiels():
    env, game, rng, ends = LeducPoker(), pyspiel.load_game("leduc_poker"), random.Random(0), set()
    for seed in range(300):
        env.reset(seed=seed)
        deal, used, totals = list(env._deal), [], dict.fromkeys(env.possible_agents, 0.0)
        state = game.new_initial_state()

        def deal_next(state=state, deal=deal, used=used):
            while state.is_chance_node():  # cards 0 and 1 are jacks, 2 and 3 queens, 4 and 5 kings
                card = next(c for c in state.legal_actions() if "JQK"[c // 2] == deal[0] and c not in used)
                used.append(card)
                deal.pop(0)
                state.apply_action(card)

        deal_next()
        for agent in env.agent_iter():
            _, reward, terminated, _, info = env.last()
            totals[agent] += reward
            if terminated:
                env.step(None)
                continue
            legal = [move for move, ok in zip(ACTIONS, info["action_mask"], strict=True) if ok]
            assert agent == f"player_{state.current_player()}" and [MOVES[move] for move in legal] == state.legal_actions()
            move = rng.choice(legal)
            env.step(move)
            state.apply_action(MOVES[move])
            deal_next()
        assert state.is_terminal() and [totals["player_0"], totals["player_1"]] == state.returns()
        ends.add(totals["player_0"])
    assert {-13.0, 13.0, 0.0, 1.0, -1.0} <= ends


def test_the_tree_has_the_games_information_states():
    """Two cards of each rank look the same: of OpenSpiel's 936 states, 3 ranks x 6 histories and 3 x 3 x 5 x 6 are left."""
    states = information_states(LeducTree())
    assert sum(map(len, states.values())) == 3 * 6 + 3 * 3 * 5 * 6 == 288
    env = LeducPoker()
    for player, own in states.items():
        assert max(map(len, own)) <= env.observation_space(player).max_length
        for text, legal in own.items():
            assert text.endswith(f" {'/'.join(legal)}?")


def test_a_random_strategy_is_as_exploitable_as_by_openspiel():
    game, tree, rng = pyspiel.load_game("leduc_poker"), LeducTree(), random.Random(2)
    states = information_states(tree)
    play = {}
    for player, own in states.items():
        play[player] = {}
        for text, legal in own.items():
            weights = [rng.random() ** 3 for _ in legal]
            play[player][text] = dict(zip(legal, (weight / sum(weights) for weight in weights), strict=True))
    assert exploitability(tree, play) == pytest.approx(spiel.exploitability(game, openspiel_table(game, play)), abs=1e-9)


def openspiel_table(game, play) -> spiel_policy.TabularPolicy:
    """A strategy in OpenSpiel's form."""
    table = spiel_policy.TabularPolicy(game)
    for state in table.states:
        player = state.current_player()
        history = state.full_history()
        cards = "".join("JQK"[step.action // 2] for step in history if step.player < 0)
        rounds = "".join("/" if step.player < 0 else "fcr"[step.action] for step in history[2:])
        text = view(cards[player], cards[2:], rounds)
        row = table.action_probability_array[table.state_lookup[state.information_state_string(player)]]
        row[:] = [play[f"player_{player}"][text].get(move, 0.0) for move in ACTIONS]
    return table


@pytest.mark.parametrize("action", ["x", "C", "f", "", None, 0])
def test_refuses_what_is_no_legal_move(action):
    env = LeducPoker()
    env.reset(seed=1)
    with pytest.raises(ValueError, match="leduc_poker has the legal moves c, r now"):
        env.step(action)


def test_the_tree_refuses_questions_without_an_answer():
    tree = LeducTree()
    with pytest.raises(ValueError, match="not legal"):
        tree.next(LeducState("KQ", "", "rr"), "r")
    with pytest.raises(ValueError, match="not the end"):
        tree.returns(LeducState("KQ", "", "cc/"))
    with pytest.raises(ValueError, match="nobody acts"):
        tree.observation(LeducState("KQ", "", "cc/"))
    boards = [(0.5, LeducState("KK", board, "cc/")) for board in "JQ"]
    assert tree.chance(LeducState("KK", "", "cc/")) == boards
    assert sum(chance for chance, _ in tree.chance(tree.root())) == pytest.approx(1)
    assert isinstance(LeducPoker().tree(), LeducTree) and legal_moves("rf") == ()
