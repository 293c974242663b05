"""Matrix games: two players choose at once, a table says what each gets."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

from opentinker.envs.arrays import finite
from opentinker.envs.text import TextParallelEnv, TextSpace
from opentinker.errors import ConfigError

PLAYERS = ("player_0", "player_1")
Payoffs = Sequence[Sequence[Sequence[float]]]
"""payoffs[i][j] = (player_0's, player_1's) when player_0 chooses its action i and player_1 its action j."""

PRESETS: dict[str, tuple[tuple[str, ...], Payoffs]] = {
    "rps": (
        ("rock", "paper", "scissors"),
        (((0, 0), (-1, 1), (1, -1)), ((1, -1), (0, 0), (-1, 1)), ((-1, 1), (1, -1), (0, 0))),
    ),
    "matching_pennies": (("heads", "tails"), (((1, -1), (-1, 1)), ((-1, 1), (1, -1)))),
    "prisoners_dilemma": (("cooperate", "defect"), (((3, 3), (0, 5)), ((5, 0), (1, 1)))),
}

Moves = tuple[str, ...]
"""All choices so far: player_0's, player_1's of the first round, then of the second, ..."""


class MatrixRules:
    """The game as a tree; see `GameTree`. A simultaneous round is two moves, the second made without sight of the first.

    Args:
        payoffs: the table, every row of equal length.
        actions: each player's names of its actions.
        rounds: how often it is played.
        show_payoffs: whether players are told the table.

    Raises:
        ConfigError: names that do not fit the table, or no whole number of rounds.
    """

    players = PLAYERS

    def __init__(self, payoffs: Payoffs, actions: tuple[Moves, Moves], rounds: int, show_payoffs: bool) -> None:
        sizes = (len(payoffs), len(payoffs[0]))
        if tuple(map(len, actions)) != sizes or any(len(set(names)) != len(names) for names in actions):
            raise ConfigError(f"actions must name {sizes[0]} and {sizes[1]} different choices, given: {actions!r}")
        if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
            raise ConfigError(f"rounds must be a whole number, at least 1, given: {rounds!r}")
        self.actions, self.rounds = actions, rounds
        self._paid = {
            (mine, theirs): (payoffs[i][j][0], payoffs[i][j][1])
            for i, mine in enumerate(actions[0])
            for j, theirs in enumerate(actions[1])
        }
        self._tables = [self._table(index) if show_payoffs else "" for index in (0, 1)]

    def payoff(self, first: str, second: str) -> tuple[float, float]:
        """What one round pays player_0 and player_1."""
        return self._paid[first, second]

    def view(self, index: int, moves: Moves) -> str:
        """What a player sees of the rounds that are over, own choice first, and the question while the game lasts."""
        over = len(moves) // 2
        own, other = moves[index : 2 * over : 2], moves[1 - index : 2 * over : 2]
        past = ", ".join([f"{mine}-{theirs}" for mine, theirs in zip(own, other, strict=True)])
        question = f"{'/'.join(self.actions[index])}?" if over < self.rounds else ""
        parts = [self._tables[index], f"You-other: {past}." if past else "", question]
        return " ".join([part for part in parts if part])

    def _table(self, index: int) -> str:
        rows = []
        for (first, second), paid in self._paid.items():
            mine, theirs = (first, second) if index == 0 else (second, first)
            rows.append(f"{mine}-{theirs} {paid[index]:g} {paid[1 - index]:g}")
        return f"You-other pays you, other: {'; '.join(rows)}."

    def root(self) -> Moves:
        """Before the first choice."""
        return ()

    def chance(self, state: Moves) -> None:
        """There is no chance in it."""

    def player(self, state: Moves) -> str | None:
        """Whose choice is written down next."""
        return PLAYERS[len(state) % 2] if len(state) < 2 * self.rounds else None

    def legal(self, state: Moves) -> tuple[str, ...]:
        """All of the player's actions."""
        return self.actions[len(state) % 2] if self.player(state) else ()

    def next(self, state: Moves, action: str) -> Moves:
        """One more choice."""
        if action not in self.legal(state):
            raise ValueError(f"{action!r} is not legal in {state}; legal: {self.legal(state)}")
        return (*state, action)

    def returns(self, state: Moves) -> dict[str, float]:
        """The sum over the rounds."""
        if len(state) != 2 * self.rounds:
            raise ValueError(f"{state} is not the end of a game")
        paid = [self.payoff(*pair) for pair in zip(state[::2], state[1::2], strict=True)]
        return {player: sum(pair[index] for pair in paid) for index, player in enumerate(PLAYERS)}

    def observation(self, state: Moves) -> str:
        """The rounds that are over; never the other's choice in this one."""
        if self.player(state) is None:
            raise ValueError(f"nobody acts in {state}")
        return self.view(len(state) % 2, state)


class MatrixGame(TextParallelEnv):
    """Two players choose at once, `rounds` times.

    Args:
        payoffs: `rps`, `matching_pennies`, `prisoners_dilemma`, or a table [[[r0, r1], ...], ...] of any size.
        actions: names for both players, or a list of names for each; default: the preset's, or a, b, c, ...
        rounds: how often it is played.
        show_payoffs: whether the observations tell the table.

    Raises:
        ConfigError: no such preset, or a table, names or rounds that make no game.
    """

    metadata = {"name": "matrix_game", "render_modes": []}

    def __init__(
        self,
        payoffs: str | Payoffs = "rps",
        actions: Sequence[str] | Sequence[Sequence[str]] | None = None,
        rounds: int = 1,
        show_payoffs: bool = False,
    ) -> None:
        names: Any = actions
        if isinstance(payoffs, str):
            if payoffs not in PRESETS:
                raise ConfigError(f"payoffs must be a table or one of {', '.join(PRESETS)}, given: {payoffs!r}")
            default, payoffs = PRESETS[payoffs]
            names = default if names is None else names
        table = _table(payoffs)
        both = (_letters(len(table)), _letters(len(table[0]))) if names is None else _names(names)
        if not isinstance(show_payoffs, bool):
            raise ConfigError(f"show_payoffs must be true or false, given: {show_payoffs!r}")
        self._rules = MatrixRules(table, both, rounds, show_payoffs)
        self.possible_agents = list(PLAYERS)
        self.agents = []
        self.action_spaces = {player: TextSpace(choices=both[index]) for index, player in enumerate(PLAYERS)}
        self.observation_spaces = {player: TextSpace() for player in PLAYERS}
        self._moves: Moves = ()

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """The first question to each player."""
        self.begin(seed)
        self._moves = ()
        return self._views(), {player: {} for player in PLAYERS}

    def step(
        self, actions: dict[str, str]
    ) -> tuple[dict[str, str], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One round.

        Raises:
            ValueError: the game is over, or a choice is missing or none of the player's actions.
        """
        for index, player in enumerate(PLAYERS):
            choice = actions.get(player)
            if not self.agents or choice not in self._rules.actions[index]:
                given = "the game is over" if not self.agents else f"given: {choice!r}"
                raise ValueError(f"{player} chooses one of {', '.join(self._rules.actions[index])}; {given}")
        pair = (actions[PLAYERS[0]], actions[PLAYERS[1]])
        self._moves += pair
        paid = self._rules.payoff(*pair)
        over = self._rules.player(self._moves) is None
        if over:
            self.agents = []
        return (
            self._views(),
            dict(zip(PLAYERS, paid, strict=True)),
            dict.fromkeys(PLAYERS, over),
            dict.fromkeys(PLAYERS, False),
            {player: {} for player in PLAYERS},
        )

    def tree(self) -> MatrixRules:
        """The same game as a tree."""
        return self._rules

    def _views(self) -> dict[str, str]:
        return {player: self._rules.view(index, self._moves) for index, player in enumerate(PLAYERS)}


def _table(payoffs: Any) -> Payoffs:
    """The table as floats."""
    given = payoffs.tolist() if hasattr(payoffs, "tolist") else payoffs
    rows = [[[finite(paid) for paid in _items(pair)] for pair in _items(row)] for row in _items(given)]
    pairs = [pair for row in rows for pair in row]
    if not pairs or len(set(map(len, rows))) != 1 or any(len(pair) != 2 or None in pair for pair in pairs):
        raise ConfigError(
            f"payoffs must be equal rows of pairs of numbers [player_0's, player_1's], given: {payoffs!r}; "
            "for two actions each: [[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]]"
        )
    return rows  # type: ignore[return-value]


def _names(actions: Any) -> tuple[Moves, Moves]:
    """Each player's names."""
    names = _items(actions)
    both = [_items(own) for own in names] if any(isinstance(own, (list, tuple)) for own in names) else [names, names]
    whole = isinstance(actions, (list, tuple)) and len(both) == 2 and (both[0] is names or all(map(_items, names)))
    if not whole or not all(isinstance(name, str) and name.strip() for own in both for name in own):
        raise ConfigError(f"actions must be a list of names for both players, or two lists of names, given: {actions!r}")
    return (both[0], both[1])


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _letters(count: int) -> tuple[str, ...]:
    if count > len(ascii_lowercase):
        raise ConfigError(f"a table of more than {len(ascii_lowercase)} actions needs names for them: give `actions`")
    return tuple(ascii_lowercase[:count])
