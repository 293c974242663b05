"""Perfect players against OpenSpiel's rules and figures, which share nothing with ours."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyspiel
import pytest
from open_spiel.python import policy as spiel_policy
from open_spiel.python.algorithms import exploitability as spiel

from opentinker.config import load_config
from opentinker.coordinators import Table, coordinator_factory, play_episode
from opentinker.envs import open_env
from opentinker.envs.games.kuhn_poker import KuhnPoker, KuhnState, KuhnTree
from opentinker.errors import ConfigError
from opentinker.league.exploitability import exploitability
from opentinker.perfect import KuhnEquilibrium, best_moves, board_value, minimax
from opentinker.players import Situation, check_player, make_player
from opentinker.rollout import Rollout
from opentinker.sampling.tiny import build_tiny
from opentinker.seats import ScriptedSeat
from opentinker.testing import ScriptedSampler

TTT = "pettingzoo/classic/tictactoe_v3"


def boards(state) -> tuple[int, int]:
    """Own and other's cells of whoever moves next, read off OpenSpiel's picture of the board."""
    cells = [cell for cell in str(state) if cell in "xo."]
    own, other = "xo" if state.current_player() == 0 else "ox"
    return tuple(sum(1 << index for index, cell in enumerate(cells) if cell == mark) for mark in (own, other))


def worst(state, player: int, seen: dict) -> float:
    """The least that `player` gets with any of its best moves against every reply there is, on OpenSpiel's rules."""
    if state.is_terminal():
        return state.returns()[player]
    key = str(state)
    if key not in seen:
        moves = best_moves(*boards(state)) if state.current_player() == player else state.legal_actions()
        seen[key] = min(worst(state.child(move), player, seen) for move in moves)
    return seen[key]


@pytest.mark.parametrize("player", [0, 1])
def test_tictactoe_never_loses_whatever_the_other_does(player):
    root = pyspiel.load_game("tic_tac_toe").new_initial_state()
    assert worst(root, player, {}) == 0 == board_value(0, 0)


def test_tictactoe_takes_a_win_and_every_best_move_is_drawn():
    # own on cells 0 and 1, the other on 3 and 4: cell 2 wins, nothing else does
    assert best_moves(0b000000011, 0b000011000) == (2,)
    planes = np.zeros((3, 3, 2), dtype=np.int8)
    situations = [
        Situation("player_1", "player_1", "", None, None, seed, (), {"observation": planes}, TTT) for seed in range(900)
    ]
    drawn = Counter(map(minimax, situations))
    assert set(drawn) == set(range(9)) and all(60 < count < 150 for count in drawn.values())  # all openings draw


def draw_board(observation) -> str:
    """A wording that hides which marks are whose."""
    return "some board"


def read_cell(text: str) -> int:
    return int(text.removeprefix("cell "))


def play_tictactoe(names: dict[str, str], games: int, **codec) -> Counter:
    async def main() -> Counter:
        env, ends = open_env(TTT, isolation="inline", **codec), Counter()
        for game in range(games):

            def seat(agent, game=game):
                return ScriptedSeat(agent, make_player(names[agent]), seed_key=(1,), place=(game, 0), env=TTT)

            table = Table(env, seat, episode_id=str(game), seed=game)
            episode = await play_episode(coordinator_factory("turns", {})(), env, table)
            assert episode.status == "terminated", episode.error
            ends[episode.rewards["player_1"]] += 1
        await env.close()
        return ends

    return asyncio.run(main())


def test_the_environment_of_pettingzoo_is_played_from_both_seats_under_any_wording():
    first = play_tictactoe({"player_1": "minimax", "player_2": "random"}, 30, render=draw_board)
    assert first[-1.0] == 0 and first[1.0] > 20
    second = play_tictactoe({"player_1": "random", "player_2": "minimax"}, 30)
    assert second[1.0] == 0 and second[-1.0] > 10
    assert play_tictactoe({"player_1": "minimax", "player_2": "minimax"}, 20, parse=read_cell) == {0.0: 20}


def test_a_policy_is_warmed_up_on_perfect_moves():
    """The seats' own policies answer with minimax's moves, as text: every game is a draw."""
    config = load_config(
        {
            "env": {"id": TTT, "isolation": "inline"},
            "coordinator": {"id": "turns"},
            "agents": {"*": {"policy": "learner", "memory": "last"}},
            "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 2}}},
        }
    )
    words = build_tiny(0)[1]
    host = SimpleNamespace(
        sampler=ScriptedSampler([], tokenizer=words), tokenizer=lambda policy: words, max_context=lambda policy: None
    )

    async def main():
        rollout = Rollout(config, host)
        try:
            return await rollout.collect(1, purpose="warm", groups=6, group_size=1, driver=minimax)
        finally:
            await rollout.close()

    episodes = [episode for group in asyncio.run(main()) for episode in group.episodes]
    assert all(set(episode.rewards.values()) == {0.0} and len(episode.turns) == 9 for episode in episodes)
    assert {turn.policy for episode in episodes for turn in episode.turns} == {"learner"}


def behaviour(player: KuhnEquilibrium) -> dict:
    """The player in every information state of the tree."""
    tree, found = KuhnTree(), {"player_0": {}, "player_1": {}}
    for card in "JQK":
        for moves in ("", "p", "b", "pb"):
            other = next(name for name in "JQK" if name != card)
            cards = card + other if len(moves) % 2 == 0 else other + card
            bet = player.bets(card, moves)
            found[tree.player(KuhnState(cards, moves))][tree.observation(KuhnState(cards, moves))] = {"p": 1 - bet, "b": bet}
    return found


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 3])
def test_the_equilibrium_of_kuhn_poker_cannot_be_exploited(alpha):
    assert exploitability(KuhnTree(), behaviour(KuhnEquilibrium(alpha))) == pytest.approx(0, abs=1e-12)
    game = pyspiel.load_game("kuhn_poker")
    table = spiel_policy.TabularPolicy(game)
    for seen, row in table.state_lookup.items():
        bet = KuhnEquilibrium(alpha).bets("JQK"[int(seen[0])], seen[1:])
        table.action_probability_array[row] = [1 - bet, bet]
    assert spiel.nash_conv(game, table) == pytest.approx(0, abs=1e-12)


def test_another_strategy_of_kuhn_poker_can():
    play = behaviour(KuhnEquilibrium(0.1))
    play["player_1"]["Card Q. Moves b. p/b?"] = {"p": 1.0, "b": 0.0}
    assert exploitability(KuhnTree(), play) > 0.01


def test_kuhn_moves_are_drawn_with_the_equilibriums_probabilities():
    env = KuhnPoker()
    space = env.action_space("player_1")
    for card, moves in (("J", "p"), ("Q", "b"), ("Q", "pb"), ("K", "-"), ("J", "b")):
        text = f"Card {card}. Moves {moves}. p/b?"
        bets = [minimax(Situation("a", "a", text, space, None, seed, (), text, "kuhn_poker")) for seed in range(1500)].count(
            "b"
        )
        assert bets / 1500 == pytest.approx(KuhnEquilibrium().bets(card, moves.replace("-", "")), abs=0.04)


def test_a_game_is_known_without_its_version_too():
    check_player(minimax, "pettingzoo/classic/tictactoe")
    board = np.zeros((3, 3, 2), np.int8)
    board[0, :2, 0] = board[1, :2, 1] = 1  # two in a row each: the third wins
    situation = Situation("player_1", "x", "", None, None, 0, world=board, env="pettingzoo/classic/tictactoe")
    assert minimax(situation) == 2
    with pytest.raises(ConfigError, match="cannot play 'pettingzoo/classic/connect_four'"):
        check_player(minimax, "pettingzoo/classic/connect_four")


def test_what_cannot_be_played_is_refused_with_what_can():
    with pytest.raises(ConfigError, match="cannot play 'bandit'; it plays kuhn_poker, leduc_poker, pettingzoo/.*tictactoe"):
        minimax(Situation("a", "a", "", None, None, 0, (), None, "bandit"))
    with pytest.raises(ConfigError, match=r"shape \(3, 3, 2\)"):
        minimax(Situation("a", "a", "", None, None, 0, (), "a text", TTT))
    with pytest.raises(ConfigError, match="given: 'Hello'"):
        minimax(Situation("a", "a", "Hello", None, None, 0, (), None, "kuhn_poker"))
    with pytest.raises(ConfigError, match="alpha from 0 to 1/3"):
        KuhnEquilibrium(0.5)
