"""Leduc poker: six cards, two rounds of bets, one card on the board. Southey et al. 2005, "Bayes' bluff", arXiv 1207.1411.

Two each of K > Q > J. Both ante 1 and get one card. In each round the players, player_0 first, call (check), raise or, after
a raise, fold; a raise adds 2 in the first round and 4 in the second, and there are at most two a round. Between the rounds a
card is laid on the board. A fold loses what was paid; in the end a pair with the board wins, else the higher card; equal
cards share. The value for player_0 is about -0.0856.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from opentinker.envs.text import Observation, TextAECEnv, TextSpace
from opentinker.seeding import derive

PLAYERS = ("player_0", "player_1")
FOLD, CALL, RAISE = "f", "c", "r"
ACTIONS = (FOLD, CALL, RAISE)
RANKS = "JQK"
DECK = "JJQQKK"
DEALS = tuple("".join(cards) for cards in permutations(DECK, 3))
"""player_0's card, player_1's, the board's: 120 deals, equally likely."""
SIZES = (2, 4)
"""What a raise adds, by round."""
MOST_RAISES = 2


class LeducState(NamedTuple):
    """Cards dealt and moves made; no cards before the deal, no board before the second round."""

    cards: str = ""
    board: str = ""
    moves: str = ""
    """A `/` stands between the rounds, from the end of the first on."""


def legal_moves(moves: str) -> tuple[str, ...]:
    """What whoever acts after some moves may do; nothing once the game is over."""
    if is_over(moves):
        return ()
    bets = moves.rpartition("/")[2]
    raised = bets.endswith(RAISE)
    return (*((FOLD,) if raised else ()), CALL, *((RAISE,) if bets.count(RAISE) < MOST_RAISES else ()))


def is_over(moves: str) -> bool:
    """Whether somebody has folded or the second round has ended."""
    first, _, second = moves.partition("/")
    return FOLD in moves or (_closed(first) and _closed(second))


def _closed(bets: str) -> bool:
    """Whether nobody has anything to add: a call that is not the round's first move."""
    return len(bets) > 1 and bets.endswith(CALL)


def after(moves: str, move: str) -> str:
    """The moves with one more; a first round that ends is marked by a `/`."""
    moves += move
    return f"{moves}/" if "/" not in moves and _closed(moves) else moves


def actor(moves: str) -> int:
    """Whose move is next: player_0 begins each round."""
    return len(moves.rpartition("/")[2]) % 2


def paid(moves: str) -> tuple[int, int]:
    """What each player has put into the pot."""
    pot = [1, 1]
    for size, bets in zip(SIZES, moves.split("/"), strict=False):
        for number, move in enumerate(bets):
            player = number % 2
            if move != FOLD:
                pot[player] = pot[1 - player] + (size if move == RAISE else 0)
    return pot[0], pot[1]


def winnings(cards: str, board: str, moves: str) -> float:
    """What player_0 has won at the end of a game; player_1 has lost it."""
    mine, theirs = paid(moves)
    if moves.endswith(FOLD):
        loser = (len(moves.rpartition("/")[2]) - 1) % 2
        return float(-mine if loser == 0 else theirs)
    one, other = ((card == board, RANKS.index(card)) for card in cards)
    return float(theirs if one > other else -mine if one < other else 0)


def view(card: str, board: str, moves: str) -> str:
    """What the holder of a card sees; the question names what is legal while the game lasts."""
    question = "" if is_over(moves) else f" {'/'.join(legal_moves(moves))}?"
    return f"Card {card}. Board {board or '-'}. Moves {moves or '-'}.{question}"


class LeducTree:
    """The game's tree; see `GameTree`. Suits are left out: equal ranks are one card with twice the chance."""

    players: tuple[str, ...] = PLAYERS

    def root(self) -> LeducState:
        """Before the deal."""
        return LeducState()

    def chance(self, state: LeducState) -> list[tuple[float, LeducState]] | None:
        """The two hands; between the rounds the board."""
        if not state.cards:
            hands = [(one + other, (2 - (one == other)) / 15) for one in RANKS for other in RANKS]
            return [(chance, state._replace(cards=cards)) for cards, chance in hands]
        if state.board or not state.moves.endswith("/"):
            return None
        left = [(rank, (2 - state.cards.count(rank)) / 4) for rank in RANKS]
        return [(chance, state._replace(board=rank)) for rank, chance in left if chance]

    def player(self, state: LeducState) -> str | None:
        """The players alternate; player_0 begins each round."""
        waits = not state.cards or (state.moves.endswith("/") and not state.board)
        return None if waits or is_over(state.moves) else PLAYERS[actor(state.moves)]

    def legal(self, state: LeducState) -> tuple[str, ...]:
        """Fold after a raise, call, raise up to twice a round."""
        return legal_moves(state.moves) if self.player(state) else ()

    def next(self, state: LeducState, action: str) -> LeducState:
        """One more move."""
        if action not in self.legal(state):
            raise ValueError(f"{action!r} is not legal in {state}; legal: {self.legal(state)}")
        return state._replace(moves=after(state.moves, action))

    def returns(self, state: LeducState) -> dict[str, float]:
        """Zero-sum."""
        if not state.cards or not is_over(state.moves):
            raise ValueError(f"{state} is not the end of a game")
        won = winnings(*state)
        return {PLAYERS[0]: won, PLAYERS[1]: -won}

    def observation(self, state: LeducState) -> str:
        """The acting player's card, the board and all moves."""
        if self.player(state) is None:
            raise ValueError(f"nobody acts in {state}")
        return view(state.cards[actor(state.moves)], state.board, state.moves)


class LeducPoker(TextAECEnv):
    """The game as an environment: the actions are the texts `f` (fold), `c` (call, check) and `r` (raise), by a mask."""

    metadata = {"name": "leduc_poker", "render_modes": []}

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = list(PLAYERS)
        self.agents = []
        self.observation_spaces = {agent: TextSpace(max_length=40) for agent in PLAYERS}
        self.action_spaces = {agent: TextSpace(choices=ACTIONS) for agent in PLAYERS}
        self._deal, self._moves = "", ""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Deals."""
        super().reset(seed=seed, options=options)
        # A keyed hash draws from a fresh seed for a fraction of what seeding a generator costs.
        drawn = self.rng.getrandbits(63) if seed is None else derive("leduc_poker", seed)
        self._deal, self._moves = DEALS[drawn % len(DEALS)], ""
        self._allow()

    def observe(self, agent: str) -> str:
        """The agent's card, the board once it is laid, and all moves."""
        board = self._deal[2] if "/" in self._moves else ""
        return Observation(view(self._deal[PLAYERS.index(agent)], board, self._moves))

    def step(self, action: str | None) -> None:
        """Folds, calls or raises; None for an agent whose game is over.

        Raises:
            ValueError: no such action, or not legal now.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        legal = legal_moves(self._moves)
        if action not in legal:
            raise ValueError(f"leduc_poker has the legal moves {', '.join(legal)} now, given: {action!r}")
        self._moves = after(self._moves, action)
        if is_over(self._moves):  # nobody has been paid before
            won = winnings(self._deal[:2], self._deal[2], self._moves)
            self.rewards = {PLAYERS[0]: won, PLAYERS[1]: -won}
            self.terminations = dict.fromkeys(PLAYERS, True)
            self.infos = {player: {} for player in PLAYERS}
            self._accumulate_rewards()
            self.agent_selection = PLAYERS[1 - PLAYERS.index(agent)]
        else:
            self._allow()

    def _allow(self) -> None:
        """Selects who acts, with a mask of what is legal."""
        legal, self.agent_selection = legal_moves(self._moves), PLAYERS[actor(self._moves)]
        self.infos = {player: {} for player in PLAYERS}
        self.infos[self.agent_selection]["action_mask"] = np.array([move in legal for move in ACTIONS], np.int8)

    def tree(self) -> LeducTree:
        """The same game as a tree."""
        return LeducTree()
