import json

import pytest

from opentinker.config import load_config
from opentinker.errors import ConfigError
from opentinker.runs.changes import (
    FREE,
    MACHINE,
    SCHEDULES,
    Change,
    changes,
    consequences,
    cut,
    read_changes,
    record,
    refuse,
)


def config(*overrides, lr=1e-3):
    data = {
        "env": {"id": "kuhn_poker"},
        "coordinator": {"id": "turns"},
        "agents": {"*": {"policy": "learner"}},
        "policies": {"learner": {"model": "tiny"}},
        "train": {"steps": 100, "optim": {"lr": lr}},
    }
    return load_config(data, overrides)


def said(*overrides, done=50, old=()):
    before, now = config(*old), config(*old, *overrides)
    return consequences(changes(before, now), before, now, done)


def test_every_key_that_may_change_is_a_key():
    tree = config("train.keep_best={figure: x, goal: min}").dump()
    for key in (*FREE, *MACHINE, *SCHEDULES):
        node = tree
        for name in key.split("."):
            node = node[name]


def test_name_and_folder_are_no_changes():
    assert changes(config(), config("name=other", "runs_dir=elsewhere")) == []


def test_what_is_kept_measured_and_written_changes_nothing_about_the_training():
    overrides = [
        "train.checkpoint_every=7", "train.keep_last=1", "train.keep_best={figure: x, goal: max}", "evaluate.every=3",
        "evaluate.opponents=[random]", "evaluate.games=8", "rollout.record=1", "rollout.record_every=2",
        "rollout.max_failed_fraction=0.5", "loggers=[wandb]",
    ]  # fmt: skip
    assert said(*overrides) == []


def test_what_moves_the_last_bits_is_said():
    (sentence,) = said("runtime.threads=2", "train.micro_batch_tokens=512")
    assert sentence.startswith("from step 51 on the figures need not be those of an uninterrupted run bit for bit: ")
    assert "runtime.threads: 1 there, 2 now" in sentence and "train.micro_batch_tokens: 65536 there, 512 now" in sentence


def test_more_steps_with_constant_schedules_are_simply_more_steps():
    assert said("train.steps=200", done=100) == []


def test_more_steps_move_the_end_of_a_schedule_and_the_jump_is_said():
    old = ["train.optim.lr={start: 1.0, end: 0.01}", "train.legal_entropy=0.5"]
    (sentence,) = said("train.steps=199", done=100, old=old)
    # exponential: 0.01 at the old end; at step 101 of 199, 100 of 198 intervals are done: 0.01 ** (100 / 198)
    assert sentence == (
        "train.optim.lr goes from 1 at step 1 to 0.01 at step 199 from now on: 0.01 at step 100, "
        f"{0.01 ** (100 / 198):.4g} at step 101"
    )
    assert said("train.steps=100", done=100, old=old) == []


def test_a_new_learning_rate_holds_from_the_next_step_on():
    assert said("train.optim.lr=1e-4") == [
        "train.optim.lr goes from 0.0001 at step 1 to 0.0001 at step 100 from now on: 0.001 at step 50, 0.0001 at step 51"
    ]


@pytest.mark.parametrize(
    "override",
    [
        "seed=1", "env.id=bandit", "env.action_names=[a]", "coordinator.kwargs={a: 1}", "agents.*.memory=last",
        "policies.learner.sampling.temperature=0.5", "warm_start={player: random, steps: 1}", "rollout.groups=2",
        "rollout.group_size=2", "train.credit=rae", "train.ema=0.9", "train.optim.clip=2.0", "train.optim.betas=[0.1, 0.9]",
        "train.epochs=2", "train.mini_batches=2", "evaluate.average_from=9", "evaluate.metrics=[exploitability]",
    ],
)  # fmt: skip
def test_p6_what_makes_another_run_of_it_is_refused(override, tmp_path):
    new = config(override, "train.steps=120")
    with pytest.raises(ConfigError) as caught:
        refuse(changes(config(), new), new, tmp_path / "one", 50)
    text = str(caught.value)
    assert f"  {override.partition('=')[0]}" in text and "  train.steps: 100 there, 120 now (may change)\n" in text
    assert f"run 'one' in {tmp_path / 'one'} has another configuration" in text
    for key in (*FREE, *MACHINE, *SCHEDULES):
        assert key in text.splitlines()[-1]


def test_a_key_that_only_begins_like_one_is_none_of_it():
    assert not Change("train.optim.lrx", 1, 2).is_of(SCHEDULES)
    assert Change("train.optim.lr.start", 1, 2).is_of(SCHEDULES)


def test_a_record_of_values_that_never_held_is_dropped(tmp_path):
    before, now = config(), config("train.steps=120")
    record(tmp_path, changes(before, now), 50)
    cut(tmp_path, 50, now)
    assert len(read_changes(tmp_path)) == 1
    cut(tmp_path, 50, before)
    assert read_changes(tmp_path) == []


def test_a_record_that_is_none_of_ours_is_told(tmp_path):
    (tmp_path / "config_changes.jsonl").write_text("nonsense\n")
    with pytest.raises(ConfigError, match=r"config_changes\.jsonl is not what this version writes"):
        read_changes(tmp_path)


def test_the_record_is_json_whatever_changed(tmp_path):
    before, now = config(), config("train.keep_best={figure: x, goal: min}", "loggers=[wandb]")
    record(tmp_path, changes(before, now), 3)
    (line,) = map(json.loads, (tmp_path / "config_changes.jsonl").read_text().splitlines())
    assert line["changed"]["train.keep_best"] == {"old": None, "new": {"figure": "x", "goal": "min"}}
