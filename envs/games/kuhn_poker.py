"""Kuhn poker: three cards, two players, one bet. H. W. Kuhn, "A simplified two-person poker", 1950.

Both ante 1 and get one card of K > Q > J. In turn they pass or bet 1; after a bet the other folds (pass) or calls (bet).
A fold loses the ante; otherwise the higher card wins the pot: +-1 without, +-2 with a called bet. The value for player_0 is
-1/18.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from opentinker.envs.text import Observation, TextAECEnv, TextSpace
from opentinker.seeding import derive

PLAYERS = ("player_0", "player_1")
PASS, BET = "p", "b"
ACTIONS = (PASS, BET)
DEALS = ("KQ", "KJ", "QK", "QJ", "JK", "JQ")
"""player_0's card, then player_1's."""

_STRENGTH = {"J": 0, "Q": 1, "K": 2}
_ENDS = frozenset({"pp", "pbp", "pbb", "bp", "bb"})


class KuhnState(NamedTuple):
    """Cards dealt and moves made; no cards before the deal."""

    cards: str = ""
    moves: str = ""


def winnings(cards: str, moves: str) -> float:
    """What player_0 has won at the end of a game; player_1 has lost it."""
    if moves == "bp":
        return 1.0
    if moves == "pbp":
        return -1.0
    pot = 1.0 if moves == "pp" else 2.0
    return pot if _STRENGTH[cards[0]] > _STRENGTH[cards[1]] else -pot


def view(card: str, moves: str) -> str:
    """What the holder of a card sees; the question stands there while the game lasts."""
    question = "" if moves in _ENDS else f" {PASS}/{BET}?"
    return f"Card {card}. Moves {moves or '-'}.{question}"


_MOVES = ("", "p", "b", "pb", *sorted(_ENDS))
_VIEWS = {(card, moves): Observation(view(card, moves)) for card in _STRENGTH for moves in _MOVES}


class KuhnTree:
    """The game's tree; see `GameTree`."""

    players: tuple[str, ...] = PLAYERS

    def root(self) -> KuhnState:
        """Before the deal."""
        return KuhnState()

    def chance(self, state: KuhnState) -> list[tuple[float, KuhnState]] | None:
        """The six deals, equally likely."""
        return None if state.cards else [(1 / len(DEALS), KuhnState(cards)) for cards in DEALS]

    def player(self, state: KuhnState) -> str | None:
        """The players alternate."""
        return None if not state.cards or state.moves in _ENDS else PLAYERS[len(state.moves) % 2]

    def legal(self, state: KuhnState) -> tuple[str, ...]:
        """Pass and bet, wherever somebody acts."""
        return ACTIONS if self.player(state) else ()

    def next(self, state: KuhnState, action: str) -> KuhnState:
        """One more move."""
        if action not in self.legal(state):
            raise ValueError(f"{action!r} is not legal in {state}; legal: {self.legal(state)}")
        return KuhnState(state.cards, state.moves + action)

    def returns(self, state: KuhnState) -> dict[str, float]:
        """Zero-sum."""
        if state.moves not in _ENDS:
            raise ValueError(f"{state} is not the end of a game")
        won = winnings(*state)
        return {PLAYERS[0]: won, PLAYERS[1]: -won}

    def observation(self, state: KuhnState) -> str:
        """The acting player's card and all moves."""
        if self.player(state) is None:
            raise ValueError(f"nobody acts in {state}")
        return _VIEWS[state.cards[len(state.moves) % 2], state.moves]


class KuhnPoker(TextAECEnv):
    """The game as an environment: the actions are the texts `p` (pass, fold) and `b` (bet, call), always both legal."""

    metadata = {"name": "kuhn_poker", "render_modes": []}

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = list(PLAYERS)
        self.agents = []
        self.observation_spaces = {agent: TextSpace(max_length=24) for agent in PLAYERS}
        self.action_spaces = {agent: TextSpace(choices=ACTIONS) for agent in PLAYERS}
        self._cards, self._moves = "", ""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Deals."""
        super().reset(seed=seed, options=options)
        # A keyed hash draws from a fresh seed for a fraction of what seeding a generator costs.
        drawn = self.rng.getrandbits(63) if seed is None else derive("kuhn_poker", seed)
        self._cards, self._moves = DEALS[drawn % len(DEALS)], ""

    def observe(self, agent: str) -> str:
        """The agent's card and all moves."""
        return _VIEWS[self._cards[PLAYERS.index(agent)], self._moves]

    def step(self, action: str | None) -> None:
        """Pass or bet; None for an agent whose game is over.

        Raises:
            ValueError: no such action.
        """
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        if action not in ACTIONS:
            raise ValueError(f"kuhn_poker has the actions {ACTIONS}, given: {action!r}")
        self._moves += action
        if self._moves in _ENDS:  # nobody has been paid before
            won = winnings(self._cards, self._moves)
            self.rewards = {PLAYERS[0]: won, PLAYERS[1]: -won}
            self.terminations = dict.fromkeys(PLAYERS, True)
            self._accumulate_rewards()
        self.agent_selection = PLAYERS[len(self._moves) % 2]

    def tree(self) -> KuhnTree:
        """The same game as a tree."""
        return KuhnTree()
