"""A human at the table, asked through two functions: one that shows a text and one that reads a line."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

from opentinker.errors import InvalidAction, SeatOut
from opentinker.types import ActionText, AgentID, Attempt, Decision, OutReason, Seat

HELP = """Write an action as the game reads it, or
  :seen         what every agent has seen so far
  :seen AGENT   what one of them has seen
  :help         this
  :quit         leave; the game ends here and is kept"""

_SHOWN_LEGAL = 40
_SHOWN_REPLY = 200


class Left(Exception):
    """The human went away: the input ended, or a signal came."""


class HumanSeat:
    """A human's seat, for one episode. It works without tokens and yields no samples.

    Whatever is no legal action is explained and asked again; such replies stand on the record as attempts. Whoever leaves
    ends the game as truncated.

    Args:
        agent: whom the human plays.
        show: puts a text before the human.
        read: the next line without its end; raises `Left` where there is none.
        seen: what an agent, or all (None), has seen so far, as text.
        role: default: the agent's name.
    """

    policy: str | None = None
    trainable = False
    label = "human"

    def __init__(
        self,
        agent: AgentID,
        *,
        show: Callable[[str], None],
        read: Callable[[], str],
        seen: Callable[[AgentID | None], str],
        role: str | None = None,
    ) -> None:
        self.agent = agent
        self.role = agent if role is None else role
        self._show, self._read, self._seen = show, read, seen
        self._inbox: list[tuple[str, str]] = []

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """See `Seat.decide`. Blocks while the human thinks; raises `SeatOut` when the human leaves."""
        legal = space.legal(mask)
        self._show(self._question(observation, space, mask, legal))
        attempts: list[Attempt] = []
        while True:
            reply = self._reply()
            try:
                action = space.parse(reply, mask)
            except InvalidAction as error:
                attempts.append(Attempt((), None, reply, None, False, error.reason))
                self._show(f"{excerpt(reply)!r} is no legal action: {excerpt(error.reason)}. Again (or :help).")
                continue
            attempts.append(Attempt((), None, reply, action, True))
            return Decision(tuple(attempts), action, n_legal=None if legal is None else len(legal))

    def tell(self, sender: str, text: str) -> None:
        """See `Seat.tell`."""
        self._inbox.append((sender, text))

    def final_prompt(self, observation: str) -> tuple[int, ...]:
        """Empty: there are no tokens here."""
        return ()

    def _question(self, observation: str, space: ActionText, mask: Any, legal: tuple[Any, ...] | None) -> str:
        lines = [f"{sender}: {text}" if sender else text for sender, text in self._inbox]
        self._inbox.clear()
        lines += [line for line in (observation, space.describe(mask)) if line]
        if legal is not None:
            shown = [space.render_action(action) for action in legal[:_SHOWN_LEGAL]]
            more = [f"... ({len(legal)} in all)"] if len(legal) > _SHOWN_LEGAL else []
            lines.append(f"legal: {', '.join([*shown, *more])}")
        name = self.agent if self.role == self.agent else f"{self.agent} ({self.role})"
        return printable(f"--- {name} ---\n" + "\n".join(lines))

    def _reply(self) -> str:
        """The next line that is no command."""
        while True:
            try:
                reply = self._read()
            except Left as error:
                raise SeatOut(self.agent, OutReason.TRUNCATE, "the human left") from error
            command, _, rest = reply.strip().partition(" ")
            if command == ":quit":
                raise SeatOut(self.agent, OutReason.TRUNCATE, "the human left")
            if command == ":help":
                self._show(HELP)
            elif command == ":seen":
                self._show(self._seen(rest.strip() or None))
            elif command.startswith(":") and command[1:].isalpha():
                self._show(f"{excerpt(command)} is no command.\n{HELP}")
            else:
                return reply


class WatchedSeat:
    """Another's seat that keeps what it saw: the prompts as text where it works with tokens, else the observations.

    Args:
        seat: who decides.
        decode: from prompt ids to text; None for seats without tokens.
    """

    def __init__(self, seat: Seat, decode: Callable[[tuple[int, ...]], str] | None) -> None:
        self._seat, self._decode = seat, decode
        self.agent, self.policy, self.trainable, self.label = seat.agent, seat.policy, seat.trainable, seat.label
        self.seen: list[str] = []
        """In order. A prompt that only goes on where the one before ended takes its place."""

    @property
    def role(self) -> str:
        """The seat's."""
        return self._seat.role

    @role.setter
    def role(self, role: str) -> None:
        self._seat.role = role

    async def decide(self, observation: str, space: ActionText, mask: Any = None) -> Decision:
        """See `Seat.decide`."""
        if self._decode is None:
            self.seen.append(observation)
            return await self._seat.decide(observation, space, mask)
        decision = await self._seat.decide(observation, space, mask)
        for attempt in decision.attempts:
            prompt = self._decode(attempt.prompt_ids)
            if self.seen and prompt.startswith(self.seen[-1]):
                self.seen.pop()
            self.seen.append(prompt)
        return decision

    def see(self, observation: Any) -> None:
        """See `Seat`."""
        see = getattr(self._seat, "see", None)
        if see is not None:
            see(observation)

    def tell(self, sender: str, text: str) -> None:
        """See `Seat.tell`."""
        self._seat.tell(sender, text)

    def final_prompt(self, observation: str) -> tuple[int, ...]:
        """See `Seat.final_prompt`."""
        return self._seat.final_prompt(observation)


def printable(text: str) -> str:
    r"""A text that leaves a terminal as it is: control and format characters, line ends and tabs aside, become `\x1b`."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs") else _escaped(char) for char in text
    )


def excerpt(text: str) -> str:
    """The beginning of what somebody wrote, printable; all of it where it is no longer than a few lines."""
    more = f"... ({len(text)} characters)" if len(text) > _SHOWN_REPLY else ""
    return printable(text[:_SHOWN_REPLY]) + more


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
