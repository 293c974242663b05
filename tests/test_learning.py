"""What is promised is learned. Minutes of training each, so in the `--all` tier; the shortest ones are in the quick tier."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opentinker.run import train

CONFIGS = Path(__file__).parents[1] / "configs"
UNIFORM = 0.4583  # exploitability of uniform play in Kuhn poker


def _kuhn(tmp_path, *overrides):
    return train(CONFIGS / "kuhn_selfplay.yaml", f"runs_dir={tmp_path}", *overrides)


def test_exploitability_falls_in_a_short_run(tmp_path):
    result = _kuhn(tmp_path, "train.steps=60", "warm_start.steps=50", "evaluate.every=30", "rollout.groups=128")
    assert result.last("eval/exploitability/average") < 0.33  # always-bet, where runs that collapse end, has 0.333


@pytest.mark.slow
@pytest.mark.parametrize("seed", [201, 202, 203])
def test_kuhn_by_self_play(tmp_path, seed):
    result = _kuhn(tmp_path, f"seed={seed}")
    assert result.last("eval/exploitability/ema") <= 0.05
    assert result.last("eval/exploitability/average") <= 0.08
    assert result.last("eval/invalid_mass/ema") <= 0.005


@pytest.mark.slow
@pytest.mark.parametrize("seed", [201, 202, 203])
def test_kuhn_with_a_policy_for_each_seat(tmp_path, seed):
    result = train(CONFIGS / "kuhn_two_policies.yaml", f"runs_dir={tmp_path}", f"seed={seed}")
    assert result.last("eval/exploitability/ema") <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize("seed", [201, 202, 203])
def test_p2_kuhn_with_an_adapter_for_each_seat_on_one_base(tmp_path, seed):
    result = train(CONFIGS / "kuhn_lora.yaml", f"runs_dir={tmp_path}", f"seed={seed}")
    assert result.last("eval/exploitability/ema") <= 0.15
    assert result.last("eval/invalid_mass/ema") <= 0.02


@pytest.mark.slow
def test_every_row_trained_on_the_last_players_reward_ends_worse_than_uniform_play(tmp_path):
    short = ["train.steps=300", "seed=201"]
    wrong = _kuhn(tmp_path, *short, "name=wrong", "train.credit=opentinker.testing.credit:last_player")
    ours = _kuhn(tmp_path, *short)
    assert wrong.last("eval/exploitability/ema") > UNIFORM
    assert wrong.last("eval/exploitability/last") > UNIFORM
    assert ours.last("eval/exploitability/ema") < 0.2


def test_the_best_arm_of_a_bandit(tmp_path):
    result = train(CONFIGS / "bandit.yaml", f"runs_dir={tmp_path}", "rollout.record=1000")
    lines = (result.folder / "episodes" / "step-000060.jsonl").read_text().splitlines()
    chosen = [json.loads(line)["turns"][0]["action"] for line in lines]
    assert len(chosen) == 128
    assert chosen.count("c") / len(chosen) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("seed", [201, 202, 203])
def test_rock_paper_scissors_in_parallel(tmp_path, seed):
    result = train(CONFIGS / "rps_parallel.yaml", f"runs_dir={tmp_path}", f"seed={seed}")
    assert result.last("eval/exploitability/average") <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [201, 202, 203])
def test_tic_tac_toe_by_self_play(tmp_path, seed):
    result = train(CONFIGS / "tictactoe_selfplay.yaml", f"runs_dir={tmp_path}", f"seed={seed}")
    assert result.last("eval/random/loss_rate") <= 0.15
    assert result.last("eval/minimax/draw_rate") >= 0.6
    assert result.last("eval/random/invalid_rate") <= 0.01 and result.last("eval/minimax/invalid_rate") <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("seed", [201, 202, 203])
def test_the_frozen_lake_is_crossed(tmp_path, seed):
    result = train(CONFIGS / "frozenlake.yaml", f"runs_dir={tmp_path}", f"seed={seed}")
    assert result.last("eval/self/return_mean") >= 0.95


@pytest.mark.slow
def test_two_partners_learn_to_listen_to_each_other(tmp_path):
    result = train(CONFIGS / "halves.yaml", f"runs_dir={tmp_path}")
    assert result.rows[0]["eval/self/return_mean"] < 0.4  # a third of the answers is right by chance
    assert result.last("eval/self/return_mean") >= 0.95
    assert result.last("eval/opentinker.experts.halves:teller/return_mean") >= 0.95


@pytest.mark.slow
def test_offers_become_deals(tmp_path):
    result = train(CONFIGS / "negotiation.yaml", f"runs_dir={tmp_path}")
    assert result.rows[0]["eval/self/return_mean"] < 0.2
    assert result.last("eval/self/return_mean") >= 0.4  # one gets all and the other nothing: 0.5
