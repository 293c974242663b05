"""LoRA policies on one engine: adapters and their optimiser state go in for each call and out again after it.

The engine holds the base, frozen, and one set of adapter tensors, whose content between two calls means nothing. So one
policy's update cannot reach another: weights and moments of the others are not in the engine meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from opentinker.config import TrainConfig
from opentinker.sampling.adapters import AdapterShape
from opentinker.training.adapters import fingerprint
from opentinker.training.batch import Rows
from opentinker.training.bringup import quiet
from opentinker.training.models import load_model, load_tokenizer, no_dropout
from opentinker.training.worker import MOMENTS, LossFn, PolicyWorker, local

Moments = dict[str, dict[str, torch.Tensor]]
"""Per adapter tensor what AdamW keeps of it; empty before the first step."""


class Bases:
    """The models under adapters, each in memory once, and an engine for each shape of adapter on each.

    Args:
        train: of all engines.
    """

    def __init__(self, train: TrainConfig) -> None:
        self._train = train
        self._bases: dict[Path, Base] = {}

    def get(self, folder: Path) -> Base:
        """The base in this folder.

        Raises:
            ConfigError: it holds no causal language model.
        """
        path = folder.resolve()
        if path not in self._bases:
            with quiet():
                self._bases[path] = Base(path, self._train, load_model(path), load_tokenizer(path))
        return self._bases[path]


class Base:
    """A base model, and the engines that train adapters on it.

    Args:
        folder: in Hugging Face layout.
        train: of its engines.
        model: in float32; the sampler's object too.
        tokenizer: its own.
    """

    def __init__(self, folder: Path, train: TrainConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.folder, self.train, self.model, self.tokenizer = folder, train, model, tokenizer
        self.digest = fingerprint(model)
        self._engines: dict[AdapterShape, AdapterEngine] = {}

    def engine(self, shape: AdapterShape) -> AdapterEngine:
        """The engine of all policies with adapters of this shape. The first one's base becomes the model's own."""
        if shape not in self._engines:
            engine = AdapterEngine(str(self.folder), self.train, no_dropout(self.folder), shape)
            if not self._engines:
                engine.share_base(self.model)
            self._engines[shape] = engine
        return self._engines[shape]


class AdapterEngine(PolicyWorker):
    """Verl's engine over a frozen base with room for one adapter.

    Args:
        path: folder with the base in Hugging Face layout.
        train: as `PolicyWorker`.
        no_dropout: as `PolicyWorker`.
        shape: of every adapter that goes in.
    """

    def __init__(self, path: str, train: TrainConfig, no_dropout: Mapping[str, float], shape: AdapterShape) -> None:
        with torch.random.fork_rng(devices=[]):  # PEFT draws a first adapter, which is never used
            super().__init__(path, train, no_dropout, shape)
        self.shape = shape
        self.rest()

    def parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The adapter's parameters under the names of PEFT's files."""
        for name, parameter in self.engine.module.named_parameters():
            if parameter.requires_grad:
                yield name.replace(".default.", "."), parameter

    def weights(self) -> dict[str, torch.Tensor]:
        """The adapter that is in; aliases what is trained."""
        return {name: local(parameter) for name, parameter in self.parameters()}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Overwrites the adapter, bit for bit."""
        for name, value in self.weights().items():
            value.copy_(weights[name])

    def share_base(self, model: PreTrainedModel) -> None:
        """Makes the parameters of a plain model of the same weights the engine's own frozen ones: held in memory once."""
        held = {
            name.removeprefix("base_model.model.").replace(".base_layer.", "."): local(parameter)
            for name, parameter in self.engine.module.named_parameters()
            if not parameter.requires_grad
        }
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(False)
            parameter.data = held[name]

    def rest(self) -> None:
        """Frees FSDP's gathered copies: parameters are then the ones that persist, and the base stands in memory once."""
        for module in self.engine.module.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


class AdapterWorker:
    """One LoRA policy; the calls are `PolicyWorker`'s.

    Args:
        engine: shared with the policies of the same base and shape.
        tensors: the adapter it starts from.
    """

    def __init__(self, engine: AdapterEngine, tensors: Mapping[str, torch.Tensor]) -> None:
        self._engine = engine
        self._tensors = {name: value.detach().clone() for name, value in tensors.items()}
        self._moments: Moments = {}
        self.ppo: LossFn = engine.ppo
        self.sft: LossFn = engine.sft

    def step(self, rows: Rows, loss: LossFn, lr: float) -> dict[str, float]:
        """As `PolicyWorker.step`. If it raises, the policy stays as it was."""
        with self._inside(keep=True) as engine:
            return engine.step(rows, loss, lr)

    def log_probs(self, rows: Rows) -> list[list[float]]:
        """As `PolicyWorker.log_probs`."""
        with self._inside(keep=False) as engine:
            return engine.log_probs(rows)

    def weights(self) -> dict[str, torch.Tensor]:
        """The adapter's tensors by PEFT's names; they may alias the trained ones."""
        return dict(self._tensors)

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Overwrites the adapter, bit for bit."""
        for name, value in self._tensors.items():
            value.copy_(weights[name])

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """AdamW's moments and step counts as `moment/tensor`; empty before the first step."""
        return {f"{moment}/{name}": local(kept[moment]) for name, kept in self._moments.items() for moment in MOMENTS}

    def optimizer_layout(self) -> dict[str, torch.Tensor]:
        """As `PolicyWorker.optimizer_layout`."""
        return self._engine.optimizer_layout()

    def load_optimizer_state(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Puts back what `optimizer_state` gave, bit for bit."""
        try:
            self._engine.load_optimizer_state(saved)
            self._moments = self._take_moments()
        finally:
            self._engine.engine.optimizer.state.clear()

    @contextmanager
    def _inside(self, *, keep: bool) -> Iterator[AdapterEngine]:
        """The adapter is in the engine; with `keep`, what came of it is taken over, unless an error came."""
        engine = self._engine
        engine.load_weights(self._tensors)
        state = engine.engine.optimizer.state
        # by reference: AdamW writes into the policy's own moments
        state.update({parameter: self._moments[name] for name, parameter in engine.parameters() if name in self._moments})
        try:
            yield engine
            if keep:
                engine.rest()
                self.load_weights(engine.weights())
                self._moments = self._take_moments()
        finally:
            engine.rest()
            engine.engine.optimizer_zero_grad()
            state.clear()

    def _take_moments(self) -> Moments:
        state = self._engine.engine.optimizer.state
        return {name: state[parameter] for name, parameter in self._engine.parameters() if parameter in state}
