"""From waiting requests to batches of bounded size and back to completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opentinker.sampling.base import Request
from opentinker.sampling.kvloop import Draft, Row, generate
from opentinker.sampling.policies import Served
from opentinker.types import Completion, FinishReason

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no completion."""

    message: str
    cause: BaseException | None = None


Answer = tuple[Request, Completion | Failure]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds the memory of a batch."""

    rows: int
    """Cache rows."""
    tokens: int
    """Cache rows times the positions of the longest, padding included. A single row may exceed it."""


@dataclass(slots=True)
class Batch:
    """Requests drawn together."""

    requests: list[Request] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    """One for each request."""
    prompts: list[Prompt] = field(default_factory=list)
    """Distinct, in order of first use."""
    size: int = 0
    """Cache rows: a request for one id from a prompt that the batch already reads needs none of its own."""
    width: int = 0
    """Most positions of a row."""


@dataclass(slots=True)
class _Entry:
    """What is known of a distinct prompt."""

    length: int
    room: int | None
    fault: str | None
    batch: Batch | None = None
    """The last one to read it."""
    place: int = 0
    """In that batch's prompts."""


def plan(requests: Sequence[Request], served: Served, limits: Limits) -> tuple[list[Batch], list[Answer]]:
    """Cuts requests, in their order, into batches within the limits.

    Returns:
        the batches, and the answers to requests that need no model: prompts it cannot read or that leave no room.
    """
    entries: dict[Prompt, _Entry] = {}
    answers: list[Answer] = []
    batch = Batch()
    found = [batch]
    for request in requests:
        entry = entries.get(request.prompt)
        if entry is None:
            network = served.network
            prompt = request.prompt
            entry = entries[prompt] = _Entry(len(prompt), network.room(prompt), network.fault(prompt))
        limit = request.params.max_tokens if entry.room is None else min(request.params.max_tokens, entry.room)
        if entry.fault is not None:
            answers.append((request, Failure(f"policy {served.policy!r}: {entry.fault}")))
        elif limit == 0:
            answers.append((request, Completion((), (), "", FinishReason.CONTEXT, served.policy, served.version)))
        else:
            if entry.batch is not batch or limit > 1:
                batch = _fit(found, entry, entry.length + limit, limits)
                if entry.batch is not batch:
                    entry.batch, entry.place = batch, len(batch.prompts)
                    batch.prompts.append(request.prompt)
            batch.requests.append(request)
            batch.rows.append(Row(entry.place, limit, request.params, request.seed))
    return [batch for batch in found if batch.rows], answers


def _fit(found: list[Batch], entry: _Entry, wide: int, limits: Limits) -> Batch:
    """The batch that takes one more row: the last, or a new one where it is full."""
    batch = found[-1]
    size, width = batch.size + 1, max(batch.width, wide)
    if batch.size and (size > limits.rows or size * width > limits.tokens):
        batch = Batch()
        found.append(batch)
        size, width = 1, wide
    batch.size, batch.width = size, width
    return batch


def draw_batch(batch: Batch, served: Served) -> list[Answer]:
    """Draws one batch. Where the model's output is no distribution, that request fails alone."""
    drafts = generate(served.network, served.reader, batch.prompts, batch.rows)
    completions: dict[object, Completion | Failure] = {}
    answers: list[Answer] = []
    for request, draft in zip(batch.requests, drafts, strict=True):
        if len(draft.ids) != 1 or request.params.stop:
            answers.append((request, _completion(served, request, draft)))
            continue
        # one-id replies are few and asked for in masses: equal ones share an object
        key = (draft.ids[0], draft.logprobs[0], draft.reason)
        found = completions.get(key)
        if found is None:
            found = completions[key] = _completion(served, request, draft)
        answers.append((request, found))
    return answers


def _completion(served: Served, request: Request, draft: Draft) -> Completion | Failure:
    reason = draft.reason
    if reason is None:
        return Failure(
            f"policy {served.policy!r} at version {served.version} gave logits that are no distribution (NaN or infinite)"
            f" for id {len(draft.ids)} of a completion: its weights have diverged or overflowed"
        )
    ids, stop = tuple(draft.ids), request.params.stop
    text = served.reader.text(ids, stop)
    if stop and reason in (FinishReason.LENGTH, FinishReason.CONTEXT) and served.reader.decode(ids) != text:
        # a stop string that only the whole text shows, e.g. one across ids that decode to nothing on their own
        reason = FinishReason.STOP
    return Completion(ids, tuple(draft.logprobs), text, reason, served.policy, served.version)
