"""Samplers without a model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from opentinker.errors import SamplerError
from opentinker.types import Completion, FinishReason, PolicyRef, SampleKey, SamplingParams


class CountingPace:
    """A `Pace` that only counts.

    Attributes:
        count: coroutines entered and not left.
        highest: the largest count so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self.highest = 0

    def enter(self, n: int = 1) -> None:
        """N more coroutines may ask."""
        self.count += n
        self.highest = max(self.highest, self.count)

    def leave(self, n: int = 1) -> None:
        """N fewer.

        Raises:
            ValueError: more left than entered.
        """
        if n > self.count:
            raise ValueError(f"{n} left, but only {self.count} had entered")
        self.count -= n


@dataclass(frozen=True, slots=True)
class Request:
    """What a sampler was asked."""

    ref: PolicyRef
    prompt_ids: tuple[int, ...]
    prompt: str
    """The ids as text."""
    params: SamplingParams
    key: SampleKey


Reply: TypeAlias = "str | Completion | BaseException"
"""A text to answer with, a whole completion, or an error to raise."""


class ScriptedSampler(CountingPace):
    """A `Sampler` with given replies; it is a `Pace` as well, one that only counts.

    A text reply is encoded, ended by the end-of-text id where `max_tokens` leaves room, and cut where it does not. A stop
    string ends it earlier. Without a tokenizer a character is a token, numbered by `ord`, and 0 is the end of text.

    Args:
        replies: the replies in the order of the requests, or a function (plain or async) from a `Request` to a reply.
        tokenizer: a Hugging Face tokenizer.
        version: what completions say of the weights.
        logprob: of every sampled id.

    Attributes:
        requests: every request so far.
    """

    def __init__(
        self,
        replies: Iterable[Reply] | Callable[[Request], Reply | Awaitable[Reply]],
        *,
        tokenizer: Any = None,
        version: int = 0,
        logprob: float = -1.0,
    ) -> None:
        super().__init__()
        self._answer = replies if callable(replies) else _in_order(iter(replies))
        self._tokenizer = tokenizer
        self._version = version
        self._logprob = logprob
        self.requests: list[Request] = []

    async def sample(
        self, ref: PolicyRef, prompt_ids: Sequence[int], params: SamplingParams, *, key: SampleKey
    ) -> Completion:
        """The next reply.

        Raises:
            SamplerError: the replies are used up.
        """
        request = Request(ref, tuple(prompt_ids), self.decode(prompt_ids), params, key)
        self.requests.append(request)
        reply = self._answer(request)
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, BaseException):
            raise reply
        return reply if isinstance(reply, Completion) else self.complete(ref, reply, params)

    def complete(self, ref: PolicyRef, text: str, params: SamplingParams) -> Completion:
        """A text as the completion that a model would have given."""
        reason = FinishReason.EOS
        shown = sampled = text
        cuts = [(text.find(stop), stop) for stop in params.stop if stop in text]
        if cuts:
            at, stop = min(cuts)
            shown, sampled, reason = text[:at], text[: at + len(stop)], FinishReason.STOP
        ids = self.encode(sampled)
        if reason is FinishReason.EOS:
            ids = (*ids, self.eos_id)
        if len(ids) > params.max_tokens:
            ids, reason = ids[: params.max_tokens], FinishReason.LENGTH
            shown = self.decode(ids)
        logprobs = (self._logprob,) * len(ids)
        return Completion(ids, logprobs, shown, reason, ref.name, self._version, params.temperature or 1.0)

    @property
    def eos_id(self) -> int:
        """The end of text."""
        return 0 if self._tokenizer is None else int(self._tokenizer.eos_token_id)

    def encode(self, text: str) -> tuple[int, ...]:
        """Text to ids."""
        if self._tokenizer is None:
            return tuple(map(ord, text))
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Ids to text."""
        return "".join(map(chr, ids)) if self._tokenizer is None else str(self._tokenizer.decode(ids))


def _in_order(replies: Iterator[Reply]) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        for reply in replies:
            return reply
        raise SamplerError(f"no scripted reply is left for the request {request.key} with the prompt {request.prompt!r}")

    return answer
