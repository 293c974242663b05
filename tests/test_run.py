"""The loop from configuration to checkpoints, on real parts: Kuhn poker, verl, the embedded sampler, the tiny model."""

from __future__ import annotations

import copy
import json
import os
import signal
from pathlib import Path

import pytest

from opentinker.config import load_config
from opentinker.errors import ConfigError, Interrupted, RolloutFailed, RunExists
from opentinker.report.record import episode_from_json
from opentinker.run import train
from opentinker.runs.folder import parse_run_ref
from opentinker.runs.status import read_status
from opentinker.training.host import LocalHost

BASE = {
    "name": "run",
    "seed": 3,
    "env": {"id": "kuhn_poker"},
    "coordinator": {"id": "turns"},
    "agents": {
        "player_0": {"policy": "first", "memory": "last", "on_invalid": {"forfeit": -2}},
        "player_1": {"policy": "second", "memory": "last", "on_invalid": {"forfeit": -2}},
    },
    "policies": {
        "first": {"model": "tiny", "sampling": {"max_tokens": 1}},
        "second": {"model": "tiny", "sampling": {"max_tokens": 1}},
    },
    "warm_start": {"player": "random_legal", "steps": 2, "episodes": 8},
    "rollout": {"groups": 8, "group_size": 2, "record_every": 1, "record": 100},
    "train": {
        "credit": "grpo",
        "optim": {"lr": {"start": 1e-3, "end": 1e-5}, "betas": [0.5, 0.9]},
        "ema": 0.9,
        "steps": 3,
        "checkpoint_every": 100,
    },
    "evaluate": {"every": 2, "metrics": ["exploitability"]},
}


def _config(tmp_path: Path, **changes):
    config = copy.deepcopy(BASE)
    config["runs_dir"] = str(tmp_path)
    for path, value in changes.items():
        node = config
        *keys, last = path.split("__")
        for key in keys:
            node = node[key]
        node[last] = value
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return train(_config(runs))


def _episodes(folder: Path, step: int):
    lines = (folder / "episodes" / f"step-{step:06d}.jsonl").read_text().splitlines()
    return [episode_from_json(json.loads(line)) for line in lines]


def _hashes(folder: Path, step: int, policy: str) -> dict[str, str]:
    manifest = json.loads((folder / "checkpoints" / f"step-{step:06d}" / "manifest.json").read_text())
    return {
        name: entry["sha256"]
        for name, entry in manifest["files"].items()
        if name.startswith(f"policies/{policy}/") and name.endswith(".safetensors")
    }


def test_p1_two_policies_with_one_game_both_learn_in_one_run(finished):
    for policy in ("first", "second"):
        before, after = _hashes(finished.folder, 0, policy), _hashes(finished.folder, 3, policy)
        assert before.keys() == after.keys() and before
        assert all(before[name] != after[name] for name in before)
    assert _hashes(finished.folder, 3, "first") != _hashes(finished.folder, 3, "second")


def test_p1_a_frozen_policy_never_changes(tmp_path):
    result = train(_config(tmp_path, policies__second={"model": "tiny", "trainable": False, "sampling": {"max_tokens": 1}}))
    assert _hashes(result.folder, 0, "second") == _hashes(result.folder, 3, "second") != {}
    assert _hashes(result.folder, 0, "first") != _hashes(result.folder, 3, "first")
    assert not any(key.startswith("train/second/") for row in result.rows for key in row)
    turns = [turn for episode in _episodes(result.folder, 3) for turn in episode.turns]
    assert {turn.trainable for turn in turns if turn.policy == "second"} == {False}


def test_p3_step_n_plays_with_version_n_minus_1_and_every_turn_says_so(finished):
    for step in (1, 2, 3):
        turns = [turn for episode in _episodes(finished.folder, step) for turn in episode.turns]
        assert {(turn.version, turn.completion.version) for turn in turns} == {(step - 1, step - 1)}
    assert [row["train/first/version"] for row in finished.rows[1:]] == [1, 2, 3]


def test_e4_members_of_a_group_start_from_the_same_seed_and_only_sampling_differs(finished):
    episodes = _episodes(finished.folder, 1)
    assert len(episodes) == 16
    groups = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    assert all(len({episode.seed for episode in members}) == 1 for members in groups.values())
    assert all(len({episode.turns[0].observation for episode in members}) == 1 for members in groups.values())
    assert len({members[0].seed for members in groups.values()}) == 8
    assert any(a.turns[0].completion != b.turns[0].completion for a, b in groups.values())


def test_p5_the_last_step_saves_although_no_periodic_save_is_due(finished):
    saved = sorted(path.name for path in (finished.folder / "checkpoints").iterdir())
    assert saved == ["step-000000", "step-000003"]


def test_p7_the_schedule_of_the_learning_rate_reaches_the_optimiser(finished):
    rates = [row["train/first/lr"] for row in finished.rows[1:]]
    assert rates == pytest.approx([1e-3, 1e-4, 1e-5])  # exponential: the middle is the geometric mean


def test_the_figures_that_people_look_for_are_there(finished):
    row = finished.rows[-1]
    expected = {
        "step", "time_s", "time/rollout_s", "time/update_s", "time/tokens_per_s",
        "rollout/player_0/return_mean", "rollout/player_0/win_rate", "rollout/player_0/draw_rate",
        "rollout/player_0/loss_rate", "rollout/player_0/turns_mean", "rollout/player_0/invalid_rate",
        "rollout/first/entropy", "rollout/first/reply_tokens_mean", "rollout/all/failed", "train/all/splits",
        "train/first/loss", "train/first/kl", "train/first/grad_norm", "train/first/clip_fraction", "train/first/entropy",
        "eval/exploitability/last", "eval/exploitability/average", "eval/exploitability/ema", "eval/invalid_mass/last",
    }  # fmt: skip
    assert expected <= row.keys()
    assert abs(row["train/first/kl"]) < 1e-5  # one on-policy pass: the sampler's log-probabilities are the trainer's
    assert finished.last("eval/exploitability/ema") == row["eval/exploitability/ema"]
    with pytest.raises(KeyError, match="never measured"):
        finished.last("eval/nothing")
    assert [row["step"] for row in finished.rows] == [0, 1, 2, 3]
    assert finished.curves.read_bytes().startswith(b"\x89PNG")


def test_p6_a_second_run_of_the_same_name_is_refused_with_a_choice(finished):
    config = load_config(finished.folder / "config.yaml")
    before = (finished.folder / "metrics.jsonl").read_bytes()
    with pytest.raises(RunExists, match=r"--resume.*name="):
        train(config)
    with pytest.raises(ConfigError, match=r"seed: 3 there, 5 now"):
        train(config, "train.steps=4", "seed=5", resume=True)
    assert (finished.folder / "metrics.jsonl").read_bytes() == before


def test_resuming_a_finished_run_changes_nothing(finished):
    before = (finished.folder / "metrics.jsonl").read_bytes()
    again = train(load_config(finished.folder / "config.yaml"), resume=True)
    assert again.rows == finished.rows
    assert (finished.folder / "metrics.jsonl").read_bytes() == before


class _Stopper:
    """Sends this process a signal once a step is done."""

    def __init__(self, step: int, signum: int) -> None:
        self._at, self._signum = step, signum

    def begin(self, config, done):
        pass

    def warm(self, done, total):
        if self._at == 0:
            os.kill(os.getpid(), self._signum)

    def step(self, row):
        if row["step"] == self._at:
            os.kill(os.getpid(), self._signum)

    def stopping(self, what):
        self.told = what

    def leaving(self, signum):
        pass


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_p5_a_polite_signal_saves_and_the_run_goes_on_to_equal_figures(tmp_path, finished, signum):
    handler = signal.getsignal(signum)
    stopper = _Stopper(2, signum)
    with pytest.raises(Interrupted, match=r"after step 2 of 3.*opentinker resume .*run .*--resume") as stopped:
        train(_config(tmp_path), progress=stopper)
    assert stopped.value.signum == signum
    assert stopper.told == "step 2"
    status = read_status(tmp_path / "run")
    assert (status.state, status.step, status.steps) == ("interrupted", 2, 3) and "after step 2 of 3" in status.error
    assert signal.getsignal(signum) is handler
    assert (tmp_path / "run" / "checkpoints" / "step-000002" / "manifest.json").exists()
    result = train(_config(tmp_path), resume=True)
    assert _without_clock(result.rows) == _without_clock(finished.rows)


def test_a_seat_for_nobody_is_told(tmp_path, caplog):
    config = _config(tmp_path, agents__player_2={"policy": "first"}, train__steps=1, warm_start=None, evaluate={})
    train(config)
    assert "agents.player_2 seats nobody known before a game; did you mean 'player_" in caplog.text


def test_the_learning_rate_of_the_warm_start_moves_from_its_start_to_its_end(tmp_path, monkeypatch):
    rates = []
    fit = LocalHost.fit

    def watched(host, policy, samples, *, lr):
        rates.append(lr)
        return fit(host, policy, samples, lr=lr)

    monkeypatch.setattr(LocalHost, "fit", watched)
    warm = {"player": "random_legal", "steps": 3, "episodes": 2, "lr": {"start": 4e-3, "end": 1e-3}}
    train(_config(tmp_path, warm_start=warm, train__steps=1))
    assert rates[::2] == rates[1::2] == pytest.approx([4e-3, 2e-3, 1e-3])


def test_a_signal_during_the_warm_start_stops_at_once(tmp_path):
    with pytest.raises(Interrupted, match="warm start"):
        train(_config(tmp_path), progress=_Stopper(0, signal.SIGINT))
    result = train(_config(tmp_path, train__steps=1), "name=other")
    assert result.rows[-1]["step"] == 1


def _without_clock(rows):
    return [{key: value for key, value in row.items() if "time" not in key} for row in rows]


def test_a_run_of_one_seed_is_one_run_and_another_seed_another(tmp_path, finished):
    again = train(_config(tmp_path))
    assert _without_clock(again.rows) == _without_clock(finished.rows)
    other = train(_config(tmp_path, train__steps=1), "seed=4", "name=other")
    assert other.rows[1]["train/first/loss"] != finished.rows[1]["train/first/loss"]


def test_two_seats_may_share_a_policy_and_a_script_may_sit_in_one(tmp_path):
    shared = _config(tmp_path, agents={"*": {"policy": "first", "memory": "last"}}, train__steps=1)
    del shared["policies"]["second"]
    result = train(shared)
    assert {turn.policy for episode in _episodes(result.folder, 1) for turn in episode.turns} == {"first"}
    scripted = _config(tmp_path, agents__player_1={"player": "random_legal"}, train__steps=1, evaluate={})
    del scripted["policies"]["second"]
    result = train(scripted, "name=scripted")
    played = [turn for episode in _episodes(result.folder, 1) for turn in episode.turns if turn.agent == "player_1"]
    assert played and all(turn.policy is None and turn.completion is None and not turn.trainable for turn in played)


def test_training_works_where_an_event_loop_already_runs(tmp_path):
    import asyncio

    async def notebook():
        return train(_config(tmp_path, train__steps=1, warm_start=None, evaluate={}))

    assert asyncio.run(notebook()).rows[-1]["step"] == 1


def test_failed_episodes_of_a_run_that_they_end_are_on_disk(tmp_path):
    config = _config(
        tmp_path,
        env={"id": "opentinker.testing:RaisingEnv", "kwargs": {"at": 1}},
        coordinator={"id": "solo"},
        agents={"agent": {"policy": "first", "memory": "last"}},
        warm_start=None,
        evaluate={},
    )
    del config["policies"]["second"]
    with pytest.raises(RolloutFailed):
        train(config)
    episodes = _episodes(tmp_path / "run", 1)
    assert len(episodes) == 16 and all("the world broke" in episode.error for episode in episodes)


def test_a_second_run_in_one_process_at_the_same_time_is_refused(tmp_path):
    from opentinker.run import _ONE_RUN

    with _ONE_RUN, pytest.raises(ConfigError, match="another run trains in this process"):
        train(_config(tmp_path))


def test_a_loop_of_ones_own_is_made_of_public_calls(tmp_path):
    import opentinker

    rules = [f"agents.{agent}.on_invalid={{penalty: -1}}" for agent in ("player_0", "player_1")]
    config = opentinker.load_config(_config(tmp_path), rules)
    host = opentinker.LocalHost(config.policies, config.train, seed=1, threads=1)
    credit, state = opentinker.make_credit("rae"), {}
    for step in (1, 2):
        groups = opentinker.rollout(config, host, step=step)
        result = credit(groups, state)
        state = result.state
        samples, _ = opentinker.to_samples(groups, result.advantages)
        for policy in config.policies:
            update = host.update(policy, [sample for sample in samples if sample.policy == policy], lr=1e-3)
            assert update.version == step
    host.close()


# What a run says of itself, keeps, and goes on with.


def test_a_finished_run_says_so(finished):
    status = read_status(finished.folder)
    assert (status.state, status.step, status.steps, status.error) == ("finished", 3, 3, "")


def test_a_failed_run_says_why_with_its_traceback(tmp_path):
    class Bug:
        def step(self, row):
            raise ZeroDivisionError("a bug")

        begin = warm = stopping = leaving = lambda *_: None

    with pytest.raises(ZeroDivisionError):
        train(_config(tmp_path), progress=Bug())
    status = read_status(tmp_path / "run")
    assert (status.state, status.step, status.error) == ("failed", 1, "ZeroDivisionError: a bug")
    assert "in step" in status.traceback and "test_run.py" in status.traceback


class _Impatient(_Stopper):
    """Presses Ctrl-C twice in a row."""

    def step(self, row):
        if row["step"] == self._at:
            os.kill(os.getpid(), signal.SIGINT)

    def stopping(self, what):
        os.kill(os.getpid(), signal.SIGINT)


def test_p5_a_second_ctrl_c_stops_at_once_and_the_run_goes_on_to_equal_figures(tmp_path, finished):
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(_config(tmp_path), progress=_Impatient(2, signal.SIGINT))
    assert signal.getsignal(signal.SIGINT) is handler
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000000"]
    status = read_status(tmp_path / "run")
    assert (status.state, status.step, status.error) == ("interrupted", 2, "stopped at once by a second signal")
    result = train(_config(tmp_path), resume=True)
    assert _without_clock(result.rows) == _without_clock(finished.rows)


CONSTANT = {"credit": "rae", "optim": {"lr": 1e-3}, "ema": 0.9, "steps": 4, "checkpoint_every": 3}


def test_p4_a_run_is_lengthened_and_is_then_the_run_that_was_long_from_the_start(tmp_path):
    whole = train(_config(tmp_path, train=CONSTANT), "name=whole")
    train(_config(tmp_path, train=CONSTANT), "train.steps=2")
    longer = train(_config(tmp_path, train=CONSTANT), resume=True)
    measured = {key for row in whole.rows for key in row if key.startswith("eval/")}
    strip = [{key: value for key, value in row.items() if key not in measured} for row in _without_clock(whole.rows)]
    assert [{k: v for k, v in row.items() if k not in measured} for row in _without_clock(longer.rows)] == strip
    assert longer.last("eval/exploitability/average") == whole.last("eval/exploitability/average")
    assert _hashes(longer.folder, 4, "first") == _hashes(whole.folder, 4, "first") != {}
    assert read_status(longer.folder).steps == load_config(longer.folder / "config.yaml").train.steps == 4


def test_what_is_kept_measured_and_written_may_change_and_moves_no_bit(tmp_path, finished):
    free = [
        "evaluate.every=1", "train.checkpoint_every=1", "train.keep_last=1", "rollout.record=0", "loggers=[tensorboard]",
        "train.keep_best={figure: eval/exploitability/ema, goal: min}", "evaluate.opponents=[random]", "evaluate.games=4",
    ]  # fmt: skip
    result = train(_config(tmp_path), *free)
    ours = [{key: value for key, value in row.items() if not key.startswith("eval/")} for row in _without_clock(result.rows)]
    theirs = [{key: row[key] for key in row if not key.startswith("eval/")} for row in _without_clock(finished.rows)]
    assert ours == theirs
    assert _hashes(result.folder, 3, "first") == _hashes(finished.folder, 3, "first")
    figures = [row["eval/exploitability/ema"] for row in result.rows]
    kept = sorted({figures.index(min(figures)), 3})
    assert [path.name for path in sorted((result.folder / "checkpoints").iterdir())] == [f"step-{n:06d}" for n in kept]
    assert parse_run_ref(f"{result.folder}@best").load().step == kept[0]


def test_p7_p8_batch_settings_given_as_overrides_reach_verl_and_nothing_is_dropped(tmp_path, monkeypatch):
    from opentinker.training.host import LocalHost

    workers = []
    close = LocalHost.close

    def look(host):
        workers.extend(policy.worker for policy in host._policies.values())
        close(host)

    monkeypatch.setattr(LocalHost, "close", look)
    result = train(
        _config(tmp_path, warm_start=None),
        "train.steps=1", "train.epochs=2", "train.mini_batches=3", "train.optim.lr=3e-4", "train.optim.betas=[0.3, 0.7]",
        "train.optim.weight_decay=0.25", "train.optim.clip=0.125", "train.clip_ratio=0.3", "train.entropy_coeff=0.01",
        "train.loss=gpg", "train.loss_agg=token-sum", "train.micro_batch_tokens=99",
        "train.merge_identical=false",
    )  # fmt: skip
    row = result.rows[1]
    assert row["train/first/steps"] == 6 and row["train/first/lr"] == 3e-4
    played = [policy for policy in ("first", "second") if f"train/{policy}/rows" in row]
    trained = sum(row[f"train/{policy}/rows"] * row[f"train/{policy}/steps"] for policy in played)
    assert trained == pytest.approx(2 * row["train/all/samples"])  # two epochs; three does not divide the samples
    assert row["train/all/samples"] % 3 != 0
    for worker in workers:
        (group,) = worker.engine.optimizer.param_groups
        assert (group["lr"], group["betas"], group["weight_decay"]) == (3e-4, (0.3, 0.7), 0.25)
        assert worker.engine.optimizer_config.clip_grad == 0.125
        actor, micro = worker.actor, worker.train.micro_batch_tokens
        assert (actor.clip_ratio, actor.clip_ratio_low, actor.clip_ratio_high, actor.entropy_coeff) == (0.3, 0.3, 0.3, 0.01)
        assert (actor.policy_loss.loss_mode, actor.loss_agg_mode, micro) == ("gpg", "token-sum", 99)
    assert len(workers) == 2


@pytest.mark.parametrize("early", [0, 1])
def test_p5_signals_after_the_last_checkpoint_leave_a_finished_run(tmp_path, monkeypatch, early):
    """`early`: signals that came while the last step was done."""

    def plot(*rest):
        assert read_status(tmp_path / "run").state == "finished"
        os.kill(os.getpid(), signal.SIGINT)

    stopper = _Stopper(3 if early else -1, signal.SIGINT)
    monkeypatch.setattr("opentinker.run.plot_curves", plot)
    with pytest.raises(KeyboardInterrupt):
        train(_config(tmp_path), progress=stopper)
    assert getattr(stopper, "told", None) == ("step 3" if early else None)  # no promise to finish what is saved
    status = read_status(tmp_path / "run")
    assert (status.state, status.step, status.error) == ("finished", 3, "")
    monkeypatch.undo()
    assert len(train(_config(tmp_path), resume=True).rows) == 4
