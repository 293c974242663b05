"""A seat played by a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from opentinker.errors import InvalidAction
from opentinker.types import ActionText, AgentID, Attempt, Decision, Verdict


class FunctionSeat:
    """A `Seat` that asks a function, and remembers what it saw and heard.

    Args:
        agent: whose seat it is.
        answer: from (observation, space, mask) to a reply text or a whole `Decision`, plain or async. A text that is no
            legal action forfeits.
        role: default: the agent's name.
        policy: a policy's name, for turns that should look like a policy's.
        trainable: whether its turns count as samples.
        label: for the record.

    Attributes:
        seen: the observations so far.
        heard: (sender, text) of the messages so far.
    """

    def __init__(
        self,
        agent: AgentID,
        answer: Callable[[str, ActionText, Any], Any],
        *,
        role: str | None = None,
        policy: str | None = None,
        trainable: bool = False,
        label: str = "function",
    ) -> None:
        self.agent = agent
        self.role = role if role is not None else agent
        self.policy = policy
        self.trainable = trainable
        self.label = label
        self.seen: list[str] = []
        self.heard: list[tuple[str, str]] = []
        self._answer = answer

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """What the function says."""
        self.seen.append(observation)
        reply = self._answer(observation, space, mask)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, Decision):
            return reply
        legal = space.legal(mask)
        n_legal = None if legal is None else len(legal)
        try:
            action = space.parse(reply, mask)
        except InvalidAction as error:
            attempt = Attempt((), None, reply, None, False, str(error))
            return Decision((attempt,), None, Verdict.FORFEIT, error.reason, n_legal=n_legal)
        return Decision((Attempt((), None, reply, action, True),), action, n_legal=n_legal)

    def tell(self, sender: str, text: str) -> None:
        """Remembers a message."""
        self.heard.append((sender, text))

    def final_prompt(self, observation: str) -> tuple[int, ...]:
        """The observation's characters as ids, for seats with a policy."""
        return tuple(map(ord, observation)) if self.policy is not None else ()
