"""What is measured between updates: exploitability of the last, the averaged and the EMA policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentinker.cast import Cast
from opentinker.config import RunConfig
from opentinker.envs import EnvHandle
from opentinker.envs.games.tree import GameTree
from opentinker.errors import ConfigError, EnvError
from opentinker.league.behaviour import Probe
from opentinker.league.exploitability import IterateAverage, exploitability

Figures = dict[str, float]


class Evaluator:
    """Measures a run. Its only memory is the iterate average, which belongs to the checkpoint."""

    def __init__(self, config: RunConfig, tree: GameTree | None, probe: Probe | None) -> None:
        """Made by `open`."""
        self.config = config
        self._tree, self._probe = tree, probe
        self._average = IterateAverage(tree) if tree is not None else None

    @classmethod
    async def open(cls, config: RunConfig, cast: Cast, host: Any, env: EnvHandle) -> Evaluator:
        """Prepares what `evaluate.metrics` asks for.

        Raises:
            ConfigError: a metric that this environment or these seats do not allow.
        """
        if "exploitability" not in config.evaluate.metrics:
            return cls(config, None, None)
        try:
            tree: GameTree = await env.call("tree")
        except EnvError as error:
            why = "has none" if isinstance(error.__cause__, AttributeError) else f"failed to give one: {error}"
            raise ConfigError(
                f"evaluate.metrics: exploitability needs a game tree, a method `tree()`; {config.env.id!r} {why}"
            ) from error
        return cls(config, tree, await Probe.open(tree, config, cast, host, env))

    def measure(self, step: int) -> Figures:
        """Figures after a step's update; the iterate average takes in every step, the rest is measured when due."""
        if self._tree is None or self._probe is None or self._average is None:
            return {}
        settings = self.config.evaluate
        due = step == 0 or step % settings.every == 0 or step == self.config.train.steps
        averaging = step >= settings.average_from
        if not (due or averaging):
            return {}
        last = self._probe.read()
        if averaging:
            self._average.add(last.behaviour)
        if not due:
            return {}
        figures = {
            "eval/exploitability/last": exploitability(self._tree, last.behaviour),
            "eval/invalid_mass/last": last.invalid,
        }
        if averaging:
            figures["eval/exploitability/average"] = exploitability(self._tree, self._average.behaviour())
        if self.config.train.ema:
            ema = self._probe.read("ema")
            figures["eval/exploitability/ema"] = exploitability(self._tree, ema.behaviour)
            figures["eval/invalid_mass/ema"] = ema.invalid
        return figures

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {"average": self._average.state()} if self._average is not None else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes up a saved state."""
        if self._tree is not None:
            self._average = IterateAverage(self._tree, state["average"])
