"""Serving without training: a checkpoint's policies behind a sampler, for play and evaluation. Imports no verl."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.config import PolicyConfig, RunConfig
from opentinker.errors import CheckpointError, ConfigError, UnknownId
from opentinker.sampling.adapters import AdapterShape
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.network import context
from opentinker.training import state
from opentinker.training.bringup import quiet
from opentinker.training.models import load_model, load_tokenizer
from opentinker.types import PolicyRef

EMA = "ema"


@dataclass(frozen=True, slots=True)
class _Saved:
    """A policy as its folder holds it."""

    name: str
    version: int
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    ema: dict[str, torch.Tensor] | None
    adapter: tuple[AdapterShape, dict[str, torch.Tensor]] | None = None
    """What stands on the model, where that is a base that others may share."""


class _Reader:
    """Reads policies; adapters on one base share it."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self._bases: dict[Path, PreTrainedModel] = {}

    def read(self, name: str, config: PolicyConfig, folder: Path, averaged: bool) -> _Saved:
        version = state.read_state(folder, name, config).version
        adapter = None
        if config.adapter is not None:
            _, model, spec = state.read_base(folder, name, config, self._work_dir, self._bases)
            adapter = spec.shape, state.read_weights(folder, spec)
        try:
            if adapter is None:
                model = load_model(folder / state.WEIGHTS)
            tokenizer = load_tokenizer(folder / state.WEIGHTS)
        except (ConfigError, OSError, ValueError, SafetensorError) as error:
            raise CheckpointError(f"cannot read the weights in {str(folder)!r}: {error}") from error
        ema = state.read_tensors(folder, state.EMA) if averaged else None
        return _Saved(name, version, model, tokenizer, ema, adapter)


class ServingHost:
    """The policies of one checkpoint, served as a rollout needs them.

    Several runs' policies may stand side by side in one sampler, under prefixed names: a batch then waits for all of them.

    Args:
        config: the run's configuration.
        checkpoint: its folder, `checkpoints/step-000120`; read once, it may be deleted afterwards.
        ema: serve averaged weights, too, as the version `ema`; they are also served where a seat names them.
        sampler: who serves them; None: a new one with the run's settings, which `close` ends.
        prefix: put before every policy's name.
        threads: torch's; None leaves them as they are.

    Raises:
        CheckpointError: something is missing or torn.
        ConfigError: averaged weights were asked for, and the run keeps none.
        DuplicateId: the sampler serves a policy of this name.
    """

    def __init__(
        self,
        config: RunConfig,
        checkpoint: str | Path,
        *,
        ema: bool = False,
        sampler: HFSampler | None = None,
        prefix: str = "",
        threads: int | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        averaged = {ref.name for ref in _refs(config) if ref.version == EMA}
        if ema:
            averaged |= {name for name, policy in config.policies.items() if policy.trainable}
            if not config.train.ema:
                raise ConfigError(f"run {config.name!r} keeps no averaged weights (train.ema is 0); name another version")
        self._owns = sampler is None
        folder = Path(checkpoint) / "policies"
        # all is read before anything is served: a folder that goes away meanwhile leaves nothing behind
        with tempfile.TemporaryDirectory() as scratch, quiet():
            reader = _Reader(Path(scratch))
            read = [reader.read(name, policy, folder / name, name in averaged) for name, policy in config.policies.items()]
        if sampler is None:
            runtime = config.runtime
            sampler = HFSampler(deterministic=runtime.deterministic, kv_cache_mib=runtime.kv_cache_mib)
        self.sampler = sampler
        self._tokenizers: dict[str, PreTrainedTokenizerBase] = {}
        self._contexts: dict[str, int | None] = {}
        for saved in read:
            self._serve(prefix + saved.name, saved)

    def _serve(self, name: str, saved: _Saved) -> None:
        if saved.adapter is None:
            self.sampler.add(name, saved.model, saved.tokenizer, version=saved.version)
        else:
            shape, tensors = saved.adapter
            self.sampler.add_adapter(name, saved.model, saved.tokenizer, shape=shape, tensors=tensors, version=saved.version)
        if saved.ema is not None:
            self.sampler.load(name, saved.ema, saved.version, variant=EMA)
        self._tokenizers[name] = saved.tokenizer
        self._contexts[name] = context(saved.model.config.get_text_config())

    def tokenizer(self, policy: str) -> PreTrainedTokenizerBase:
        """A policy's tokenizer, by its prefixed name. Raises `UnknownId`."""
        self._check(policy)
        return self._tokenizers[policy]

    def max_context(self, policy: str) -> int | None:
        """Ids a prompt and its completion may have together; None where the model names no limit. Raises `UnknownId`."""
        self._check(policy)
        return self._contexts[policy]

    def score(
        self,
        ref: PolicyRef,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
    ) -> list[list[float]]:
        """Log-probabilities of given ids, one list per row."""
        return self.sampler.score(ref, prompts, completions, temperature)

    def close(self) -> None:
        """Ends the sampler, where it is this host's own."""
        if self._owns:
            self.sampler.close()

    def _check(self, policy: str) -> None:
        if policy not in self._tokenizers:
            raise UnknownId("policy", policy, self._tokenizers)


def _refs(config: RunConfig) -> list[PolicyRef]:
    return [PolicyRef.parse(seat.policy) for seat in config.agents.values() if seat.policy is not None]
