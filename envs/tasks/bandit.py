"""A bandit: one question, one answer, one noisy reward."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase
from typing import Any

from opentinker.envs.arrays import finite
from opentinker.envs.text import TextEnv, TextSpace
from opentinker.errors import ConfigError


class Bandit(TextEnv):
    """Arms that pay 1 with a probability of their own, else 0. An episode is one pull.

    Args:
        means: each arm's probability of paying; the arms are named a, b, c, ...

    Raises:
        ConfigError: no list, fewer than one or more than 26 arms, or a mean that is no number from 0 to 1.
    """

    metadata = {"name": "bandit", "render_modes": []}

    def __init__(self, means: Sequence[float] = (0.2, 0.5, 0.8)) -> None:
        self._means = dict(zip(ascii_lowercase, _probabilities(means), strict=False))
        self._prompt = f"Pull an arm: {'/'.join(self._means)}?"
        self.action_space = TextSpace(choices=tuple(self._means))
        self.observation_space = TextSpace(max_length=len(self._prompt))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """The question."""
        super().reset(seed=seed)
        return self._prompt, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Pays, and ends the episode.

        Raises:
            ValueError: no such arm.
        """
        if action not in self._means:
            raise ValueError(f"the arms are {', '.join(self._means)}, given: {action!r}")
        reward = float(self.np_random.random() < self._means[action])
        return "", reward, True, False, {}


def _probabilities(means: Any) -> list[float]:
    given = means.tolist() if hasattr(means, "tolist") else means
    listed = given if isinstance(given, (list, tuple)) else ()
    found = [mean for mean in map(finite, listed) if mean is not None and 0 <= mean <= 1]
    if len(found) != len(listed) or not 1 <= len(found) <= len(ascii_lowercase):
        raise ConfigError(f"means must be a list of 1 to 26 probabilities, numbers from 0 to 1, given: {means!r}")
    return found
