"""A small transformer and a byte-level chat tokenizer, built on the spot: the default model, nothing to download."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

CONTEXT = 1024
"""Positions of the tiny model, prompt and completion together."""

_SPECIAL = ("<pad>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def build_tiny(seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The tiny policy: a Qwen2 of 2 layers, width 64, float32, on the CPU, and its tokenizer of 259 ids.

    Equal seeds give equal weights; torch's global generator is left as it was.

    Args:
        seed: of the random weights, in [0, 2**63).
    """
    config = Qwen2Config(
        vocab_size=len(_SPECIAL) + 256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        # at the usual 0.02 a model this narrow starts out uniform and learns far more slowly
        initializer_range=0.15,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    with torch.random.fork_rng(devices=[]):
        # the CPU's generator only: torch.manual_seed would also reseed every accelerator
        torch.default_generator.manual_seed(seed)
        model = Qwen2ForCausalLM(config)  # type: ignore[no-untyped-call]
    return model.float().eval(), build_tokenizer()  # type: ignore[no-untyped-call]


def build_tokenizer() -> PreTrainedTokenizerBase:
    """One id a byte, plus padding, `<|im_start|>` and `<|im_end|>` (end of text), with a ChatML template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: index for index, token in enumerate([*_SPECIAL, *alphabet])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in _SPECIAL])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, pad_token="<pad>", eos_token="<|im_end|>", unk_token="<pad>", model_max_length=CONTEXT
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def save_tiny(folder: str | Path, seed: int) -> None:
    """Writes model and tokenizer of `build_tiny(seed)` in Hugging Face layout; the folder is made where it is missing."""
    model, tokenizer = build_tiny(seed)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
