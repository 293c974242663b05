import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from opentinker.config import (
    OnInvalid,
    PolicyConfig,
    SamplingConfig,
    Schedule,
    SeatConfig,
    Settings,
    Window,
    dump_yaml,
    load_config,
)
from opentinker.errors import ConfigError

FULL = {
    "name": "whole-1.x",
    "seed": 3,
    "runs_dir": "elsewhere",
    "env": {
        "id": "gymnasium/FrozenLake-v1",
        "kwargs": {"map": [[1, 2.5], ["1e-3", None]], "flags": {"on": True, 4: "four"}, "high": math.inf},
        "isolation": "process",
        "step_timeout": None,
        "action_names": ["left", "yes"],
        "action_units": {"force": "N", "at": ["m", None]},
        "observation_units": ["m", "m/s"],
        "render": "my.views:show",
        "parse": "my.views:read",
    },
    "coordinator": {"id": "my.module:Mine", "kwargs": {"rounds": 2}, "turn_timeout": 1.5, "episode_timeout": 60},
    "agents": {
        "player_*": {
            "policy": "a@ema",
            "role": "Spieler 🂡",
            "system": "Line one.\nLine two: 'x' \"y\" \u2028 end",
            "memory": "window(3)",
            "format": "json",
            "on_invalid": {"truncate": -0.5, "retry": 2, "others": "keep"},
        },
        "team.1": {"policy": "b", "memory": {"window": 1}, "on_invalid": "forfeit"},
        "*": {"player": "always:p"},
    },
    "policies": {
        "a": {"model": "tiny", "seed": 5, "sampling": {"max_tokens": 1, "temperature": 0.5, "stop": ["\n", "1e5"]}},
        "b": {
            "model": "some/folder",
            "adapter": {"rank": 8, "alpha": 4.0, "targets": ["q", "v"]},
            "trainable": False,
            "sampling": {"top_p": 0.9, "top_k": 5},
        },
    },
    "warm_start": {"player": "random_legal", "steps": 0, "lr": {"start": 0.01, "end": 0.001}, "episodes": 2},
    "rollout": {"groups": 1, "group_size": 2, "concurrency": 3, "max_failed_fraction": 0, "record_every": 4, "record": 0},
    "train": {
        "credit": "rae",
        "credit_kwargs": {"decay": 0.9},
        "loss": "gspo",
        "loss_agg": "token-sum",
        "clip_ratio": 0.1,
        "entropy_coeff": 0.01,
        "legal_entropy": {"start": 0.5, "end": 0.1},
        "epochs": 2,
        "mini_batches": 3,
        "micro_batch_tokens": 100,
        "merge_identical": False,
        "optim": {"lr": 2e-05, "betas": [0.0, 0.9], "weight_decay": 0.1, "clip": 0.5},
        "ema": 0.5,
        "steps": 7,
        "checkpoint_every": 2,
        "keep_last": 3,
        "keep_best": {"figure": "eval/exploitability/last", "goal": "min"},
    },
    "evaluate": {
        "every": 3,
        "metrics": ["exploitability"],
        "average_from": 2,
        "opponents": ["random"],
        "games": 8,
        "policy_version": "ema",
        "temperature": 0.5,
    },
    "runtime": {"kind": "local", "deterministic": False, "threads": 2, "kv_cache_mib": 64},
    "loggers": ["wandb"],
}
"""Every key, each away from its default where there is another value."""

MINIMAL = {"env": {"id": "x"}, "coordinator": {"id": "y"}, "agents": {"*": {"player": "z"}}}


def leaves(model, path=()):
    """Every field of a tree of settings that holds no settings itself."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if hasattr(type(value), "model_fields"):
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def test_full_gives_every_field_another_value():
    full = dict(leaves(load_config(FULL)))
    same = {path for path, value in leaves(load_config(MINIMAL)) if full.get(path, "below") == value}
    assert same == {("runtime", "kind")}


def test_a_dumped_tree_loads_as_an_equal_tree(tmp_path):
    config = load_config(FULL)
    file = tmp_path / "config.yaml"
    file.write_text(dump_yaml(config.dump()), encoding="utf-8")
    assert load_config(file) == config
    assert load_config(file).dump() == config.dump()
    assert load_config(config) == load_config(config.dump()) == config
    assert load_config(config, ["seed=4"]).seed == 4


def test_short_forms_become_whole_ones():
    config = load_config(FULL)
    assert config.agents["player_*"].memory == Window(window=3)
    assert config.agents["player_*"].on_invalid == OnInvalid(then="truncate", penalty=-0.5, retry=2, others="keep")
    assert config.agents["team.1"].on_invalid == OnInvalid(then="forfeit")
    assert config.train.optim.lr == Schedule(start=2e-5, end=2e-5)
    assert config.train.optim.betas == (0.0, 0.9)


@pytest.mark.parametrize(
    ("start", "end", "step", "steps", "value"),
    [
        (0.5, 0.1, 0, 3, 0.5),
        (0.5, 0.1, 1, 3, math.sqrt(0.05)),
        (0.5, 0.1, 2, 3, 0.1),
        (1e-3, 1e-5, 1, 5, 1e-3 * 10**-0.5),
        (0.4, 0.0, 1, 5, 0.3),  # linear: a quarter of the way from 0.4 to 0
        (0.0, 1.0, 3, 5, 0.75),
        (0.4, 0.0, 4, 5, 0.0),
        (0.5, 0.1, 0, 1, 0.5),  # a single step
        (0.5, 0.1, 7, 1, 0.5),
        (0.5, 0.1, 9, 3, 0.1),  # beyond the end it stays
        (0.2, 0.2, 5, 9, 0.2),
        (0.0, 0.0, 2, 4, 0.0),
    ],
)
def test_schedule_by_hand(start, end, step, steps, value):
    assert Schedule(start=start, end=end).at(step, steps) == pytest.approx(value, rel=1e-12, abs=0)


POSITIVE = st.floats(min_value=0, max_value=1e300)


@given(POSITIVE, POSITIVE, st.integers(2, 50), st.data())
def test_a_schedule_begins_and_ends_where_it_says_and_stays_between(start, end, steps, data):
    schedule = Schedule(start=start, end=end)
    assert schedule.at(0, steps) == start
    assert schedule.at(steps - 1, steps) == end
    value = schedule.at(data.draw(st.integers(0, steps - 1)), steps)
    assert min(start, end) * (1 - 1e-9) <= value <= max(start, end) * (1 + 1e-9)


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        SamplingConfig().max_tokens = 3


def test_defaults_are_not_shared():
    one, two = load_config(MINIMAL), load_config(MINIMAL)
    one.env.kwargs["x"] = 1
    assert two.env.kwargs == {}


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "a b", "x\n", "a@b", "-x", "n" * 101])
def test_names_that_would_leave_their_folder_are_refused(name):
    with pytest.raises(ConfigError, match=r"^name: must "):
        load_config({**FULL, "name": name})
    with pytest.raises(ConfigError, match=r"^policies\."):
        load_config({**FULL, "policies": {**FULL["policies"], name: {"model": "tiny"}}})


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("lerner", r"^agents.\*.policy: not in `policies`; did you mean 'learner'\? \(given: 'lerner'\)$"),
        ("zzz", r"^agents.\*.policy: not in `policies`; it has \['learner'\] \(given: 'zzz'\)$"),
        ("learner@emma", "unknown version 'emma'; use learner, learner@latest or learner@ema"),
        ("learner@ema", "averaged weights are kept for a policy that trains, with train.ema above 0"),
    ],
)
def test_a_seat_names_a_policy_that_is_there(policy, told):
    data = {
        "env": {"id": "x"},
        "coordinator": {"id": "y"},
        "agents": {"*": {"policy": policy}},
        "policies": {"learner": {"model": "tiny"}},
    }
    with pytest.raises(ConfigError, match=told):
        load_config(data)


def test_all_wrong_references_are_told_at_once_and_unused_policies_too():
    data = {
        "env": {"id": "x"},
        "coordinator": {"id": "y"},
        "agents": {"a": {"policy": "one"}, "b": {"policy": "two@3"}},
        "policies": {"two": {"model": "tiny"}, "three": {"model": "tiny"}},
    }
    with pytest.raises(ConfigError) as caught:
        load_config(data)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["agents.a.policy", "agents.b.policy"]
    data["agents"] = {"b": {"policy": "two"}}
    with pytest.raises(ConfigError, match=r"^policies \['three'\] are used by no agent"):
        load_config(data)


@pytest.mark.parametrize("seat", [{"policy": "p", "player": "q"}, {"role": "r"}])
def test_a_seat_has_one_occupant(seat):
    with pytest.raises(ValidationError, match="give either `policy` or `player`, not (both|neither)"):
        SeatConfig(**seat)


def test_a_policy_that_trains_samples_its_full_distribution():
    for sampling in (SamplingConfig(top_p=0.9), SamplingConfig(top_k=3)):
        with pytest.raises(ValidationError, match=r"leave sampling.top_p at 1 and sampling.top_k at 0"):
            PolicyConfig(model="tiny", sampling=sampling)
        assert PolicyConfig(model="tiny", trainable=False, sampling=sampling).sampling == sampling


def test_every_field_says_what_it_means():
    def all_models(kind):
        yield kind
        for below in kind.__subclasses__():
            yield from all_models(below)

    fields = [(model.__name__, name, field) for model in all_models(Settings) for name, field in model.model_fields.items()]
    assert len(fields) > 60
    assert [(model, name) for model, name, field in fields if not field.description] == []
