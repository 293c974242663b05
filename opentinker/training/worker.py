"""One trainable policy: a verl `TrainingWorker` and the calls a host makes of it. `bringup.bring_up` comes first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.trainer.config import CheckpointConfig
from verl.utils import tensordict_utils as tu
from verl.workers.config import (
    FSDPActorConfig,
    FSDPEngineConfig,
    FSDPOptimizerConfig,
    HFModelConfig,
    PolicyLossConfig,
    TrainingWorkerConfig,
)
from verl.workers.engine_workers_tinker import TinkerTrainingWorker
from verl.workers.utils.losses import ppo_loss, sft_loss

from opentinker.config import TrainConfig
from opentinker.sampling.adapters import AdapterShape
from opentinker.training.batch import Rows, make_rows, split_micro, to_batch
from opentinker.training.bringup import quiet, verl_environment
from opentinker.training.losses import sees_rows
from opentinker.types import Sample

LossFn = Callable[..., tuple[torch.Tensor, dict[str, Any]]]
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class PolicyWorker:
    """A policy in float32, trained by verl's engine (FSDP2, alone), loss and optimiser: all its weights, or an adapter.

    Args:
        path: folder with the weights in Hugging Face layout.
        train: what reaches verl's loss and optimiser.
        no_dropout: names of the model's dropout settings; they are set to 0.
        lora: the adapter that is trained instead of the weights; see `lora.AdapterEngine`.
    """

    def __init__(
        self, path: str, train: TrainConfig, no_dropout: Mapping[str, float], lora: AdapterShape | None = None
    ) -> None:
        self.train = train
        self.actor = actor_config(train)
        with verl_environment(), quiet():
            self._worker = TinkerTrainingWorker(worker_config(path, train, no_dropout, lora))
            self._worker.reset()
            self._warm_up()
        self.ppo: LossFn = functools.partial(ppo_loss, config=self.actor)
        self.sft: LossFn = functools.partial(sft_loss, config=self.actor)

    @property
    def engine(self) -> Any:
        """Verl's engine: `module`, `optimizer`, `optimizer_config`, `scores`."""
        return self._worker.engine

    def step(self, rows: Rows, loss: LossFn, lr: float) -> dict[str, float]:
        """One optimiser step on all rows.

        Args:
            rows: at least one.
            loss: `ppo` or `sft`.
            lr: the learning rate of this step.

        Returns:
            `loss`, `entropy` (exact, nats) and, for `ppo`, `clip_fraction` and `kl` (from the sampler's policy to this one,
            estimated on the sampled ids), means over the original sampled ids; `grad_norm` before clipping; `lr`, `rows`,
            `tokens`.
        """
        figures = self.accumulate(rows, loss)
        return {**figures, "grad_norm": self.apply(lr), "lr": float(lr)}

    def accumulate(self, rows: Rows, loss: LossFn) -> dict[str, float]:
        """Adds the rows' gradient to the parameters', micro-batch by micro-batch; figures as `step`."""
        self._worker.set_loss_fn(loss)
        denominator, sequences = rows.denominator, rows.sequences
        by_row = loss is self.ppo and sees_rows(self.train.loss)
        with_entropy = loss is self.ppo and self.train.entropy_coeff > 0
        loss_sum = clipped = kl = entropy = 0.0
        for micro in split_micro(rows, self.train.micro_batch_tokens):
            batch = to_batch(micro, denominator=denominator, sequences=sequences, by_row=by_row)
            tu.assign_non_tensor_data(batch, "calculate_entropy", with_entropy)
            metrics = tu.get(self._worker.forward_backward(batch), "metrics")
            weights = torch.tensor([float(sample.weight) for sample in micro.samples])
            weights = weights.repeat_interleave(torch.tensor(micro.tokens))
            old = batch["old_log_probs"][batch["response_mask"].bool()]
            loss_sum += metrics["loss"]
            clipped += _first(metrics, "actor/pg_clipfrac") * float(weights.sum())
            kl += float((weights * (old - self.engine.scores.log_probs)).sum())
            entropy += float((weights * self.engine.scores.entropy).sum())
        figures = {"loss": loss_sum, "entropy": entropy / denominator, "rows": float(len(rows)), "tokens": denominator}
        if loss is self.sft:
            return figures
        return {**figures, "clip_fraction": clipped / denominator, "kl": kl / denominator}

    def apply(self, lr: float) -> float:
        """Clips the gradient, takes AdamW's step and clears the gradient.

        Returns:
            The gradient's norm before clipping. Where it is not finite, verl leaves the weights as they are.
        """
        optim = self.train.optim
        settings = {"lr": float(lr), "betas": optim.betas, "weight_decay": float(optim.weight_decay)}
        return float(self._worker.optimizer_step(settings)["grad_norm"])

    def log_probs(self, rows: Rows) -> list[list[float]]:
        """Log-probabilities of each row's sampled ids under the current weights, by verl's inference call."""
        found: dict[int, list[float]] = {}
        place = {id(sample): index for index, sample in enumerate(rows.samples)}
        for micro in split_micro(rows, self.train.micro_batch_tokens):
            batch = to_batch(micro, denominator=micro.denominator, sequences=micro.sequences, by_row=False)
            tu.assign_non_tensor_data(batch, "compute_loss", False)
            self._worker.infer_batch(batch)
            parts = self.engine.scores.log_probs.split(list(micro.tokens))
            for sample, part in zip(micro.samples, parts, strict=True):
                found[place[id(sample)]] = part.tolist()
        return [found[index] for index in range(len(rows))]

    def _warm_up(self) -> None:
        ids = (0, 0)
        self.log_probs(make_rows([Sample("", "", "", ids, (0, 1), (0.0, 0.0), (0.0, 0.0))]))

    def parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Trainable parameters under their Hugging Face names."""
        yield from self.engine.module.named_parameters()

    def weights(self) -> dict[str, torch.Tensor]:
        """All weights under their Hugging Face names; they may alias the trained ones."""
        return {name: local(value) for name, value in self.engine.get_per_tensor_param()[0]}

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Overwrites all weights, bit for bit."""
        for name, value in self.engine.module.state_dict().items():
            local(value).copy_(weights[name])

    def optimizer_state(self) -> dict[str, torch.Tensor]:
        """AdamW's moments and step counts as `moment/parameter`; empty before the first step."""
        state = self.engine.optimizer.state
        return {
            f"{moment}/{name}": local(state[parameter][moment])
            for name, parameter in self.parameters()
            if parameter in state
            for moment in MOMENTS
        }

    def optimizer_layout(self) -> dict[str, torch.Tensor]:
        """What `optimizer_state` has after a step, as to names and shapes; the values mean nothing."""
        one = torch.zeros(())
        return {
            f"{moment}/{name}": one if moment == "step" else local(parameter)
            for name, parameter in self.parameters()
            for moment in MOMENTS
        }

    @torch.no_grad()
    def load_optimizer_state(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Puts back what `optimizer_state` gave, bit for bit."""
        state = self.engine.optimizer.state
        state.clear()
        for name, parameter in self.parameters() if saved else ():
            for moment in MOMENTS:
                value = saved[f"{moment}/{name}"].clone()
                if moment != "step":
                    like = torch.zeros_like(parameter)
                    local(like).copy_(value)
                    value = like
                state[parameter][moment] = value


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor behind a sharded one: with one process it holds all of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def actor_config(train: TrainConfig) -> FSDPActorConfig:
    """The configuration of verl's policy losses."""
    return FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=1,
        use_dynamic_bsz=True,
        # verl's losses read the two bounds, whose own default would override `clip_ratio`
        clip_ratio=train.clip_ratio,
        clip_ratio_low=train.clip_ratio,
        clip_ratio_high=train.clip_ratio,
        entropy_coeff=train.entropy_coeff,
        loss_agg_mode=train.loss_agg,
        policy_loss=PolicyLossConfig(loss_mode=train.loss),
        use_torch_compile=False,
    )


def worker_config(
    path: str, train: TrainConfig, no_dropout: Mapping[str, float], lora: AdapterShape | None = None
) -> TrainingWorkerConfig:
    """The configuration of verl's worker: model, FSDP2 engine and AdamW."""
    optim = train.optim
    adapter: dict[str, Any] = {}
    if lora is not None:
        adapter = {"lora_rank": lora.rank, "lora_alpha": lora.alpha, "target_modules": list(lora.targets)}
    return TrainingWorkerConfig(
        model_type="language_model",
        model_config=HFModelConfig(
            path=path,
            load_tokenizer=False,
            override_config={"attn_implementation": "sdpa", **no_dropout},
            enable_gradient_checkpointing=False,
            use_remove_padding=False,
            **adapter,
        ),
        engine_config=FSDPEngineConfig(
            strategy="fsdp2",
            use_torch_compile=False,
            reshard_after_forward=False,
            mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        ),
        optimizer_config=FSDPOptimizerConfig(
            lr=optim.lr.start,
            betas=optim.betas,
            weight_decay=optim.weight_decay,
            clip_grad=optim.clip,
            total_training_steps=train.steps,
            override_optimizer_config={"fused": True},
        ),
        checkpoint_config=CheckpointConfig(),
    )


def _first(metrics: Mapping[str, Any], name: str) -> float:
    if name not in metrics:
        return 0.0
    value = metrics[name]
    while isinstance(value, list):
        value = value[0]
    return float(value.aggregate()) if hasattr(value, "aggregate") else float(value)
