"""The decoder that Llama, Mistral, Qwen2 and Qwen3 have in common, without what surrounds it in transformers.

A small model spends most of its time between operations. Weights are read where the model has them; nothing is copied.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu
from transformers import PreTrainedModel

from opentinker.sampling.adapters import AdapterHook

log = logging.getLogger(__name__)

_FAMILIES = {f"{name}ForCausalLM" for name in ("Llama", "Mistral", "Qwen2", "Qwen3")}
_ROPES = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary embeddings that depend on an id's own position only."""


class Lean:
    """Forward passes of a model that `make` found fit for it.

    Args:
        model: one of the families.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        whole: Any = model
        self._model = whole
        self._body = whole.model
        self._eps = whole.config.rms_norm_eps
        attention = self._body.layers[0].self_attn
        self._head = attention.head_dim
        self._scale = attention.scaling
        self._normed = hasattr(attention, "q_norm")
        self._turns: tuple[torch.Tensor, torch.Tensor] | None = None

    def __call__(
        self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any, reach: int
    ) -> torch.Tensor:
        """The logits after the last id of each row, [r, vocabulary].

        Args:
            ids: [r, w].
            mask: [r, 1, w, width], True where an id looks; None: at itself and all before.
            positions: [r, w], below `reach`.
            cache: with `update` as that of a `transformers.Cache`; None: the ids are all there is.
            reach: positions that can occur.
        """
        x = self._body.embed_tokens(ids)
        cos, sin = (table[positions][:, :, None] for table in self._tables(reach, x))
        causal = mask is None and ids.shape[1] > 1
        last = len(self._body.layers) - 1
        for at, layer in enumerate(self._body.layers):
            attention = layer.self_attn
            normed = self._norm(x, layer.input_layernorm)
            k = self._turn(self._heads(attention.k_proj, normed), cos, sin, attention.k_norm if self._normed else None)
            v = self._heads(attention.v_proj, normed)
            if at == last and ids.shape[1] > 1:
                # what follows needs the last id only
                normed, x, cos, sin = normed[:, -1:], x[:, -1:], cos[:, -1:], sin[:, -1:]
                mask, causal = None if mask is None else mask[:, :, -1:], False
            q = self._turn(self._heads(attention.q_proj, normed), cos, sin, attention.q_norm if self._normed else None)
            k, v = k.transpose(1, 2), v.transpose(1, 2)
            if cache is not None:
                k, v = cache.update(k, v, at)
            x = x + _apply(attention.o_proj, self._attend(q, k, v, mask, causal))
            normed = self._norm(x, layer.post_attention_layernorm)
            mlp = layer.mlp
            x = x + _apply(mlp.down_proj, silu(_apply(mlp.gate_proj, normed)) * _apply(mlp.up_proj, normed))
        return _apply(self._model.lm_head, self._norm(x, self._body.norm))[:, -1]

    def _heads(self, module: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        """[r, w, heads, size]."""
        return _apply(module, x).view(x.shape[0], x.shape[1], -1, self._head)

    def _norm(self, x: torch.Tensor, module: Any) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], module.weight, self._eps)

    def _turn(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, norm: Any) -> torch.Tensor:
        """Rotary embedding (Su et al. 2021, arXiv:2104.09864) by halves; the sign is in the table."""
        if norm is not None:
            x = self._norm(x, norm)
        return torch.addcmul(x * cos, x.roll(self._head // 2, -1), sin)

    def _attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool
    ) -> torch.Tensor:
        """q [r, w, heads, size], k and v [r, groups, width, size]; gives [r, w, heads * size].

        Heads of a group stand one below the other as queries, so that keys and values need not be repeated.
        """
        rows, width, heads, size = q.shape
        groups = k.shape[1]
        if width == 1:
            q = q.view(rows, groups, heads // groups, size)
            return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self._scale).reshape(rows, 1, -1)
        if causal:
            out = scaled_dot_product_attention(
                q.transpose(1, 2), k, v, is_causal=True, scale=self._scale, enable_gqa=groups != heads
            )
            return out.transpose(1, 2).reshape(rows, width, -1)
        if mask is None or heads * width > 2 * groups * heads * size:
            # long reads: keys and values are the smaller ones to repeat
            k, v = (side.repeat_interleave(heads // groups, dim=1) if groups != heads else side for side in (k, v))
            out = scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask, scale=self._scale)
            return out.transpose(1, 2).reshape(rows, width, -1)
        q = q.view(rows, width, groups, -1, size).permute(0, 2, 3, 1, 4).reshape(rows, groups, -1, size)
        mask = mask.repeat(1, 1, heads // groups, 1)
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self._scale)
        return out.view(rows, groups, -1, width, size).permute(0, 3, 1, 2, 4).reshape(rows, width, -1)

    def _tables(self, reach: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines, [positions, size] each."""
        if self._turns is None or len(self._turns[0]) < reach:
            positions = torch.arange(max(reach, 256, 0 if self._turns is None else 2 * len(self._turns[0])), device=x.device)
            cos, sin = self._body.rotary_emb(x, positions[None])
            half = sin.shape[-1] // 2
            self._turns = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        return self._turns


def make(model: PreTrainedModel) -> Lean | None:
    """A lean model, if this is one of the families, unchanged, and gives the same logits so on a few ids."""
    whole: Any = model
    if type(model).__name__ not in _FAMILIES or not type(model).__module__.startswith("transformers.models."):
        return None
    rope = getattr(model.config, "rope_parameters", None) or {}
    plain = (
        getattr(model.config, "hidden_act", None) == "silu"
        and getattr(model.config, "_attn_implementation", None) == "sdpa"
        and rope.get("rope_type") in _ROPES
        and len({parameter.device for parameter in model.parameters()}) == 1
        and not any(_is_changed(module) for module in model.modules())
    )
    if not plain:
        return None
    try:
        with torch.inference_mode():
            lean = Lean(model)
            ids = torch.arange(2 * 9, device=whole.device).view(2, 9) * 7 % model.config.vocab_size
            positions = torch.arange(9, device=whole.device).expand(2, 9)
            expected = whole(ids, position_ids=positions, use_cache=False).logits[:, -1].float()
            found = lean(ids, None, positions, None, 9).float()
    except Exception as error:  # whatever a model raises that is other than it seems
        log.debug("%s is not read leanly: %s: %s", type(model).__name__, type(error).__name__, error)
        return None
    return lean if close(found, expected, whole.dtype) else None


def close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether logits agree up to the rounding of a type; not where they are no numbers."""
    tolerance = 2e-6 if dtype == torch.float32 else 2e-2
    return bool((found - expected).abs().max() <= tolerance * (1 + expected.abs().max()))


def _is_changed(module: torch.nn.Module) -> bool:
    """Whether more happens in a module than its class says."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    return "forward" in vars(module) or any(not isinstance(hook, AdapterHook) for hook in hooks)


def _apply(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    if type(module) is torch.nn.Linear and not module._forward_hooks:
        return linear(x, module.weight, module.bias)
    return module(x)  # type: ignore[no-any-return]
