"""The embedded sampler: Hugging Face models in this process, all waiting requests drawn together."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.errors import ConfigError, SamplerError, UnknownId
from opentinker.sampling.base import Request, WaitingRoom, check_params, request_seed
from opentinker.sampling.batching import Answer, Failure, Limits, draw_batch, plan
from opentinker.sampling.policies import LATEST, Policies, make_served
from opentinker.sampling.scoring import score_rows
from opentinker.types import Completion, PolicyRef, SampleKey, SamplingParams

log = logging.getLogger(__name__)


class HFSampler:
    """Draws completions from causal models held in this process; a `Sampler` and the `Pace` it is driven by.

    Deterministic, it waits until every coroutine that entered has asked, sorts the requests by key and draws on the
    event loop's thread: equal runs give equal bits, in whatever order the requests came. Otherwise it draws whatever
    waits at the next turn of the loop, in a thread of its own, so that the loop goes on meanwhile; rounding then depends
    on timing.

    Coroutines enter before they start and leave when they end; one that waits for another must not count meanwhile.

    Args:
        deterministic: as above.
        max_batch: most rows in one forward pass.
        max_batch_tokens: most rows times positions of one batch's cache, padding included.
    """

    def __init__(self, *, deterministic: bool = True, max_batch: int = 256, max_batch_tokens: int = 1 << 18) -> None:
        if max_batch < 1 or max_batch_tokens < 1:
            raise ConfigError(f"a batch needs room: max_batch {max_batch}, max_batch_tokens {max_batch_tokens}")
        self.deterministic = deterministic
        self._limits = Limits(max_batch, max_batch_tokens)
        self._policies = Policies()
        self._room = WaitingRoom(self._draw_here if deterministic else self._draw_aside, in_step=deterministic)
        self._weights = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False

    def add(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        version: int = 0,
        eos_ids: Iterable[int] | None = None,
        context: int | None = None,
    ) -> None:
        """Serves a model as `name@latest`. The sampler keeps the object itself: nobody else may train it.

        Args:
            name: the policy.
            model: a causal language model on its device.
            tokenizer: its own.
            version: updates the weights have had.
            eos_ids: ids that end a completion; default: those of tokenizer and generation configuration.
            context: positions for prompt and completion; default: the model's.

        Raises:
            DuplicateId: the name is taken.
        """
        self._policies.add(make_served(name, model, tokenizer, version, eos_ids, context))

    def load(self, name: str, state_dict: Mapping[str, torch.Tensor], version: int, variant: str = LATEST) -> None:
        """Copies new weights in; waits for a batch that is being drawn.

        Args:
            name: a policy that was added.
            state_dict: all of its model's weights by name (of tied ones, one is enough), on any device, of any float type.
            version: updates they have had.
            variant: `latest`, or another name that references may use, such as `ema`: it gets a model of its own.

        Raises:
            UnknownId: no such policy.
            ConfigError: names or shapes do not fit; nothing was changed.
        """
        with self._weights:
            self._policies.load(name, state_dict, version, variant)

    def version(self, ref: PolicyRef) -> int:
        """Updates the weights have had. Raises `UnknownId`."""
        return self._policies.resolve(ref).version

    def enter(self, n: int = 1) -> None:
        """Counts n more coroutines that may ask. Call it before they start, for all at once."""
        self._room.enter(n)

    def leave(self, n: int = 1) -> None:
        """Counts n fewer; a batch that waited for them alone goes."""
        self._room.leave(n)

    async def sample(
        self, ref: PolicyRef, prompt_ids: Sequence[int], params: SamplingParams, *, key: SampleKey
    ) -> Completion:
        """One completion.

        Args:
            ref: which weights.
            prompt_ids: at least one id.
            params: `temperature=0` is greedy; `top_p` and `top_k` limit what is drawn, never what log-probabilities count.
            key: the request's place in its batch.

        Raises:
            UnknownId: no such policy, or not at this version.
            ConfigError: settings that cannot be drawn from.
            SamplerError: the request failed for good; the message says why, and `__cause__` is the model's error.
        """
        if self._closed:
            raise SamplerError("the sampler is closed")
        self._policies.resolve(ref)
        check_params(params)
        future: asyncio.Future[Completion] = self._room.loop().create_future()
        request = Request(ref, tuple(prompt_ids), params, request_seed(params), key, future)
        self._room.put(request)
        return await future

    def score(
        self,
        ref: PolicyRef,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
    ) -> list[list[float]]:
        """Log-probabilities of given completions, one list a row, one number an id, over the full vocabulary.

        Raises:
            UnknownId: no such policy, or not at this version.
            ConfigError: rows that do not pair up, have no prompt, hold unknown ids or exceed the context; a temperature
                that is not above 0.
        """
        with self._weights:
            return score_rows(self._policies.resolve(ref).network, prompts, completions, temperature, self._limits)

    def close(self) -> None:
        """Fails what waits and takes no more."""
        self._closed = True
        for request in self._room.empty():
            request.fail("the sampler was closed while this request waited")
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _draw_here(self, requests: list[Request]) -> None:
        _deliver(self._answer(requests))

    def _draw_aside(self, requests: list[Request]) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="opentinker-sampler")
        self._room.hold()
        working = self._room.loop().run_in_executor(self._thread, self._answer, requests)
        working.add_done_callback(functools.partial(self._drawn_aside, requests))

    def _drawn_aside(self, requests: list[Request], working: asyncio.Future[list[Answer]]) -> None:
        if working.cancelled():
            for request in requests:
                request.fail("the sampler was closed while this request waited")
        else:
            _deliver(working.result())
        self._room.release()

    def _answer(self, requests: list[Request]) -> list[Answer]:
        """Draws everything, policy by policy; whatever goes wrong becomes an answer, so that nobody waits for ever."""
        try:
            requests.sort(key=Request.order)
            requests.sort(key=lambda request: (request.ref.name, request.ref.version))
            answers: list[Answer] = []
            for ref, group in groupby(requests, key=lambda request: request.ref):
                with self._weights:
                    answers.extend(self._answer_policy(ref, list(group)))
            return answers
        except Exception as error:  # e.g. keys or ids of types that do not compare
            log.exception("cannot make batches of %d requests", len(requests))
            failure = Failure(f"cannot make batches of {len(requests)} requests: {type(error).__name__}: {error}", error)
            return [(request, failure) for request in requests]

    def _answer_policy(self, ref: PolicyRef, requests: list[Request]) -> list[Answer]:
        try:
            served = self._policies.resolve(ref)
        except UnknownId as error:  # new weights were loaded since the request came
            return [(request, Failure(str(error), error)) for request in requests]
        batches, answers = plan(requests, served, self._limits)
        for batch in batches:
            try:
                answers.extend(draw_batch(batch, served))
            except Exception as error:  # whatever the model raises: it belongs to those who wait for it
                n = len(batch.requests)
                log.exception("policy %s failed on a batch of %d requests", ref, n)
                message = f"policy {str(ref)!r} failed on a batch of {n} requests: {type(error).__name__}: {error}"
                answers.extend((request, Failure(message, error)) for request in batch.requests)
        return answers


def _deliver(answers: list[Answer]) -> None:
    for request, found in answers:
        if isinstance(found, Completion):
            request.finish(found)
        else:
            request.fail(found.message, found.cause)
