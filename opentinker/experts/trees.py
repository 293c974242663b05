"""Players of small games with hidden cards: an equilibrium and a best response, computed on the game's tree.

Both work on the sequence form of a zero-sum game of two with perfect recall (von Stengel 1996, "Efficient computation of
behavior strategies"): a strategy is a vector of the probabilities with which a player's own moves lead to each of its
sequences of moves, and the expected payoff is a bilinear form of two such vectors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from opentinker.envs.games.tree import GameTree
from opentinker.errors import ConfigError
from opentinker.experts.base import seen
from opentinker.players import Situation

Play: TypeAlias = dict[str, dict[str, dict[str, float]]]
"""player -> observation (information state) -> action -> probability."""

ITERATIONS = 1000
"""Of CFR+."""


@dataclass(frozen=True, slots=True)
class TreePlayer:
    """Draws its moves from a strategy.

    Args:
        play: gives the strategy; called at every decision.
    """

    play: Callable[[], Play]

    def __call__(self, situation: Situation) -> str:
        """A move.

        Raises:
            ConfigError: the observation is none of that agent's in the game.
        """
        text = seen(situation)
        chances = self.play().get(situation.agent, {}).get(text)
        if chances is None:
            raise ConfigError(
                f"a strategy for {situation.agent!r} knows the environment's own observations only, given: {text[:80]!r}"
            )
        drawn: str = random.Random(situation.seed).choices(list(chances), list(chances.values()))[0]
        return drawn


def equilibrium(tree: GameTree, iterations: int = ITERATIONS) -> Play:
    """An approximate equilibrium by CFR+: regrets cut at 0, players updated in turn, averages weighted by the iteration.

    Source: Tammelin (2014), "Solving large imperfect information games using CFR+", arXiv 1407.5042.

    Args:
        tree: two players, zero-sum, perfect recall.
        iterations: more come nearer.
    """
    form = _SequenceForm(tree)
    regrets = [[np.zeros(level.sequences.shape) for level in side.levels] for side in form.sides]
    strategies = [side.uniform() for side in form.sides]
    plans = [side.plan(strategy) for side, strategy in zip(form.sides, strategies, strict=True)]
    averages = [np.zeros_like(plan) for plan in plans]
    for iteration in range(1, iterations + 1):
        for number, side in enumerate(form.sides):
            options = side.options(form.utility(number, plans[1 - number]), _following(strategies[number]))
            for level, regret, worth, chosen in zip(side.levels, regrets[number], options, strategies[number], strict=True):
                gained = worth - (worth * chosen).sum(1, keepdims=True)
                np.maximum((regret + gained) * level.legal, 0.0, out=regret)
            strategies[number] = side.matched(regrets[number])
            plans[number] = side.plan(strategies[number])
            averages[number] += iteration * plans[number]
    return {side.name: side.behaviour(average) for side, average in zip(form.sides, averages, strict=True)}


def answer_to_random(tree: GameTree) -> Play:
    """What gets the most from an opponent whose legal moves are all equally likely; ties go to the move that is legal first.

    Args:
        tree: two players, zero-sum, perfect recall.
    """
    form = _SequenceForm(tree)
    plans = [side.plan(side.uniform()) for side in form.sides]
    found = {}
    for number, side in enumerate(form.sides):
        options = side.options(form.utility(number, plans[1 - number]), side.best)
        best = [side.best(place, worth) for place, worth in enumerate(options)]
        found[side.name] = side.behaviour(side.plan(best), best)
    return found


Table: TypeAlias = NDArray[np.float64]
"""Shape (information states of a level, most actions); 0 in places without an action."""
Choose: TypeAlias = Callable[[int, Table], Table]
"""(number of the level, worth of its actions) -> the probability of each."""


def _following(strategy: list[Table]) -> Choose:
    return lambda place, worth: strategy[place]


@dataclass(frozen=True, slots=True)
class _Level:
    """A player's information states after equally many moves of its own."""

    names: list[str]
    parents: NDArray[np.intp]
    """The sequence of own moves that leads there, shape (states,)."""
    sequences: NDArray[np.intp]
    """The sequence with each action added, shape (states, most actions); -1 where there is none."""
    actions: list[tuple[str, ...]]
    legal: NDArray[np.bool_]
    """Which places hold an action."""
    even: Table
    """All actions equally likely."""


class _Side:
    """One player's information states and sequences; sequence 0 is empty, the last entry of every vector is unused."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 1
        self.levels: list[_Level] = []
        self._depths = [0]
        self._seen: dict[str, tuple[int, tuple[str, ...], list[int]]] = {}

    def note(self, observation: str, actions: tuple[str, ...], parent: int) -> list[int]:
        """The sequences of an information state's actions."""
        if observation not in self._seen:
            new = list(range(self.count, self.count + len(actions)))
            self.count += len(actions)
            self._depths += [self._depths[parent] + 1] * len(actions)
            self._seen[observation] = (parent, actions, new)
        return self._seen[observation][2]

    def close(self) -> None:
        """Sorts what was noted into levels."""
        most = max(len(actions) for _, actions, _ in self._seen.values())
        for depth in range(max(self._depths)):
            own = {name: state for name, state in self._seen.items() if self._depths[state[0]] == depth}
            sequences = np.array([[*new, *[-1] * (most - len(new))] for _, _, new in own.values()], np.intp)
            parents = np.array([parent for parent, _, _ in own.values()], np.intp)
            legal, actions = sequences >= 0, [actions for _, actions, _ in own.values()]
            even = legal / legal.sum(1, keepdims=True)
            self.levels.append(_Level(list(own), parents, sequences, actions, legal, even))

    def uniform(self) -> list[Table]:
        """All actions equally likely, by level."""
        return [level.even for level in self.levels]

    def matched(self, regrets: list[Table]) -> list[Table]:
        """Probabilities in proportion to the regrets; equal ones where there is no regret."""
        found = []
        for level, regret in zip(self.levels, regrets, strict=True):
            total = regret.sum(1, keepdims=True)
            found.append(np.where(total > 0, regret / np.maximum(total, 1e-300), level.even))
        return found

    def best(self, place: int, worth: Table) -> Table:
        """All on the best action of each information state of a level."""
        legal = self.levels[place].legal
        best: Table = np.eye(worth.shape[1])[np.where(legal, worth, -np.inf).argmax(1)]
        return best

    def plan(self, strategy: list[Table]) -> NDArray[np.float64]:
        """How likely the player's own moves lead to each sequence."""
        plan = np.zeros(self.count + 1)
        plan[0] = 1.0
        for level, chosen in zip(self.levels, strategy, strict=True):
            plan[level.sequences] = plan[level.parents][:, None] * chosen
        return plan

    def options(self, utility: NDArray[np.float64], choose: Choose) -> list[Table]:
        """By level, what each action is worth.

        Args:
            utility: what each sequence gets at the ends that follow it without a further own move.
            choose: how the player goes on.
        """
        worth, found = utility.copy(), []
        for place in reversed(range(len(self.levels))):
            level = self.levels[place]
            options = worth[level.sequences] * level.legal
            found.append(options)
            np.add.at(worth, level.parents, (options * choose(place, options)).sum(1))
        return found[::-1]

    def behaviour(self, plan: NDArray[np.float64], elsewhere: list[Table] | None = None) -> dict[str, dict[str, float]]:
        """A plan as probabilities; where it never gets, `elsewhere`, by default uniform."""
        found = {}
        for level, others in zip(self.levels, elsewhere or self.uniform(), strict=True):
            reached = plan[level.sequences] * level.legal
            for name, actions, chances, other in zip(level.names, level.actions, reached, others, strict=True):
                chosen = chances / chances.sum() if chances.sum() > 0 else other
                found[name] = dict(zip(actions, chosen.tolist(), strict=False))
        return found


class _SequenceForm:
    """A game as the sequences of both players and what pairs of them pay player 0."""

    def __init__(self, tree: GameTree) -> None:
        self.sides = [_Side(name) for name in tree.players]
        payoffs: dict[tuple[int, int], float] = {}
        waiting: list[tuple[Any, float, tuple[int, int]]] = [(tree.root(), 1.0, (0, 0))]
        while waiting:
            state, reach, at = waiting.pop()
            outcomes, player = tree.chance(state), tree.player(state)
            if outcomes is not None:
                waiting += [(after, reach * chance, at) for chance, after in outcomes]
            elif player is None:
                payoffs[at] = payoffs.get(at, 0.0) + reach * tree.returns(state)[tree.players[0]]
            else:
                number, legal = tree.players.index(player), tree.legal(state)
                for action, sequence in zip(legal, self._note(number, tree.observation(state), legal, at), strict=True):
                    moved = (sequence, at[1]) if number == 0 else (at[0], sequence)
                    waiting.append((tree.next(state, action), reach, moved))
        for side in self.sides:
            side.close()
        self._payoffs = np.zeros((self.sides[0].count + 1, self.sides[1].count + 1))
        for (first, second), paid in payoffs.items():
            self._payoffs[first, second] = paid

    def _note(self, number: int, observation: str, legal: tuple[str, ...], at: tuple[int, int]) -> list[int]:
        return self.sides[number].note(observation, legal, at[number])

    def utility(self, number: int, plan: NDArray[np.float64]) -> NDArray[np.float64]:
        """What each sequence of a player gets against the other's plan."""
        return self._payoffs @ plan if number == 0 else -(plan @ self._payoffs)
