"""A Hugging Face causal model as the loop sees it: left-padded prefill, single steps on a cache, scoring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from opentinker.errors import ConfigError
from opentinker.sampling import lean
from opentinker.sampling.adapters import Adapter, AdapterBank
from opentinker.sampling.lean import Lean

Ids = Sequence[int]

_ORIGINAL = "original_max_position_embeddings"
_KINDS = {"full_attention", "sliding_attention", "chunked_attention"}
_LOCAL = re.compile("window|chunk|local")
_COUNTS = re.compile("layers|pattern|experts|feed_forward|lm_head")
"""What else the names of numbers speak of in which `_LOCAL` is found."""


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
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        base = _base(model)
        accepted = inspect.signature(base.forward).parameters
        self._positions = "position_ids" in accepted
        self._keep = "logits_to_keep" in accepted
        config: Any = base.config.get_text_config()
        self.vocabulary = int(config.vocab_size)
        self.reach = reach(config)
        """Ids beyond which the model reads those before them otherwise; None: it never does."""
        self.context = context(config)
        """Room for ids; None where the model knows no limit."""
        self.local = is_local(config, self.context)
        """Whether some layer may look back over less than the context."""
        self._attention = getattr(base.config, "_attn_implementation", None)
        self._lean: Lean | None = None
        self._tried_lean = False
        self.suits_slots: bool | None = None
        """Whether `slots` holds its rows; None: not tried yet. Tried in `plain`, as what else depends on the model alone."""
        self._bank: AdapterBank | None = None

    @property
    def device(self) -> torch.device:
        """Where ids go in."""
        embeddings: Any = self.model.get_input_embeddings()
        return embeddings.weight.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """Of the embeddings."""
        embeddings: Any = self.model.get_input_embeddings()
        return embeddings.weight.dtype  # type: ignore[no-any-return]

    @property
    def takes_masks(self) -> bool:
        """Whether `extend` may be tried."""
        return self._positions and self._attention in ("sdpa", "eager")

    def fault(self, prompt: Ids) -> str | None:
        """Why the model cannot read these ids, or None."""
        if not prompt:
            return "the prompt is empty: give at least one id"
        low, high = min(prompt), max(prompt)
        if low < 0 or high >= self.vocabulary:
            return f"id {low if low < 0 else high} is none of the model's, which are 0 .. {self.vocabulary - 1}"
        return None

    def bank(self) -> AdapterBank:
        """The adapters' place on this model; made when first asked for."""
        if self._bank is None:
            self._bank = AdapterBank(self.model)
        return self._bank

    def forget(self) -> None:
        """Frees what is remembered of adapters that may have been replaced."""
        if self._bank is not None:
            self._bank.forget()

    def using(self, adapters: Sequence[Adapter | None]) -> AbstractContextManager[None]:
        """Forward passes inside have these adapters, one a row; a single one is for all rows, however many."""
        if self._bank is None:
            return nullcontext()
        return self._bank.rows(adapters)

    def plain(self) -> AbstractContextManager[None]:
        """Forward passes inside are the model's own, whatever adapters those outside have."""
        return nullcontext() if self._bank is None else self._bank.aside()

    def prefill(self, prompts: Sequence[Ids], *, use_cache: bool) -> tuple[torch.Tensor, Prefix | None]:
        """Reads prompts of any lengths.

        Padding stands on the left: each row stays contiguous while it grows, which sliding windows rely on.

        Returns:
            the logits after each prompt, [r, vocabulary], and the prefix to go on from, if asked for.
        """
        ids, mask, length = self._pad(prompts)
        leanly = None if use_cache else self._lean_model()
        if leanly is not None:
            return leanly(ids, _looks(mask), _positions(ids, mask), None, ids.shape[1]), None
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

    def extend(
        self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any, reach: int
    ) -> torch.Tensor:
        """Reads ids behind what a cache of any kind holds; the logits after the last of each row, [r, vocabulary].

        Args:
            ids: [r, w].
            mask: [r, 1, w, width], True where an id looks; None: at itself and all before.
            positions: [r, w].
            cache: a `transformers.Cache`.
            reach: positions are below it.
        """
        leanly = self._lean_model()
        if leanly is not None:
            return leanly(ids, mask, positions, cache, reach)
        if mask is not None and self._attention == "eager":
            mask = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
        return self._forward(ids, mask, positions, cache, keep=1, use_cache=True)[0][:, -1]

    def _lean_model(self) -> Lean | None:
        if not self._tried_lean:
            self._tried_lean = True
            if not self.local:
                with self.plain():  # what the first batch has on it must not decide
                    self._lean = lean.make(self.model)
        return self._lean

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


def _looks(mask: torch.Tensor | None) -> torch.Tensor | None:
    """Where each id looks, [r, 1, width, width], from which ids are real; padding looks at itself, lest it be no number."""
    if mask is None:
        return None
    at = torch.arange(mask.shape[1], device=mask.device)
    before = at <= at[:, None]
    return (before & mask.bool()[:, None] | (at == at[:, None]))[:, None]


def context(config: Any) -> int | None:
    """Room for ids by a model's text configuration; None where it knows no limit."""
    limits = [limit for limit in (getattr(config, "max_position_embeddings", None), reach(config)) if limit is not None]
    return min(limits, default=None)


def reach(config: Any) -> int | None:
    """Ids up to which a row is read alike, whatever follows and whoever is beside it; None: always.

    The rotary embeddings `longrope` and `dynamic` turn all ids otherwise once a batch holds a longer row: what was sampled
    before would no longer be what the whole sequence says.
    """
    ropes = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    limits: list[int | None] = []
    # one for all layers, or one for each kind of layer
    for rope in [ropes, *ropes.values()]:
        kind = (rope.get("rope_type") or rope.get("type") or "") if isinstance(rope, dict) else ""
        if kind in ("longrope", "su"):
            limits.append(rope.get(_ORIGINAL) or getattr(config, _ORIGINAL, None))
        elif "dynamic" in kind:
            limits.append(getattr(config, "max_position_embeddings", None))
    return min((int(limit) for limit in limits if limit), default=None)


def is_local(config: Any, context: int | None) -> bool:
    """Whether layers may look back over less than everything, as far as a text configuration tells.

    Wrongly yes costs time, wrongly no costs correctness: any number that may be a window's size says yes.
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    if kinds:
        return bool(kinds - {"full_attention"}) and not (
            kinds <= {"full_attention", "sliding_attention"} and _covers(getattr(config, "sliding_window", None), context)
        )
    sizes = [value for name, value in vars(config).items() if _LOCAL.search(name) and not _COUNTS.search(name)]
    return any(
        bool(size) if isinstance(size, list | tuple) else isinstance(size, int) and size > 0 and not _covers(size, context)
        for size in sizes
        if not isinstance(size, bool)
    )


def check_kind(name: str, model: PreTrainedModel) -> None:
    """Refuses models of which more has to be remembered than keys and values, such as state-space models.

    Raises:
        ConfigError: names the policy, the model's class and what can be served.
    """
    base: Any = _base(model)
    kinds = set(getattr(base.config.get_text_config(), "layer_types", None) or ()) - _KINDS
    accepted = inspect.signature(base.forward).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    why = ""
    if kinds:
        why = f"has layers of {', '.join(sorted(map(str, kinds)))}"
    elif getattr(base, "_is_stateful", False):
        why = "carries a state from id to id"
    elif "past_key_values" not in accepted and not open_ended:
        why = "takes no past_key_values"
    if why:
        raise ConfigError(
            f"policy {name!r}: {type(base).__name__} {why}, which this sampler cannot draw from; it serves causal models"
            " whose layers all keep keys and values (full, sliding-window or chunked attention), such as Llama, Qwen2,"
            " Qwen3, Mistral, Gemma, Phi and GPT-2"
        )


def _base(model: PreTrainedModel) -> Any:
    whole: Any = model
    return whole.get_base_model() if hasattr(whole, "get_base_model") else whole


def _covers(window: int | None, context: int | None) -> bool:
    return window is None or (context is not None and window >= context)
