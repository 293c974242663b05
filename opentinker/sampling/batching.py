"""Which waiting requests go together: reads of bounded size, each prompt once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from opentinker.sampling.base import Request
from opentinker.sampling.policies import Served
from opentinker.types import Completion, FinishReason

T = TypeVar("T")

_WASTE = 2
"""Prompts are read together while padding does not make more than so many times their ids."""
_PASS = 1 << 24
"""Most entries of a forward pass's mask."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no completion."""

    message: str
    cause: BaseException | None = None


Answer = tuple[Request, Completion | Failure]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds the memory of the rows that are drawn together."""

    rows: int
    """Cache rows."""
    tokens: int
    """Cache rows times the positions of the longest, padding included. A single row may exceed it."""


@dataclass(slots=True, eq=False)
class Row:
    """One completion on its way."""

    request: Request
    served: Served
    limit: int
    """Ids to draw at most, >= 1: `params.max_tokens`, or less where the model has no more room."""
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reason: FinishReason | None = None
    """None while it grows, and where the model's output was no distribution."""

    @property
    def width(self) -> int:
        """Positions it may have in the end."""
        return len(self.request.prompt) + self.limit


def screen(request: Request, served: Served) -> Row | Answer:
    """A row for a request, or the answer to one that needs no model: its prompt cannot be read, or leaves no room."""
    prompt = request.prompt
    fault = served.network.fault(prompt)
    if fault is not None:
        return request, Failure(f"policy {served.policy!r}: {fault}")
    room = served.room(prompt)
    limit = request.params.max_tokens if room is None else min(request.params.max_tokens, room)
    if limit == 0:
        return request, Completion((), (), "", FinishReason.CONTEXT, served.policy, served.version)
    return Row(request, served, limit)


def take(waiting: deque[Row], growing: Sequence[Row], limits: Limits, *, joins: bool) -> list[Row]:
    """Takes from the front of the queue what fits beside the rows that grow.

    A request for one id from a prompt that is read anyway needs no cache row of its own. An adapter whose weights are no
    numbers goes alone.

    Args:
        waiting: the queue.
        growing: rows that have been read.
        limits: of both together.
        joins: whether rows may join others at all.
    """
    taken: list[Row] = []
    if not waiting or (growing and not joins):
        return taken
    size, width = len(growing), max((row.width for row in growing), default=0)
    lone = next((row.served for row in growing if _is_sick(row.served)), None)
    prompts: set[tuple[Served, tuple[int, ...]]] = set()
    while waiting:
        row = waiting[0]
        key = row.served, row.request.prompt
        if (size or taken) and (lone is not None or _is_sick(row.served)) and row.served is not lone:
            break
        if row.limit > 1 or key not in prompts:
            wide = max(width, row.width)
            if size and (size + 1 > limits.rows or (size + 1) * wide > limits.tokens):
                break
            size, width = size + 1, wide
            prompts.add(key)
        lone = row.served if _is_sick(row.served) else None
        taken.append(waiting.popleft())
    return taken


def _is_sick(served: Served) -> bool:
    return served.adapter is not None and not served.adapter.finite


def passes(items: Sequence[T], lengths: Callable[[T], tuple[int, int]]) -> Iterator[list[T]]:
    """Cuts what is to be read into forward passes of much the same length, the shortest first.

    Args:
        items: at least one.
        lengths: of an item: ids to read, and ids to look at, the former included.
    """
    part: list[T] = []
    used = most = 0
    for item in sorted(items, key=lambda item: lengths(item)[0]):
        new, seen = lengths(item)
        rows, wide = len(part) + 1, max(most, seen)
        if part and (rows * new > _WASTE * (used + new) or rows * new * wide > _PASS):
            yield part
            part, used, wide = [], 0, seen
        part.append(item)
        used, most = used + new, wide
    yield part


def completion(row: Row) -> Completion | Failure:
    """What became of a row that has ended."""
    served, reason = row.served, row.reason
    if reason is None:
        return Failure(
            f"policy {served.policy!r} at version {served.version} gave logits that are no distribution (NaN or infinite)"
            f" for id {len(row.ids)} of a completion: its weights have diverged or overflowed"
        )
    ids, stop = tuple(row.ids), row.request.params.stop
    text = served.reader.text(ids, stop)
    if stop and reason in (FinishReason.LENGTH, FinishReason.CONTEXT) and served.reader.decode(ids) != text:
        # a stop string that only the whole text shows, e.g. one across ids that decode to nothing on their own
        reason = FinishReason.STOP
    drawn_at = row.request.params.temperature or 1.0
    return Completion(ids, tuple(row.logprobs), text, reason, served.policy, served.version, drawn_at)


def completions(rows: Sequence[Row]) -> list[Answer]:
    """Answers of rows that have ended. One-id replies are few and asked for in masses: equal ones share an object."""
    found: dict[object, Completion | Failure] = {}
    answers: list[Answer] = []
    for row in rows:
        if len(row.ids) != 1 or row.request.params.stop:
            answers.append((row.request, completion(row)))
            continue
        key = row.served, row.ids[0], row.logprobs[0], row.reason, row.request.params.temperature
        if key not in found:
            found[key] = completion(row)
        answers.append((row.request, found[key]))
    return answers
