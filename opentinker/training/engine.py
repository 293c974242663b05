"""verl's FSDP engine with a forward pass fit for a CPU.

verl's own computes logits at every id and then takes the log-sum-exp of each one in a Python loop: 80 % of an update of a
small model. This engine, registered with verl for the device `cpu`, forwards each distinct prefix once and computes logits
and log-probabilities only where a sampled id is scored, as planned in `batch.py`. That is exact: a log-probability
depends on the ids before it alone. All else (FSDP2, loss, backward, clipping, optimiser) is verl's.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict  # type: ignore[import-untyped]
from verl.utils import tensordict_utils as tu
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp import FSDPEngineWithLMHead

from opentinker.training.batch import Forward


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of a micro-batch's S sampled ids, row by row from left to right."""

    log_probs: torch.Tensor
    """(S,)"""
    entropy: torch.Tensor
    """(S,) of the distribution each id was scored under, in nats."""


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cpu")
class CpuEngine(FSDPEngineWithLMHead):
    """FSDP2 engine that forwards distinct prefixes once and scores sampled ids only."""

    scores: Scores | None = None
    """Of the latest micro-batch, detached: what metrics are made of."""

    def prepare_model_inputs(self, micro_batch: TensorDict) -> tuple[dict[str, Any], dict[str, Any]]:
        """Model inputs for the distinct prefixes of the micro-batch, and its plan."""
        forward: Forward = tu.get_non_tensor_data(micro_batch, "forward", None)
        ids = forward.input_ids
        inputs = {"input_ids": ids, "attention_mask": None, "position_ids": torch.arange(ids.shape[1]).expand_as(ids)}
        if self._keeps_logits():
            inputs["logits_to_keep"] = forward.keep
        return inputs, {"forward": forward, "temperature": tu.get_non_tensor_data(micro_batch, "temperature", None)}

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: TensorDict, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """`log_probs`, and `entropy` where asked for: nested (loss rows, sampled ids + 1), each row's last one 0."""
        forward: Forward = output_args["forward"]
        logits = output.logits if self._keeps_logits() else output.logits[:, forward.keep]
        table = torch.log_softmax(logits[forward.row, forward.column].float() / output_args["temperature"], dim=-1)
        log_probs = table[forward.place, forward.labels]
        outputs = {"log_probs": _to_loss_rows(log_probs, forward)}
        with_entropy = tu.get_non_tensor_data(micro_batch, "calculate_entropy", False)
        with torch.set_grad_enabled(with_entropy and torch.is_grad_enabled()):
            entropy = -(table.exp() * table).sum(-1)[forward.place]
        if with_entropy:
            outputs["entropy"] = _to_loss_rows(entropy, forward)
        self.scores = Scores(log_probs.detach(), entropy.detach())
        return outputs

    def _keeps_logits(self) -> bool:
        # PEFT's forward takes any name and hands it to the model inside
        module = self.module.get_base_model() if hasattr(self.module, "get_base_model") else self.module
        return "logits_to_keep" in inspect.signature(module.forward).parameters


def _to_loss_rows(values: torch.Tensor, forward: Forward) -> torch.Tensor:
    packed = values.new_zeros(int(forward.offsets[-1])).index_put((forward.packed,), values)
    return torch.nested.nested_tensor_from_jagged(packed, forward.offsets)
