from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from opentinker.config import AdapterConfig, TrainConfig
from opentinker.sampling.tiny import save_tiny
from opentinker.training.adapters import adapter_shape
from opentinker.training.bringup import bring_up
from opentinker.types import Sample


def make_sample(
    prompt: Sequence[int],
    *parts: Sequence[int],
    logprobs: Sequence[float] | None = None,
    advantages: float | Sequence[float] = 1.0,
    policy: str = "learner",
    agent: str = "player_0",
    episode: str = "",
    temperature: float = 1.0,
    weight: int = 1,
) -> Sample:
    """A row: prompt, then sampled and glue ids in turn. `logprobs` and `advantages` are given per sampled id."""
    ids, mask = list(prompt), [0] * len(prompt)
    for index, part in enumerate(parts):
        ids += part
        mask += [1 - index % 2] * len(part)
    count = sum(mask)
    per_id = [advantages] * count if isinstance(advantages, (int, float)) else list(advantages)
    old = [0.0] * count if logprobs is None else list(logprobs)
    spread = [iter(per_id), iter(old)]
    return Sample(
        policy=policy,
        agent=agent,
        role=agent,
        token_ids=tuple(ids),
        loss_mask=tuple(mask),
        advantages=tuple(float(next(spread[0])) if scored else 0.0 for scored in mask),
        logprobs=tuple(float(next(spread[1])) if scored else 0.0 for scored in mask),
        episode=episode,
        temperature=temperature,
        weight=weight,
    )


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, 11)
    return folder


@pytest.fixture(scope="session")
def plain(tiny: Path) -> Any:
    """The same weights as a plain Hugging Face model."""
    from opentinker.training.models import load_model

    return load_model(tiny)


@pytest.fixture(scope="session")
def make_worker(tiny: Path) -> Callable[..., Any]:
    """Builds a worker on the tiny model; keyword arguments go to `TrainConfig`."""
    torch.set_num_threads(1)
    bring_up()
    from opentinker.training.worker import PolicyWorker

    return lambda **settings: PolicyWorker(str(tiny), TrainConfig(**settings), {})


@pytest.fixture(scope="session")
def make_engine(tiny: Path) -> Callable[..., Any]:
    """Builds an engine for adapters on the tiny model: (settings of the adapter, settings of training) to (engine, base)."""
    torch.set_num_threads(1)
    bring_up()
    from opentinker.training.lora import Base
    from opentinker.training.models import load_model, load_tokenizer

    def make(adapter: dict[str, Any], **settings: Any) -> tuple[Any, Any]:
        base = Base(tiny, TrainConfig(**settings), load_model(tiny), load_tokenizer(tiny))
        return base.engine(adapter_shape("a", AdapterConfig(**adapter), base.model)), base

    return make


@pytest.fixture(scope="session")
def gradients() -> Callable[..., dict[str, torch.Tensor]]:
    """The gradient of a worker's loss on some samples, by parameter; the worker's own is clear again afterwards."""
    from opentinker.training.batch import make_rows
    from opentinker.training.worker import local

    def compute(worker: Any, samples: Sequence[Sample], loss: str = "ppo") -> dict[str, torch.Tensor]:
        worker.accumulate(make_rows(samples), getattr(worker, loss))
        found = {name: local(value.grad).clone() for name, value in worker.parameters()}
        worker.engine.optimizer_zero_grad()
        return found

    return compute


@pytest.fixture(scope="session")
def sample() -> Callable[..., Sample]:
    return make_sample
