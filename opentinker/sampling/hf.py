"""The embedded sampler: Hugging Face models in this process, all waiting requests drawn together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.errors import ConfigError, SamplerError
from opentinker.sampling.adapters import AdapterShape
from opentinker.sampling.base import Request, WaitingRoom, check_key, check_params, prompt_of, request_seed
from opentinker.sampling.batching import Answer, Failure, Limits
from opentinker.sampling.policies import LATEST, Policies, make_adapted, make_served
from opentinker.sampling.pool import Pool, deliver
from opentinker.sampling.prefixes import Prefixes
from opentinker.sampling.scoring import score_rows
from opentinker.sampling.worker import CLOSED, Worker
from opentinker.types import Completion, PolicyRef, SampleKey, SamplingParams

log = logging.getLogger(__name__)


class HFSampler:
    """Draws completions from causal models held in this process; a `Sampler` and the `Pace` it is driven by.

    Requests of one model grow together, adapters on it included; each leaves when it is done. What was read is remembered:
    a prompt that goes on from an earlier one, or begins like it, is read from there.

    Deterministic, it waits until every coroutine that entered has asked, sorts the requests by key and draws them all on the
    event loop's thread: equal runs give equal bits, in whatever order the requests came. When all have left, it forgets what
    it read, so that a run that is resumed there goes on alike. Otherwise it draws in a thread of its own: a request joins
    those that are being drawn at their next step and is answered as soon as it is done; rounding then depends on timing.

    Coroutines enter before they start and leave when they end; one that waits for another must not count meanwhile.

    Args:
        deterministic: as above.
        max_batch: most rows in one forward pass.
        max_batch_tokens: most rows times positions that grow together, padding included.
        kv_cache_mib: most MiB of keys and values that are remembered; 0: none.
    """

    def __init__(
        self,
        *,
        deterministic: bool = True,
        max_batch: int = 256,
        max_batch_tokens: int = 1 << 18,
        kv_cache_mib: float = 512,
    ) -> None:
        if max_batch < 1 or max_batch_tokens < 1:
            raise ConfigError(f"a batch needs room: max_batch {max_batch}, max_batch_tokens {max_batch_tokens}")
        if kv_cache_mib < 0:
            raise ConfigError(f"kv_cache_mib must be at least 0 (0: nothing is remembered), given: {kv_cache_mib}")
        self.deterministic = deterministic
        self._limits = Limits(max_batch, max_batch_tokens)
        self._policies = Policies()
        self._prefixes = Prefixes(int(kv_cache_mib * (1 << 20)))
        self._pool = Pool(self._policies, self._limits, self._prefixes)
        self._worker = Worker(self._pool)
        if deterministic:
            self._room = WaitingRoom(self._draw_here, in_step=True, deserted=self._prefixes.clear)
        else:
            self._room = WaitingRoom(self._worker.put, in_step=False)
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
            context: positions for prompt and completion; default: the model's. Of models with `longrope` it is never more
                than `original_max_position_embeddings`, with `dynamic` than `max_position_embeddings`: a row that grew past
                it would be read otherwise from its beginning on, and its log-probabilities be those of no model.

        Raises:
            DuplicateId: the name is taken.
            ConfigError: the model keeps more than keys and values, as state-space models do, or is another policy's.
        """
        self._policies.add(make_served(name, model, tokenizer, version, eos_ids, context))

    def add_adapter(
        self,
        name: str,
        base: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        shape: AdapterShape,
        tensors: Mapping[str, torch.Tensor],
        version: int = 0,
        eos_ids: Iterable[int] | None = None,
        context: int | None = None,
    ) -> None:
        """Serves an adapter on a base as `name@latest`. Policies that name the same base object share it.

        Args:
            name: the policy.
            base: a causal language model on its device. It gets hooks; its parameters are never written.
            tokenizer: its own.
            shape: of the adapter.
            tensors: by PEFT's names, `base_model.model.<module>.lora_A.weight` and `.lora_B.weight`; copied.
            version: updates the weights have had.
            eos_ids: as for `add`.
            context: as for `add`.

        Raises:
            DuplicateId: the name is taken.
            ConfigError: targets, names or shapes do not fit the base, or it is another policy's own model or of a kind that
                cannot be served.
        """
        with self._weights(fence=False):
            network = self._policies.network(base)
            self._policies.add(make_adapted(name, network, tokenizer, shape, tensors, version, eos_ids, context))

    def load(self, name: str, state_dict: Mapping[str, torch.Tensor], version: int, variant: str = LATEST) -> None:
        """Copies new weights in; waits for what is being drawn.

        Args:
            name: a policy that was added.
            state_dict: all of its model's weights by name (of tied ones, one is enough), on any device, of any float type;
                of an adapter policy, the adapter's.
            version: updates they have had.
            variant: `latest`, or another name that references may use, such as `ema`: it gets weights of its own.

        Raises:
            UnknownId: no such policy.
            ConfigError: names or shapes do not fit; nothing was changed.
        """
        with self._weights(fence=True):
            for replaced in self._policies.load(name, state_dict, version, variant):
                self._prefixes.drop(replaced)

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
            ConfigError: settings that cannot be drawn from, or a prompt that is no sequence of ints.
            SamplerError: the request failed for good; the message says why, and `__cause__` is the model's error.
        """
        if self._closed:
            raise SamplerError("the sampler is closed")
        self._policies.resolve(ref)
        check_params(params)
        prompt = prompt_of(prompt_ids)
        check_key(key)
        future: asyncio.Future[Completion] = self._room.loop().create_future()
        request = Request(ref, prompt, params, request_seed(params), key, future)
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
        with self._weights(fence=False):
            return score_rows(self._policies.resolve(ref), prompts, completions, temperature, self._limits)

    def close(self) -> None:
        """Fails what waits and takes no more."""
        self._closed = True
        for request in self._room.empty():
            request.fail(CLOSED)
        self._worker.close()

    def _draw_here(self, requests: list[Request]) -> None:
        answers: list[Answer] = []
        with self._weights(fence=False):
            try:
                answers += self._pool.put(requests)
                while self._pool.busy:
                    answers += self._pool.work()
            except Exception as error:  # a fault of ours: nobody may wait for ever
                log.exception("the sampler failed")
                message = f"the sampler failed: {type(error).__name__}: {error}"
                answers += [(request, Failure(message, error)) for request in requests]
            finally:
                answers += self._pool.stop("the sampler was interrupted")
        deliver(answers)

    def _weights(self, *, fence: bool) -> AbstractContextManager[None]:
        """Nothing is drawn inside; with a fence, nothing is begun and not finished either, as ever in step."""
        return self._worker.aside(fence=fence and not self.deterministic)
