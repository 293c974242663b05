"""The local host: several policies in this process, trained by verl on the CPU, sampled by an embedded sampler."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.config import PolicyConfig, TrainConfig
from opentinker.errors import CheckpointError, TrainingFailed, UnknownId
from opentinker.samples import merge_identical
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.network import context
from opentinker.seeding import derive, generator
from opentinker.training import state
from opentinker.training.adapters import AdapterSpec, describe, initial_tensors
from opentinker.training.batch import Rows, make_rows, split_mini
from opentinker.training.bringup import bring_up, quiet
from opentinker.training.losses import check_loss, merging_is_exact
from opentinker.training.models import TINY, load_model, load_tokenizer, model_folder, no_dropout, tiny_seed
from opentinker.types import Completion, PolicyRef, Sample, SampleKey, SamplingParams, UpdateResult

if TYPE_CHECKING:
    from opentinker.training.lora import AdapterWorker, Bases
    from opentinker.training.worker import LossFn, PolicyWorker

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Policy:
    config: PolicyConfig
    model: PreTrainedModel
    """The sampler's object; here for its configuration and layout."""
    tokenizer: PreTrainedTokenizerBase
    worker: PolicyWorker | AdapterWorker | None
    """None for a frozen policy: nothing could change it."""
    adapter: AdapterSpec | None = None
    """None where the weights are the model's own."""
    frozen: dict[str, torch.Tensor] = field(default_factory=dict)
    """The tensors of an adapter without a worker."""
    version: int = 0
    ema: dict[str, torch.Tensor] | None = None

    @property
    def base(self) -> str:
        """Digest of the base under an adapter; empty without one."""
        return self.adapter.base if self.adapter else ""


class LocalHost:
    """A `PolicyHost` in one process: verl `TrainingWorker`s for the trainable policies, and a sampler that serves all.

    A policy without an adapter has a worker of its own. LoRA policies of one base, rank, alpha and targets share one, and
    the sampler serves them from the very base that it trains on.

    Args:
        policies: name to configuration.
        train: what reaches verl's loss and optimiser; learning rates come with each update.
        seed: the run's.
        deterministic: of the sampler.
        threads: torch's; None leaves them as they are.
        work_dir: where `tiny` models are written before they are loaded; None: a folder that is removed again.
        kv_cache_mib: MiB of keys and values that the sampler remembers.

    Raises:
        ConfigError: a model that does not exist, an adapter that does not fit its model, a loss that cannot be trained,
            another platform or verl.
        UnknownId: no such loss.
    """

    def __init__(
        self,
        policies: Mapping[str, PolicyConfig],
        train: TrainConfig,
        *,
        seed: int = 0,
        deterministic: bool = True,
        threads: int | None = None,
        work_dir: str | Path | None = None,
        kv_cache_mib: int = 512,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        bring_up()
        check_loss(train.loss)
        self.train = train
        self.seed = seed
        self.sampler = HFSampler(deterministic=deterministic, kv_cache_mib=kv_cache_mib)
        self._policies: dict[str, _Policy] = {}
        from opentinker.training.lora import Bases  # verl must not be imported before it was brought up

        bases = Bases(train)
        with contextlib.ExitStack() as stack:
            folder = Path(work_dir) if work_dir else Path(stack.enter_context(tempfile.TemporaryDirectory()))
            with quiet():
                folders = {name: model_folder(name, policy, seed, folder) for name, policy in policies.items()}
            for name, policy in policies.items():
                opened = self._open_full if policy.adapter is None else functools.partial(self._open_adapter, bases)
                self._policies[name] = opened(name, policy, folders[name])
                self._start_average(name)

    def _open_full(self, name: str, config: PolicyConfig, folder: Path) -> _Policy:
        from opentinker.training.worker import PolicyWorker

        with quiet():
            model, tokenizer = load_model(folder), load_tokenizer(folder)
        worker = PolicyWorker(str(folder), self.train, no_dropout(folder)) if config.trainable else None
        self.sampler.add(name, model, tokenizer, version=0)
        return _Policy(config, model, tokenizer, worker)

    def _open_adapter(self, bases: Bases, name: str, config: PolicyConfig, folder: Path) -> _Policy:
        from opentinker.training.lora import AdapterWorker

        base = bases.get(folder)
        adapter = describe(name, config, base.model, base.digest)
        shape = adapter.shape
        tensors = initial_tensors(shape, base.model, derive(self.seed, "adapter", name))
        worker = AdapterWorker(base.engine(shape), tensors) if config.trainable else None
        self.sampler.add_adapter(name, base.model, base.tokenizer, shape=shape, tensors=tensors, version=0)
        return _Policy(config, base.model, base.tokenizer, worker, adapter, {} if worker else tensors)

    def _start_average(self, name: str) -> None:
        """Of an adapter the two matrices are averaged, each on its own, and not their product."""
        policy = self._policies[name]
        if policy.worker and self.train.ema:
            policy.ema = {key: value.detach().clone() for key, value in policy.worker.weights().items()}
            self.sampler.load(name, policy.ema, 0, variant="ema")

    def tokenizer(self, policy: str) -> PreTrainedTokenizerBase:
        """The policy's tokenizer."""
        return self._get(policy).tokenizer

    def version(self, policy: str) -> int:
        """The number of updates the policy's weights have had; supervised steps do not count."""
        return self._get(policy).version

    def max_context(self, policy: str) -> int | None:
        """Ids a prompt and its completion may have together; None where the model names no limit."""
        return context(self._get(policy).model.config.get_text_config())

    async def sample(
        self, ref: PolicyRef, prompt_ids: Sequence[int], params: SamplingParams, *, key: SampleKey
    ) -> Completion:
        """One completion; see `HFSampler.sample`."""
        return await self.sampler.sample(ref, prompt_ids, params, key=key)

    def score(
        self,
        ref: PolicyRef,
        prompts: Sequence[Sequence[int]],
        completions: Sequence[Sequence[int]],
        temperature: float = 1.0,
    ) -> list[list[float]]:
        """Log-probabilities of given ids by the sampler, one list per row."""
        return self.sampler.score(ref, prompts, completions, temperature)

    def update(self, policy: str, samples: Sequence[Sample], *, lr: float) -> UpdateResult:
        """Trains a policy on samples with verl's policy loss: `train.epochs` passes of `train.mini_batches` optimiser steps.

        The old log-probabilities are the sampler's own. A mean over tokens counts the original sampled ids. Equal rows are
        merged where the configuration allows it and it is exact. The new weights, and their average, are served at once.

        Args:
            policy: a trainable policy.
            samples: its rows; without a single sampled id nothing happens.
            lr: the learning rate.

        Returns:
            The new version, and means over the optimiser steps of `PolicyWorker.step`'s figures; `steps` counts these.

        Raises:
            ValueError: the policy is frozen, or the samples are another policy's, of another temperature than its own, or
                malformed.
        """
        found, worker = self._trainable(policy, samples)
        _check_temperatures(policy, samples, found.config.sampling.temperature)
        exact = merging_is_exact(self.train)
        if self.train.merge_identical and exact:
            samples = merge_identical(samples)
        if not exact and any(sample.weight != 1 for sample in samples):
            raise ValueError("merged samples do not give the gradient of the rows themselves under these train settings")
        rows = make_rows(samples)
        steps: list[dict[str, float]] = []
        for epoch in range(self.train.epochs):
            order = list(range(len(rows)))
            if self.train.mini_batches > 1:
                generator(self.seed, "mini_batches", policy, found.version, epoch).shuffle(order)
            for part in split_mini(rows, self.train.mini_batches, order):
                steps.append(self._step(policy, found, part, worker.ppo, lr, len(steps)))
        return self._finish(policy, found, steps)

    def fit(self, policy: str, samples: Sequence[Sample], *, lr: float) -> UpdateResult:
        """One optimiser step towards the samples' sampled ids (verl's `sft_loss`), as for a warm start.

        The version stays: it counts what was learned from play, so that step n plays with version n - 1. The averaged
        weights start anew from the result: an average over a warm start would keep its beginning for long.

        Args:
            policy: a trainable policy.
            samples: rows whose `loss_mask` marks the target ids; advantages and log-probabilities are not read.
            lr: the learning rate.

        Raises:
            ValueError: the policy is frozen, or the samples are another policy's, of several temperatures, or malformed.
        """
        found, worker = self._trainable(policy, samples)
        rows = make_rows(samples)
        steps = [self._step(policy, found, rows, worker.sft, lr, 0)] if len(rows) else []
        if steps and found.ema is not None:
            _blend(found.ema, worker.weights(), 0.0)
        return self._finish(policy, found, steps, learned=False)

    def log_probs(self, policy: str, samples: Sequence[Sample]) -> list[list[float]]:
        """Log-probabilities of the samples' sampled ids by the trainer's own forward pass, one list a row with any.

        Raises:
            ValueError: as `fit`.
        """
        return self._trainable(policy, samples)[1].log_probs(make_rows(samples))

    def reset_optimizer(self, policy: str) -> None:
        """Forgets the optimiser's moments, for instance between a warm start and what follows."""
        self._trainable(policy, ())[1].load_optimizer_state({})

    def snapshot(self, policy: str) -> Mapping[str, torch.Tensor]:
        """Weights by name, of a LoRA policy its adapter's, detached from later updates."""
        return {name: value.detach().clone() for name, value in self._weights(self._get(policy)).items()}

    def offload(self, policy: str) -> None:
        """Nothing: there is no accelerator to clear."""
        self._get(policy)

    def onload(self, policy: str) -> None:
        """Nothing: there is no accelerator to fill."""
        self._get(policy)

    def save(self, policy: str, folder: str | Path) -> None:
        """Writes a policy; see `state`. Loading it again goes on bit for bit."""
        found = self._get(policy)
        of_tiny = found.adapter is not None and found.config.model == TINY
        base_seed = tiny_seed(policy, found.config, self.seed) if of_tiny else None
        with quiet():
            state.write(
                Path(folder),
                state.PolicyState(policy, found.version, found.worker is not None, found.base, base_seed),
                model=found.model,
                tokenizer=found.tokenizer,
                weights=self._weights(found),
                ema=found.ema,
                optimizer=found.worker.optimizer_state() if found.worker else None,
                adapter=found.adapter,
            )

    def load(self, policy: str, folder: str | Path) -> None:
        """Puts a policy back to where it was saved. If anything does not fit, the policy stays as it is.

        Raises:
            CheckpointError: files are missing, torn, of another policy or another base, or do not fit the model.
        """
        found, folder = self._get(policy), Path(folder)
        saved = state.read_state(folder, policy, found.config)
        state.check_base(folder, saved, found.base)
        with quiet():
            weights = state.read_weights(folder, found.adapter)
        ema = state.read_tensors(folder, state.EMA) if found.ema is not None else None
        optimizer = state.read_tensors(folder, state.OPTIMIZER) if found.worker else None
        _check_shapes(folder, weights, self._weights(found))
        if ema is not None:
            _check_shapes(folder, ema, self._weights(found))
        if found.worker and optimizer:  # empty before the first step
            _check_shapes(folder, optimizer, found.worker.optimizer_layout())
        if found.worker and optimizer is not None:
            found.worker.load_optimizer_state(optimizer)
            found.worker.load_weights(weights)
        elif found.adapter:
            found.frozen = weights
        found.ema, found.version = ema, saved.version
        self._serve(policy, found, weights)

    def close(self) -> None:
        """Ends the sampler. The process group stays for other hosts of this process."""
        self.sampler.close()

    def _step(self, name: str, policy: _Policy, rows: Rows, loss: LossFn, lr: float, index: int) -> dict[str, float]:
        assert policy.worker is not None
        with _seeded(derive(self.seed, "step", name, policy.version, index)):
            figures = policy.worker.step(rows, loss, lr)
        if not math.isfinite(figures["grad_norm"]):
            logger.warning("policy %r: the gradient is not finite; verl skipped this optimiser step", name)
        return figures

    def _finish(self, name: str, policy: _Policy, steps: list[dict[str, float]], learned: bool = True) -> UpdateResult:
        if not steps:
            return UpdateResult(policy.version, {"rows": 0.0, "tokens": 0.0, "steps": 0.0})
        assert policy.worker is not None
        policy.version += learned
        weights = policy.worker.weights()
        if policy.ema is not None and learned:
            _blend(policy.ema, weights, self.train.ema)
        self._serve(name, policy, weights)
        broken = [key for key, value in weights.items() if not bool(torch.isfinite(value).all())]
        if broken:
            raise TrainingFailed(
                f"policy {name!r}: after this update {len(broken)} of {len(weights)} weights are no numbers ({broken[0]}); "
                f"nothing was saved after it. Lower train.optim.lr (it was {steps[-1]['lr']:g})"
            )
        metrics = {key: math.fsum(step[key] for step in steps) / len(steps) for key in steps[0]}
        skipped = sum(not math.isfinite(step["grad_norm"]) for step in steps)
        return UpdateResult(policy.version, {**metrics, "steps": float(len(steps)), "skipped_steps": float(skipped)})

    def _serve(self, name: str, policy: _Policy, weights: Mapping[str, torch.Tensor]) -> None:
        self.sampler.load(name, weights, policy.version)
        if policy.ema is not None:
            self.sampler.load(name, policy.ema, policy.version, variant="ema")

    def _weights(self, policy: _Policy) -> dict[str, torch.Tensor]:
        if policy.worker:
            return policy.worker.weights()
        return policy.frozen if policy.adapter else dict(policy.model.state_dict())

    def _get(self, name: str) -> _Policy:
        if name not in self._policies:
            raise UnknownId("policy", name, self._policies)
        return self._policies[name]

    def _trainable(self, name: str, samples: Sequence[Sample]) -> tuple[_Policy, PolicyWorker | AdapterWorker]:
        policy = self._get(name)
        if policy.worker is None:
            raise ValueError(f"policy {name!r} is frozen (trainable: false) and cannot be trained")
        others = {sample.policy for sample in samples} - {name}
        if others:
            raise ValueError(f"samples of {sorted(others)} were given to policy {name!r}; train each policy on its own")
        return policy, policy.worker


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seeds torch's CPU generator inside, since some of verl's losses draw from it, and puts it back outside."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@torch.no_grad()
def _blend(ema: dict[str, torch.Tensor], weights: Mapping[str, torch.Tensor], decay: float) -> None:
    for name, average in ema.items():
        average.mul_(decay).add_(weights[name], alpha=1.0 - decay)


def _check_temperatures(policy: str, samples: Sequence[Sample], own: float) -> None:
    others = {sample.temperature for sample in samples} - {own}
    if others:
        raise ValueError(
            f"samples of temperature {', '.join(f'{one:g}' for one in sorted(others))} were given to policy {policy!r}, "
            f"whose sampling.temperature is {own:g}; if they were drawn at that one, pass "
            f"to_samples(..., temperatures={{{policy!r}: {own:g}}})"
        )


def _check_shapes(folder: Path, saved: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> None:
    faults = [f"{name} is missing" for name in own if name not in saved]
    faults += [f"{name} is unknown" for name in saved if name not in own]
    faults += [
        f"{name} is {tuple(saved[name].shape)} and not {tuple(own[name].shape)}"
        for name in own
        if name in saved and saved[name].shape != own[name].shape
    ]
    if faults:
        raise CheckpointError(f"the checkpoint in {str(folder)!r} does not fit the model: {'; '.join(faults[:5])}")
