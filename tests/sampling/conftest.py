"""One tiny model for all tests of sampling, and the reference: a plain forward pass over a whole sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import torch

from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.types import Completion, PolicyRef, SamplingParams


@pytest.fixture(scope="session")
def tiny():
    """Model and tokenizer; tests that change weights build their own."""
    return build_tiny(3)


@pytest.fixture
def make_sampler(tiny):
    """A sampler that serves the tiny model as `learner`."""
    made = []

    def make(**settings) -> HFSampler:
        sampler = HFSampler(**settings)
        sampler.add("learner", *tiny)
        made.append(sampler)
        return sampler

    yield make
    for sampler in made:
        sampler.close()


@pytest.fixture
def plain_logprobs():
    """Log-probabilities of a completion by one unpadded forward pass over prompt and completion."""

    def compute(model, prompt: Sequence[int], completion: Sequence[int], temperature: float) -> list[float]:
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *completion]])).logits[0]
        logp = torch.log_softmax(logits[len(prompt) - 1 : -1].float() / (temperature or 1.0), dim=-1)
        return [logp[at, id].item() for at, id in enumerate(completion)]

    return compute


@pytest.fixture
def ask():
    """Draws completions for `(prompt, params)` pairs, all waiting together; keys follow the pairs' order."""

    def run(sampler, pairs: Sequence[tuple[Sequence[int], SamplingParams]], ref: str = "learner") -> list[Completion]:
        async def together():
            return await asyncio.gather(
                *[
                    sampler.sample(PolicyRef.parse(ref), prompt, params, key=(group, 0, "agent", 0, 0))
                    for group, (prompt, params) in enumerate(pairs)
                ]
            )

        return asyncio.run(together())

    return run
