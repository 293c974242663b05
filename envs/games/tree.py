"""A game as a tree, for exact computations such as exploitability."""

from __future__ import annotations

from typing import Any, Protocol


class GameTree(Protocol):
    """An extensive-form game with perfect recall. States are hashable values.

    What `observation` says of a state is, letter for letter, what the environment shows the acting player there, so a
    policy's behaviour in the environment is a behaviour in the tree.
    """

    players: tuple[str, ...]

    def root(self) -> Any:
        """The state before anything happened."""

    def chance(self, state: Any) -> list[tuple[float, Any]] | None:
        """(probability, next state) of each outcome; None where no chance move is due."""

    def player(self, state: Any) -> str | None:
        """Who acts; None at chance nodes and at the end."""

    def legal(self, state: Any) -> tuple[str, ...]:
        """The actions of who acts; empty where nobody does."""

    def next(self, state: Any, action: str) -> Any:
        """The state after an action. Raises ValueError for one that is not legal."""

    def returns(self, state: Any) -> dict[str, float]:
        """What each player has won at the end."""

    def observation(self, state: Any) -> str:
        """What who acts sees: its information state."""
