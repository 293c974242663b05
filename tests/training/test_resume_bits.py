"""Train, save, load in a fresh process: the next updates give equal bits."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STEPS, MORE = 3, 3


def program(folder: Path, resume: bool, lora: bool) -> list[str]:
    """Writes or reads `folder/saved`; gives the digests of the updates after it. With `lora`, two adapters learn in turn."""
    from opentinker.config import PolicyConfig, TrainConfig
    from opentinker.training.host import LocalHost
    from opentinker.types import PolicyRef, Sample

    train = TrainConfig(optim={"lr": 1e-2, "weight_decay": 0.01}, ema=0.9, epochs=2, mini_batches=2, loss="clip_cov")
    # the resuming host starts from other weights (or another adapter), so that all of it must come from the checkpoint
    policies = {"learner": PolicyConfig(model="tiny", seed=99 if resume and not lora else 1)}
    if lora:
        adapter = {"rank": 4, "alpha": 8.0, "targets": ["q_proj", "down_proj"]}
        policies = {name: PolicyConfig(model="tiny", seed=1, adapter=adapter) for name in ("learner", "partner")}
    host = LocalHost(policies, train, seed=4, threads=1)
    if lora and resume:
        host._policies["learner"].worker.load_weights({k: v + 1 for k, v in host.snapshot("learner").items()})

    def update(step: int) -> str:
        for policy in policies:
            learn(policy, step)
        digest = hashlib.sha256()
        for policy in policies:
            for name, value in sorted(host.snapshot(policy).items()):
                digest.update(name.encode() + value.numpy().tobytes())
            digest.update(repr(host.score(PolicyRef(policy, "ema"), [[5, 6, 7]], [[70, 80]])).encode())
        return f"{host.version('learner')}:{digest.hexdigest()}"

    def learn(policy: str, step: int) -> None:
        prompts, answers = [[5, 6, 7 + i] for i in range(6)], [[70 + step, 80 + i] for i in range(6)]
        scores = host.score(PolicyRef(policy), prompts, answers)
        rows = [
            Sample(
                policy=policy,
                agent="player_0",
                role="player_0",
                token_ids=(*prompt, *answer),
                loss_mask=(0, 0, 0, 1, 1),
                logprobs=(0.0, 0.0, 0.0, *score),
                advantages=(0.0, 0.0, 0.0, i - 2.5, i - 2.5),
            )
            for i, (prompt, answer, score) in enumerate(zip(prompts, answers, scores, strict=True))
        ]
        host.update(policy, rows, lr=1e-2 / step)

    if resume:
        for policy in policies:
            host.load(policy, folder / "saved" / policy)
    else:
        for step in range(1, STEPS + 1):
            update(step)
        for policy in policies:
            host.save(policy, folder / "saved" / policy)
    digests = [update(step) for step in range(STEPS + 1, STEPS + MORE + 1)]
    host.close()
    return digests


def in_a_fresh_process(folder: Path, lora: bool) -> list[str]:
    call = f"t.program(pathlib.Path({str(folder)!r}), True, {lora})"
    code = f"import json, pathlib, test_resume_bits as t; print(json.dumps({call}))"
    paths = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    digests: list[str] = json.loads(done.stdout.strip().splitlines()[-1])
    return digests


@pytest.mark.parametrize(
    "lora", [pytest.param(False, id="all-weights"), pytest.param(True, id="adapters", marks=pytest.mark.slow)]
)
def test_a_fresh_process_goes_on_bit_for_bit(tmp_path, lora):
    uninterrupted = program(tmp_path, resume=False, lora=lora)
    assert [entry.partition(":")[0] for entry in uninterrupted] == ["4", "5", "6"]
    assert len(set(uninterrupted)) == MORE
    assert in_a_fresh_process(tmp_path, lora) == uninterrupted
