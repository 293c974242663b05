"""A Hugging Face causal model as the loop sees it: left-padded prefill, single steps on a cache, scoring."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

Ids = Sequence[int]


@dataclass(slots=True)
class Prefix:
    """What a model has read of r rows: keys and values, and where each row goes on."""

    cache: Any
    """A `transformers.Cache`, padding on the left."""
    mask: torch.Tensor | None
    """[r, width], 1 on real ids; None where no row is padded."""
    length: torch.Tensor
    """[r], real ids read: the position of the next one."""

    def select(self, rows: torch.Tensor) -> None:
        """Keeps these rows, in this order; a row named twice is copied.

        Args:
            rows: on the CPU: a model may spread its layers over devices.
        """
        self.cache.batch_select_indices(rows)
        self.length = self.length[rows]
        self.mask = None if self.mask is None else self.mask[rows]


class Network:
    """Wraps a causal language model. The model is put into evaluation mode at every use.

    Args:
        model: any with a `forward` in the manner of transformers, on any device.
        context: room for ids, prompt and completion together; default: what the model's configuration says.
    """

    def __init__(self, model: PreTrainedModel, context: int | None = None) -> None:
        self.model = model
        whole: Any = model
        base: Any = whole.get_base_model() if hasattr(whole, "get_base_model") else whole
        accepted = inspect.signature(base.forward).parameters
        self._positions = "position_ids" in accepted
        self._keep = "logits_to_keep" in accepted
        config: Any = base.config.get_text_config()
        self.vocabulary = int(config.vocab_size)
        self.context = context if context is not None else getattr(config, "max_position_embeddings", None)
        """None where the model knows no limit."""

    @property
    def device(self) -> torch.device:
        """Where ids go in."""
        embeddings: Any = self.model.get_input_embeddings()
        return embeddings.weight.device  # type: ignore[no-any-return]

    def fault(self, prompt: Ids) -> str | None:
        """Why the model cannot read these ids, or None."""
        if not prompt:
            return "the prompt is empty: give at least one id"
        low, high = min(prompt), max(prompt)
        if low < 0 or high >= self.vocabulary:
            return f"id {low if low < 0 else high} is none of the model's, which are 0 .. {self.vocabulary - 1}"
        return None

    def room(self, prompt: Ids) -> int | None:
        """Ids that fit behind the prompt; None: no limit."""
        return None if self.context is None else max(0, self.context - len(prompt))

    def prefill(self, prompts: Sequence[Ids], *, use_cache: bool) -> tuple[torch.Tensor, Prefix | None]:
        """Reads prompts of any lengths.

        Padding stands on the left: each row stays contiguous while it grows, which sliding windows rely on.

        Returns:
            the logits after each prompt, [r, vocabulary], and the prefix to go on from, if asked for.
        """
        ids, mask, length = self._pad(prompts)
        logits, cache = self._forward(ids, mask, _positions(ids, mask), None, keep=1, use_cache=use_cache)
        return logits[:, -1], Prefix(cache, mask, length) if use_cache else None

    def step(self, prefix: Prefix, ids: torch.Tensor) -> torch.Tensor:
        """Reads one id a row, extends the prefix in place and gives the logits after it, [r, vocabulary]."""
        if prefix.mask is not None:
            prefix.mask = torch.cat([prefix.mask, prefix.mask.new_ones(len(prefix.mask), 1)], dim=1)
        positions = prefix.length[:, None]
        column = ids.to(self.device)[:, None]
        logits, prefix.cache = self._forward(column, prefix.mask, positions, prefix.cache, keep=1, use_cache=True)
        prefix.length = prefix.length + 1
        return logits[:, -1]

    def score(self, rows: Sequence[Ids], n: int, temperature: float) -> torch.Tensor:
        """Log-probabilities of the last n ids of each row, [r, n], float32 on the CPU.

        Positions before a row's second id (it may be shorter than n + 1) hold no meaning.
        """
        ids, mask, _ = self._pad(rows, at_least=n + 1)
        logits, _ = self._forward(ids, mask, _positions(ids, mask), None, keep=n + 1, use_cache=False)
        logp = torch.log_softmax(logits[:, -n - 1 : -1].float() / temperature, dim=-1)
        return logp.gather(-1, ids[:, -n:, None])[..., 0].cpu()

    def _pad(self, rows: Sequence[Ids], at_least: int = 0) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """Left-padded ids [r, width], their mask (None without padding) and the rows' lengths [r], on the device."""
        lengths = [len(row) for row in rows]
        width = max(at_least, *lengths)
        ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows])
        length = torch.tensor(lengths)
        mask = None
        if min(lengths) < width:
            mask = (torch.arange(width) >= (width - length)[:, None]).long().to(self.device)
        return ids.to(self.device), mask, length.to(self.device)

    def _forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | None,
        positions: torch.Tensor,
        cache: Any,
        *,
        keep: int,
        use_cache: bool,
    ) -> tuple[torch.Tensor, Any]:
        if self.model.training:
            self.model.eval()  # type: ignore[no-untyped-call]
        arguments: dict[str, Any] = {"attention_mask": mask, "past_key_values": cache, "use_cache": use_cache}
        if self._positions:
            arguments["position_ids"] = positions
        if self._keep:
            arguments["logits_to_keep"] = keep
        output = self.model(ids, **arguments)
        return output.logits, output.past_key_values if use_cache else None


def _positions(ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """[r, width]: each row's own count from 0; padding stands at 0, where nothing attends to it."""
    if mask is None:
        return torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return (mask.cumsum(dim=1) - 1).clamp_(min=0)
