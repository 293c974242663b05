"""What authors of text-native environments subclass: the Gymnasium and PettingZoo APIs, texts in and out."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import pettingzoo  # type: ignore[import-untyped]
from gymnasium.spaces import Space
from numpy.typing import NDArray

MAX_LENGTH = 65536
_SAMPLE_LENGTH = 64
_FIRST_PRINTABLE, _FIRST_SURROGATE, _SURROGATES, _CODE_POINTS = 0x20, 0xD800, 0x800, 0x110000


class TextSpace(Space[str]):
    """Texts: any Unicode of bounded length, or one of finitely many.

    Lone surrogates are no text (they cannot be encoded) and lie outside of every space.

    Args:
        max_length: in characters, inclusive; the empty text is allowed.
        choices: the only texts of the space, in the order of the entries of an action mask.
        seed: of the space's own generator.

    Raises:
        ValueError: a negative length, or choices that are empty, not texts, repeated or too long.
    """

    def __init__(
        self,
        max_length: int = MAX_LENGTH,
        choices: Sequence[str] | None = None,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if max_length < 0:
            raise ValueError(f"max_length must not be negative, given: {max_length}")
        self.max_length = max_length
        self.choices = None if choices is None else _checked_choices(choices, max_length)
        self._members = frozenset(self.choices or ())
        super().__init__(dtype=str, seed=seed)

    def sample(self, mask: NDArray[np.int8] | None = None, probability: NDArray[np.float64] | None = None) -> str:
        """A random text; of a space without choices a short one.

        Args:
            mask: 1 for each choice that may be drawn, shape (choices,), int8.
            probability: of each choice, shape (choices,).

        Raises:
            ValueError: both are given, a shape is wrong, nothing may be drawn, or the space has no choices to mask.
        """
        if mask is not None and probability is not None:
            raise ValueError("give either mask or probability, not both")
        weights = mask if probability is None else probability
        if self.choices is None:
            if weights is not None:
                raise ValueError("a TextSpace without choices takes no mask and no probability")
            return self._random_text()
        if weights is None:
            return self.choices[int(self.np_random.integers(len(self.choices)))]
        total = float(np.sum(weights))
        if np.shape(weights) != (len(self.choices),) or total <= 0:
            raise ValueError(f"expected {len(self.choices)} entries with at least one above 0, given: {weights!r}")
        return self.choices[int(self.np_random.choice(len(self.choices), p=np.asarray(weights, np.float64) / total))]

    def _random_text(self) -> str:
        length = int(self.np_random.integers(0, min(self.max_length, _SAMPLE_LENGTH) + 1))
        points = self.np_random.integers(_FIRST_PRINTABLE, _CODE_POINTS - _SURROGATES, size=length)
        points[points >= _FIRST_SURROGATE] += _SURROGATES
        return "".join(map(chr, points))

    def contains(self, x: Any) -> bool:
        """Whether x is a text of this space."""
        if not isinstance(x, str):
            return False
        if self.choices is not None:
            return x in self._members
        return len(x) <= self.max_length and encodable(x)

    @property
    def is_np_flattenable(self) -> bool:
        """False: texts have no fixed length."""
        return False

    def __repr__(self) -> str:
        if self.choices is not None:
            return f"TextSpace(choices={list(self.choices)!r})"
        return f"TextSpace({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and (self.max_length, self.choices) == (other.max_length, other.choices)

    __hash__ = None  # type: ignore[assignment]  # mutable (its generator), like every Gymnasium space


def encodable(text: str) -> bool:
    """Whether a text has a UTF-8 form, that is, holds no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked_choices(choices: Sequence[str], max_length: int) -> tuple[str, ...]:
    if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
        raise ValueError(f"choices must be a sequence of texts, given: {choices!r}")
    if not choices or len(set(choices)) != len(choices):
        raise ValueError(f"choices must be distinct and at least one, given: {list(choices)!r}")
    wrong = [choice for choice in choices if len(choice) > max_length or not encodable(choice)]
    if wrong:
        raise ValueError(f"choices longer than max_length={max_length} or not encodable: {wrong!r}")
    return tuple(choices)


class Observation(str):
    """A text that carries the data type of its space, which PettingZoo's api_test compares; a str in every other way."""

    __slots__ = ()
    dtype = np.dtype(str)


class TextEnv(gymnasium.Env[str, str]):
    """One agent, texts in and out. `np_random` is the environment's generator, as in every Gymnasium environment."""

    observation_space: Space[str]
    action_space: Space[str]


class _Multi:
    """What both text-native PettingZoo classes share: spaces by agent and a generator of their own."""

    metadata: dict[str, Any]
    possible_agents: list[str]
    observation_spaces: Mapping[str, Space[str]]
    action_spaces: Mapping[str, Space[str]]
    render_mode: str | None = None
    """There is nothing to draw; PettingZoo's conversions look for it."""
    _rng: random.Random | None = None
    _seed: int | None = None

    @property
    def rng(self) -> random.Random:
        """The environment's own generator, seeded by `reset(seed=...)`, else by the operating system."""
        if self._rng is None:
            self._rng = random.Random(self._seed)
        return self._rng

    def seed_rng(self, seed: int | None) -> None:
        """A fresh generator for a seed; None keeps the current one, as Gymnasium does."""
        if seed is not None:
            self._seed, self._rng = seed, None  # made on first use: seeding costs more than many an episode

    def observation_space(self, agent: str) -> Space[str]:
        """The agent's observation space, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Space[str]:
        """The agent's action space, always the same object."""
        return self.action_spaces[agent]


class TextAECEnv(_Multi, pettingzoo.AECEnv[str, str, str]):  # type: ignore[misc]
    """Agents in turns, texts in and out.

    A subclass sets `metadata`, `possible_agents`, `observation_spaces` and `action_spaces`, and writes `reset` (whose first
    line is `super().reset(seed=seed, options=options)`), `step` and `observe`. Where not all choices are legal,
    `infos[agent]["action_mask"]` says which are.
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Seeds the generator, brings all agents to life without rewards and selects the first."""
        self.seed_rng(seed)
        agents = self.possible_agents
        self.agents = agents[:]
        self.rewards = dict.fromkeys(agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(agents, 0.0)
        self.terminations = dict.fromkeys(agents, False)
        self.truncations = dict.fromkeys(agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in agents}
        self._skip_agent_selection = None
        self.agent_selection = agents[0]

    def last(self, observe: bool = True) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        """PettingZoo's `last()` for the selected agent."""
        agent = self.agent_selection
        observation = self.observe(agent) if observe else None
        if type(observation) is str:
            observation = Observation(observation)
        rewards = self._cumulative_rewards[agent]
        return observation, rewards, self.terminations[agent], self.truncations[agent], self.infos[agent]


class TextParallelEnv(_Multi, pettingzoo.ParallelEnv[str, str, str]):  # type: ignore[misc]
    """Agents at once, texts in and out.

    A subclass sets `metadata`, `possible_agents`, `observation_spaces` and `action_spaces`, and writes `reset` (whose first
    line is `self.begin(seed)`) and `step`.
    """

    def begin(self, seed: int | None) -> None:
        """Seeds the generator and brings all agents to life."""
        self.seed_rng(seed)
        self.agents = self.possible_agents[:]
