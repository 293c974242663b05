"""Every configuration that ships starts, trains a little and measures what it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from opentinker.config import load_config
from opentinker.run import train

CONFIGS = sorted((Path(__file__).parents[1] / "configs").glob("*.yaml"))


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_a_configuration_runs(file, tmp_path):
    config = load_config(file)
    short = ["train.steps=2", "warm_start.steps=30", "warm_start.episodes=16", "rollout.groups=16", "evaluate.games=4"]
    result = train(config, f"runs_dir={tmp_path}", *short)
    row = result.rows[-1]
    assert row["step"] == 2 and row["rollout/all/failed"] == 0
    trained = {key.split("/")[1] for key in row if key.startswith("train/") and key.endswith("/version")}
    assert trained == set(config.policies)
    for metric in config.evaluate.metrics:
        assert f"eval/{metric}/last" in row
    for opponent in config.evaluate.opponents:
        assert f"eval/{opponent}/return_mean" in row
