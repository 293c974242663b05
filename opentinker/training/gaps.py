"""What verl 0.9 lacks on a CPU, and what this package assumes beyond verl's public interface. One test each.

1. verl names its process group's backend `cpu:gloo,cpu:gloo`, which torch refuses: `join_process_group` comes first.
2. A forward-only model is offloaded to pinned memory, which needs an accelerator: `unpinned_offload`.
3. `load_valuehead_model` insists on flash attention: `value_head_attention`.
4. Log-probabilities are computed by a Python loop over all ids: `engine.CpuEngine`, by overriding
   `prepare_model_inputs` and `prepare_model_outputs`; the loss reads packed `log_probs` and, for rows padded on both sides,
   takes the response's part.
5. The number of tokens a loss divides by is `loss_mask.sum()`: `batch.to_batch` relies on it.
6. `TrainingWorker.engine` has `module`, `optimizer` and `optimizer_config`; `worker.py` reads and restores them.
7. With `lora_rank`, `module` is a `PeftModel` whose adapter is called `default`: parameters are named
   `base_model.model.….base_layer.weight` and `….lora_A.default.weight`, and only the adapter's have a gradient.
   `target_modules` takes full names of layers, `lora_alpha` any number. `lora.py` relies on it.
8. FSDP2 alone in its group: once the modules are resharded, the frozen parameters' local tensors stay where they are for the
   engine's life, so that another model can share them: `lora.AdapterEngine.share_base`.
9. verl wraps a layer called `lm_head` on its own, which fails for PEFT's layer in its place: `adapters.py` refuses it as a
   target.
"""

from __future__ import annotations

from typing import Any


def join_process_group() -> None:
    """A process group of this process alone, over gloo and without a port, unless there is one already."""
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


def unpinned_offload() -> None:
    """Lets verl build forward-only FSDP2 models on a CPU. Repeating it does nothing."""
    from verl.workers.engine.fsdp import transformer_impl

    vars(transformer_impl)["CPUOffloadPolicy"] = _unpinned


def _unpinned(pin_memory: bool = True) -> Any:
    from torch.distributed.fsdp import CPUOffloadPolicy

    return CPUOffloadPolicy(pin_memory=False)


def value_head_attention() -> None:
    """Lets verl load a critic with the attention its configuration names. Repeating it does nothing."""
    from verl.utils import model as verl_model

    verl_model.load_valuehead_model = _load_value_head


def _load_value_head(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    from transformers import AutoModelForTokenClassification

    return AutoModelForTokenClassification.from_pretrained(
        local_path,
        dtype=torch_dtype,
        config=model_config,
        attn_implementation=model_config._attn_implementation,
        trust_remote_code=trust_remote_code,
    )
