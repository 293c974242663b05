"""What a policy's seat remembers."""

from __future__ import annotations

from opentinker.encoding import TokenIds
from opentinker.render import Exchange, Renderer
from opentinker.types import Completion


class Dialogue:
    """What one agent heard and said, as id segments: a prompt grows by segments, a window drops whole ones.

    Decisions are opened and closed. In between, exchanges are added (more than one where an invalid reply is asked
    again); what was added to a decision that never closed, because it was cancelled, is forgotten when the next one opens.

    Args:
        renderer: writes the segments.
        system: the system prompt.
        depth: past decisions that prompts still show; None: all.
    """

    def __init__(self, renderer: Renderer, system: str | None, depth: int | None) -> None:
        self._renderer = renderer
        self._system = system
        self._depth = depth
        self._exchanges: list[Exchange] = []
        # The first is the prompt of the first exchange, each other what leads from one exchange to the next.
        self._segments: list[TokenIds] = []
        self._latest: tuple[str, TokenIds] = ("", ())
        # Where each past decision starts among the exchanges, then where the last one ends.
        self._bounds: list[int] = [0]

    def open(self) -> None:
        """Starts a decision; forgets one that was never closed."""
        end = self._bounds[-1]
        if len(self._exchanges) > end:
            del self._exchanges[end:], self._segments[end:]

    def prompt(self, user: str) -> TokenIds:
        """The prompt with `user` as its last message."""
        renderer = self._renderer
        if not self._exchanges:
            segment = renderer.start(self._system, user)
            self._latest = user, segment
            return segment
        if not renderer.appends:
            self._latest = user, ()
            return renderer.dialogue(self._system, self._exchanges, user)
        completion = self._exchanges[-1][1]
        segment = renderer.keep(completion) + renderer.extend(completion, user)
        self._latest = user, segment
        ids: list[int] = []
        for earlier in self._segments:
            ids += earlier
        return (*ids, *segment)

    def add(self, completion: Completion) -> None:
        """Puts the reply to the latest prompt behind the exchanges so far."""
        user, segment = self._latest
        self._exchanges.append((user, completion))
        self._segments.append(segment)

    def close(self) -> None:
        """Ends the decision: its exchanges are the past now, and what is too long ago is forgotten."""
        if self._depth == 0:
            self._exchanges.clear()
            self._segments.clear()
            return
        self._bounds.append(len(self._exchanges))
        if self._depth is not None and len(self._bounds) - 1 > self._depth:
            self._forget(self._bounds[-1 - self._depth :])

    def _forget(self, bounds: list[int]) -> None:
        first = bounds[0]
        self._bounds = [bound - first for bound in bounds]
        del self._exchanges[:first], self._segments[:first]
        if self._segments:
            self._segments[0] = self._renderer.start(self._system, self._exchanges[0][0])
