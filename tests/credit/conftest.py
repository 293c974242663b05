"""Small episodes, with everything a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from opentinker.types import Completion, Episode, EpisodeStatus, FinishReason, Group, Turn


class Build:
    """Turns, episodes and groups by what matters to credit."""

    def turn(self, agent: str = "a", **given: Any) -> Turn:
        logprobs = given.pop("logprobs", (-0.5,))
        policy = given.get("policy", "learner")
        completion = Completion(tuple(range(9, 9 + len(logprobs))), tuple(logprobs), "x", FinishReason.EOS, policy, 3)
        facts: dict[str, Any] = {
            "role": agent, "policy": policy, "version": 3, "index": 0, "attempt": 0, "phase": "", "prompt_ids": (1, 2),
            "completion": completion, "observation": "o", "action": "x", "valid": True, "n_legal": 2, "trainable": True,
            "reward": 0.0, "penalty": 0.0,
        }  # fmt: skip
        return Turn(agent=agent, **{**facts, **given})

    def episode(self, id: str, turns: Sequence[Turn], rewards: Mapping[str, float], **given: Any) -> Episode:
        facts: dict[str, Any] = {
            "env": "game", "seed": 0, "group": 0, "member": 0, "roles": {turn.agent: turn.role for turn in turns},
            "opponents": {}, "messages": (), "final_prompts": {}, "status": EpisodeStatus.TERMINATED,
        }  # fmt: skip
        return Episode(id=id, turns=tuple(turns), rewards=rewards, **{**facts, **given})

    def solo(self, *groups: Sequence[float], task: str = "task") -> list[Group]:
        """Groups of one-turn episodes of agent `a`, by their rewards."""
        return [
            Group(task, tuple(self.episode(f"{g}/{m}", [self.turn()], {"a": reward}) for m, reward in enumerate(rewards)))
            for g, rewards in enumerate(groups)
        ]

    def duels(self, *rewards: tuple[float, float], task: str = "duel") -> list[Group]:
        """Groups of one: one turn each of `p0` and `p1`, by their rewards."""
        return [
            Group(task, (self.episode(f"{g}/0", [self.turn("p0"), self.turn("p1")], {"p0": first, "p1": second}),))
            for g, (first, second) in enumerate(rewards)
        ]


@pytest.fixture(scope="session")
def build() -> Build:
    return Build()
