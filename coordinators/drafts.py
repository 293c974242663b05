"""An episode while it runs: light mutable drafts, frozen once at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentinker.errors import CoordinationError
from opentinker.types import ActionText, AgentID, Attempt, Decision, Seat, Turn, Verdict


class Draft:
    """One attempt whose reward may still grow."""

    __slots__ = ("attempt", "index", "n_legal", "number", "observation", "phase", "player", "reward", "role")

    def __init__(
        self, player: Player, attempt: Attempt, number: int, phase: str, observation: str, n_legal: int | None
    ) -> None:
        self.player = player
        self.role = player.role
        self.index = player.decisions
        self.attempt = attempt
        self.number = number
        self.phase = phase
        self.observation = observation
        self.n_legal = n_legal
        self.reward = 0.0

    def freeze(self, dropped: bool) -> Turn:
        """The turn for the record; a dropped one is kept but never trained on."""
        attempt, seat = self.attempt, self.player.seat
        completion = attempt.completion
        return Turn(
            agent=self.player.agent,
            role=self.role,
            policy=seat.policy,
            version=completion.version if completion is not None else None,
            index=self.index,
            attempt=self.number,
            phase=self.phase,
            prompt_ids=attempt.prompt_ids,
            completion=completion,
            observation=self.observation,
            action=attempt.action,
            valid=attempt.valid,
            n_legal=self.n_legal,
            trainable=seat.trainable and not dropped,
            reward=self.reward,
            penalty=attempt.penalty,
            reply=attempt.reply,
            error=attempt.error,
        )


class Player:
    """One agent at the table."""

    __slots__ = (
        "agent", "busy", "codec", "decisions", "drops_others", "ended", "final", "last", "out", "pending", "refused",
        "reward", "role", "seat", "see", "truncated",
    )  # fmt: skip

    def __init__(self, agent: AgentID, seat: Seat) -> None:
        self.agent = agent
        self.seat = seat
        self.role = seat.role
        self.see: Callable[[Any], None] | None = getattr(seat, "see", None)
        """Takes the raw observation of a question, where the seat wants it."""
        self.codec: ActionText | None = None
        """The environment's actions for this agent, looked up at its first decision."""
        self.decisions = 0
        self.last: Draft | None = None
        """Where the next reward goes."""
        self.reward = 0.0
        self.busy = False
        self.pending: str | None = None
        """What it was asked and has not answered."""
        self.final: str | None = None
        """What it would have seen next, where the world cut it off."""
        self.ended = False
        self.truncated = False
        self.out = ""
        """Why it left early, a value of `OutReason`; empty: it did not."""
        self.drops_others = False
        self.refused = (0, 0)
        """How often it was asked in vain after it had left, and how far the game was then; see `Table.ask`."""

    def unanswered(self, cut: bool) -> str | None:
        """The observation it would have acted on next; `cut`: the whole episode was truncated."""
        if self.final is not None or self.ended:
            return self.final
        return self.pending if cut else None

    def check(self, decision: Decision) -> None:
        """Refuses what no record can hold.

        Raises:
            CoordinationError: no attempt, or an act without an action.
        """
        if not decision.attempts:
            raise CoordinationError(f"the seat of {self.agent} ({self.seat.label}) decided without an attempt")
        if decision.verdict is Verdict.ACT and decision.action is None:
            raise CoordinationError(f"the seat of {self.agent} ({self.seat.label}) decided to act, but on no action (None)")


def final_prompts_of(players: Iterable[Player], cut: bool) -> dict[AgentID, tuple[int, ...]]:
    """The prompts that agents would have acted on next; `cut`: the whole episode was truncated."""
    prompts = {}
    for player in players:
        observation = player.unanswered(cut)
        if observation is not None and (ids := player.seat.final_prompt(observation)):
            prompts[player.agent] = ids
    return prompts
