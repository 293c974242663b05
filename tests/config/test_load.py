import copy
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opentinker.config import RunConfig, Schedule, Window, load_config
from opentinker.errors import ConfigError

BASE = {
    "env": {"id": "kuhn_poker"},
    "coordinator": {"id": "turns"},
    "agents": {"*": {"policy": "learner"}},
    "policies": {"learner": {"model": "tiny"}},
}


def told(*overrides, **changes):
    """The lines of the error that a configuration gives."""
    with pytest.raises(ConfigError) as caught:
        load_config({**copy.deepcopy(BASE), **changes}, overrides)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("sed=1", "sed: unknown key; did you mean 'seed'?"),
        ("env.kwarg={}", "env.kwarg: unknown key; did you mean 'kwargs'?"),
        ("coordinator.turn_timeot=1", "coordinator.turn_timeot: unknown key; did you mean 'turn_timeout'?"),
        ("agents.*.memry=last", "agents.*.memry: unknown key; did you mean 'memory'?"),
        ("agents.*.on_invalid.penality=-1", "agents.*.on_invalid.penality: unknown key; did you mean 'penalty'?"),
        ("agents.*.on_invalid.forfiet=-1", "agents.*.on_invalid.forfiet: unknown key; did you mean 'forfeit'?"),
        ("policies.learner.modl=x", "policies.learner.modl: unknown key; did you mean 'model'?"),
        (
            "policies.learner.sampling.max_token=1",
            "policies.learner.sampling.max_token: unknown key; did you mean 'max_tokens'?",
        ),
        ("policies.learner.adapter={rank: 1, alfa: 2}", "policies.learner.adapter.alfa: unknown key; did you mean 'alpha'?"),
        ("warm_start={player: x, steps: 1, episode: 2}", "warm_start.episode: unknown key; did you mean 'episodes'?"),
        ("rollout.group=1", "rollout.group: unknown key; did you mean 'groups'?"),
        ("train.step=1", "train.step: unknown key; did you mean 'steps'?"),
        ("train.optim.beta=1", "train.optim.beta: unknown key; did you mean 'betas'?"),
        ("train.optim.lr={start: 1, end: 1, ennd: 2}", "train.optim.lr.ennd: unknown key; did you mean 'end'?"),
        ("evaluate.evry=1", "evaluate.evry: unknown key; did you mean 'every'?"),
        ("runtime.zzz=1", "runtime.zzz: unknown key; valid here: deterministic, kind, kv_cache_mib, threads"),
    ],
)
def test_unknown_keys_at_every_depth_name_the_nearest_valid_one(override, line):
    assert told(override) == [line]


@pytest.mark.parametrize(
    "name", ["sampling", "Window", "Schedule", "str", "model", "literal['x']", "function-before[x]", "[key]"]
)
def test_names_of_the_users_choice_do_not_confuse_the_advice(name):
    lines = told(agents={name: {"player": "p", "memry": 1}, "*": {"policy": "learner"}})
    assert lines == [f"agents.{name}.memry: unknown key; did you mean 'memory'?"]


def test_a_policy_named_like_a_key_gets_the_right_advice():
    lines = told(agents={"*": {"policy": "sampling"}}, policies={"sampling": {"modl": 1}})
    assert lines == ["policies.sampling.model: missing", "policies.sampling.modl: unknown key; did you mean 'model'?"]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("seed=-1", "seed: must be greater than or equal to 0 (given: -1)"),
        ("seed=", "seed: must be a whole number (given: None)"),
        ("seed=true", "seed: must be a whole number (given: True)"),
        ("train.steps='5'", "train.steps: must be a whole number (given: '5')"),
        ("train.steps=5.5", "train.steps: must be a whole number (given: 5.5)"),
        ("train.ema=true", "train.ema: must be a number (given: True)"),
        ("train.ema='0.5'", "train.ema: must be a number (given: '0.5')"),
        ("train.ema=1", "train.ema: must be less than 1 (given: 1)"),
        ("train.clip_ratio=.nan", "train.clip_ratio: must be a finite number (given: nan)"),
        ("train.clip_ratio=.inf", "train.clip_ratio: must be a finite number (given: inf)"),
        ("policies.learner.trainable=1", "policies.learner.trainable: must be true or false (given: 1)"),
        ("name=5", "name: must be text; put it in quotes (given: 5)"),
        ("env.action_names=[no, left]", "env.action_names.0: must be text; put it in quotes (given: False)"),
        ("env.action_names=left", "env.action_names: must be a list (given: 'left')"),
        (
            "env.action_units={at: [m, 3]}",
            "env.action_units: units are texts, or lists and mappings of them; put 3 in quotes",
        ),
        ("env.kwargs=[1]", "env.kwargs: must be a mapping of keys to values (given: [1])"),
        ("env.kwargs={a: {b: [1, .nan]}}", "env.kwargs: a.b.1: NaN does not equal itself; use a number or null"),
        (
            "env=kuhn",
            "env: must be a mapping with keys id, kwargs, isolation, step_timeout, action_names, action_units, "
            "observation_units, render, parse (given: 'kuhn')",
        ),
        (
            "agents={a: x}",
            "agents.a: must be a mapping with keys policy, player, role, system, memory, format, on_invalid (given: 'x')",
        ),
        ("agents={}", "agents: must have at least 1 item, not 0"),
        ("agents={5: {policy: learner}}", "agents.5: keys must be text; put it in quotes (given: 5)"),
        ("env={5: 1, id: x}", "env.5: keys must be text; put it in quotes (given: 5)"),
        (
            "env.isolation=threads",
            "env.isolation: must be 'inline', 'thread' or 'process'; did you mean 'thread'? (given: 'threads')",
        ),
        ("evaluate.metrics=[exploitabilty]", "evaluate.metrics.0: must be 'exploitability' (given: 'exploitabilty')"),
        ("train.optim.betas=[0.9]", "train.optim.betas.1: missing"),
        ("train.optim.betas=[1, 0.9]", "train.optim.betas.0: must be less than 1 (given: 1)"),
        ("train.optim.betas=x", "train.optim.betas: must be a list (given: 'x')"),
        ("train.optim.lr.start=1", "train.optim.lr.end: missing"),
        (
            "policies.learner.adapter={rank: 0}",
            "policies.learner.adapter.rank: must be greater than or equal to 1 (given: 0)",
        ),
        (
            "policies.learner.adapter={rank: 1, targets: 5}",
            "policies.learner.adapter.targets: must be text or a list of names of layers (given: 5)",
        ),
        ("env.id=", "env.id: must be text (given: None)"),
        (f"seed={2**63}", f"seed: must be less than {2**63} (given: {2**63})"),
        (f"policies.learner.seed={2**63}", f"policies.learner.seed: must be less than {2**63} (given: {2**63})"),
        ("policies.learner.seed=-1", "policies.learner.seed: must be greater than or equal to 0 (given: -1)"),
        ("train.clip_ratio=1e308", "train.clip_ratio: must be less than 1000 (given: 1e+308)"),
        ("train.optim.lr=1001", "train.optim.lr: must be at most 1000 (given: 1001)"),
        ("train.legal_entropy={start: 0, end: 1e9}", "train.legal_entropy: must be at most 1000"),
        ("warm_start={player: x, steps: 1, lr: 1e4}", "warm_start.lr: must be at most 1000 (given: 10000.0)"),
        ("runtime.threads=1025", "runtime.threads: must be less than or equal to 1024 (given: 1025)"),
        ("rollout.concurrency=1000001", "rollout.concurrency: must be less than or equal to 1000000 (given: 1000001)"),
        (
            "policies.learner.sampling.max_tokens=1000001",
            "policies.learner.sampling.max_tokens: must be less than or equal to 1000000 (given: 1000001)",
        ),
        (
            "rollout={groups: 1001, group_size: 1000}",
            "rollout: groups * group_size is 1001000 episodes a step; at most 1000000",
        ),
        ("env.step_timeout=1e308", "env.step_timeout: must be less than or equal to 10000000 (given: 1e+308)"),
        (
            "policies.learner.sampling.temperature=0",
            "policies.learner.sampling.temperature: must be greater than or equal to 0.0001 (given: 0)",
        ),
        (
            'policies.learner.sampling.stop=[""]',
            "policies.learner.sampling.stop.0: must have at least 1 character (given: '')",
        ),
        ('runs_dir="a\\0b"', "runs_dir: must be one line of printable text, without '\\x00' (given: 'a\\x00b')"),
        ('agents.*.role="a\\nb"', "agents.*.role: must be one line of printable text, without '\\n' (given: 'a\\nb')"),
        (
            'agents={"a\\nb": {policy: learner}}',
            "agents.a\\nb: must be one line of printable text, without '\\n' (given: 'a\\nb')",
        ),
        ('agents.*.role=""', "agents.*.role: must have at least 1 character (given: '')"),
    ],
)
def test_a_wrong_value_gives_one_line_with_key_rule_and_what_was_given(override, line):
    assert told(override) == [line]


@pytest.mark.parametrize(
    "override",
    [
        'runs_dir="\\ud800"',
        'agents={"\\ud800": {policy: learner}}',
        'agents.*.role="\\ud800"',
        'agents.*.system="\\ud800"',
        'policies={"\\ud800": {model: tiny}}',
        'policies.learner.model="\\ud800"',
        'policies.learner.sampling.stop=["\\ud800"]',
    ],
)
def test_half_a_surrogate_pair_is_no_text(override):
    (line,) = told(override)
    assert line.endswith(r"must hold no half of a surrogate pair, which is no character (given: '\ud800')")


NAMED = "figures are named after it, and `all` stands for a whole step: take a name without '/', not 'all'"


@pytest.mark.parametrize("name", ["all", "a/b"])
def test_names_in_the_keys_of_figures(name):
    (line,) = told(f"agents.*.role={name}")
    assert line.startswith(f"agents.*.role: {NAMED}")
    (line,) = told(agents={"*": {"policy": name}}, policies={name: {"model": "tiny"}})
    assert line.startswith(f"policies.{name}: " + (NAMED if name == "all" else "must start with a letter or digit"))
    (line,) = told(agents={name: {"policy": "learner"}})
    assert line.startswith(f"agents.{name}: figures are named after its role")
    assert load_config({**BASE, "agents": {name: {"policy": "learner", "role": "team"}}}).agents[name].role == "team"


@pytest.mark.parametrize("name", ["turn_timeout", "episode_timeout"])
def test_a_clock_on_replies_does_not_go_with_determinism(name):
    (line,) = told(f"coordinator.{name}=5")
    assert line.startswith(f"coordinator.{name}: replies come in step with those of all other episodes while ")
    assert "set runtime.deterministic=false to use it" in line
    config = load_config(BASE, [f"coordinator.{name}=5", "runtime.deterministic=false"])
    assert getattr(config.coordinator, name) == 5
    assert load_config(BASE, ["env.step_timeout=5"]).runtime.deterministic


@pytest.mark.parametrize("value", ["-1", ".nan", ".inf", "abc", "'1e-3'", "true", "[1, 2]", "null"])
def test_a_schedule_is_a_number_or_start_and_end(value):
    for key in ("train.optim.lr", "train.legal_entropy"):
        (line,) = told(f"{key}={value}")
        assert line.startswith(f"{key}: must be a number, 0 or more, or a mapping {{start, end}} (given: ")


@pytest.mark.parametrize("end", ["-1", ".nan", ".inf", "'1'", "true"])
def test_the_ends_of_a_schedule_are_numbers(end):
    (line,) = told(f"train.optim.lr={{start: 1, end: {end}}}")
    assert line.startswith("train.optim.lr.end: must be ")


@pytest.mark.parametrize(
    "value",
    [
        "windw",
        "3",
        "window(0)",
        "window(x)",
        "window()",
        "{window: 0}",
        "{window: true}",
        "{windw: 1}",
        "{}",
        "null",
        "[last]",
    ],
)
def test_memory_says_what_may_stand_there_in_one_line(value):
    (line,) = told(f"agents.*.memory={value}")
    assert line.startswith("agents.*.memory: must be full, last, window(k) or {window: k} with k 1 or more, not ")
    assert "given" not in line


@pytest.mark.parametrize(
    ("value", "memory"),
    [("full", "full"), ("last", "last"), ("window(12)", Window(window=12)), ("{window: 2}", Window(window=2))],
)
def test_memory_forms(value, memory):
    assert load_config(BASE, [f"agents.*.memory={value}"]).agents["*"].memory == memory


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("forfit", "'forfit' is no rule; did you mean 'forfeit'?"),
        ("zzz", "'zzz' is no rule; use forfeit, truncate, fallback or {forfeit: -2}"),
        ("{forfeit: 2}", "`forfeit` takes the penalty, a number of 0 or less, not 2"),
        ("{truncate: null}", "`truncate` takes the penalty, a number of 0 or less, not None"),
        ("{forfeit: true}", "`forfeit` takes the penalty, a number of 0 or less, not True"),
        ("{forfeit: .nan}", "`forfeit` takes the penalty, a number of 0 or less, not nan"),
        (
            "{forfeit: -1, truncate: -2}",
            "forfeit and truncate stand side by side; {forfeit: -2} alone says what follows and the penalty",
        ),
        (
            "{penalty: -1, forfeit: -2}",
            "penalty and forfeit stand side by side; {forfeit: -2} alone says what follows and the penalty",
        ),
        ("3", "must be a mapping with keys then, retry, penalty, others, forfeit, truncate (given: 3)"),
    ],
)
def test_on_invalid_says_what_is_wrong(value, line):
    assert told(f"agents.*.on_invalid={value}") == [f"agents.*.on_invalid: {line}"]


def test_all_faults_are_told_at_once():
    lines = told("train.stepz=1", "seed=-1", "rollout.groups=0", "agents.*.memory=x", "policies.learner.model=1")
    assert sorted(line.split(":")[0] for line in lines) == [
        "agents.*.memory",
        "policies.learner.model",
        "rollout.groups",
        "seed",
        "train.stepz",
    ]


def test_what_is_missing_is_told():
    with pytest.raises(ConfigError) as caught:
        load_config({})
    assert str(caught.value).splitlines() == ["env: missing", "coordinator: missing", "agents: missing"]


# Overrides.


def test_overrides_are_applied_in_order_and_read_as_yaml():
    config = load_config(
        BASE,
        [
            "seed=1",
            "seed=2",
            "agents.*.system=a=b",
            "agents.*.role=Spieler 🂡",
            "train.optim.lr=1e-3",
            "env.kwargs.deep.er=[1, {x: null}]",
            "env.action_names=[a, b]",
            "env.step_timeout=null",
            "warm_start.player=always:p",
            "warm_start.steps=3",
        ],
    )
    assert config.seed == 2
    assert config.agents["*"].system == "a=b"
    assert config.agents["*"].role == "Spieler 🂡"
    assert config.train.optim.lr == Schedule(start=1e-3, end=1e-3)
    assert config.env.kwargs == {"deep": {"er": [1, {"x": None}]}}
    assert config.env.action_names == ["a", "b"]
    assert config.env.step_timeout is None
    assert config.warm_start is not None and config.warm_start.steps == 3


def test_an_override_reaches_globs_and_names_with_dots():
    agents = {"*": {"policy": "learner"}, "team.1": {"policy": "learner"}, "team.*.x": {"policy": "learner"}}
    config = load_config(
        {**BASE, "agents": agents},
        [
            "agents.*.memory=last",
            "agents.team.1.memory=window(2)",
            "agents.team.*.x.on_invalid.retry=3",
            "agents.new.player=p",
        ],
    )
    assert config.agents["*"].memory == "last"
    assert config.agents["team.1"].memory == Window(window=2)
    assert config.agents["team.*.x"].on_invalid.retry == 3
    assert config.agents["new"].player == "p"
    assert load_config({**BASE, "agents": agents}, ["agents.team.1={player: q}"]).agents["team.1"].player == "q"


@pytest.mark.parametrize("item", ["seed", "=5", "", "a..b=1", ".seed=1", "seed.=1"])
def test_an_override_has_a_path_and_a_value(item):
    assert told(item) == [f"override {item!r} is not of the form key.path=value"]


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        (
            "env.action_names=[a, b]",
            "env.action_names.0=c",
            "env.action_names holds ['a', 'b'], which has no keys; give it whole, as env.action_names=…",
        ),
        (
            "agents.*.on_invalid=forfeit",
            "agents.*.on_invalid.retry=3",
            "agents.*.on_invalid holds 'forfeit', which has no keys; give it whole, as agents.*.on_invalid=…",
        ),
        (
            "train.optim.lr=1",
            "train.optim.lr.start=2",
            "train.optim.lr holds 1, which has no keys; give it whole, as train.optim.lr=…",
        ),
    ],
)
def test_an_override_below_a_plain_value_says_to_give_it_whole(first, second, line):
    assert told(first, second) == [f"override {second!r}: {line}"]


def test_an_override_that_is_no_yaml_is_named():
    assert told("name=[a")[0].startswith("override 'name=[a' is not valid: line 1, column 3: ")


def test_an_override_changes_one_place_of_a_shared_anchor(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(
        "env: {id: x}\ncoordinator: {id: y}\npolicies: {p: {model: tiny}}\nagents: {a: &seat {policy: p}, b: *seat}\n"
    )
    config = load_config(file, ["agents.a.memory=last"])
    assert (config.agents["a"].memory, config.agents["b"].memory) == ("last", "full")


def test_the_source_is_left_alone():
    source = copy.deepcopy(BASE)
    load_config(source, ["seed=4", "agents.*.memory=last", "env.kwargs.x=1"])
    assert source == BASE


# Sources.


def test_a_file_is_read_with_a_byte_order_mark_too(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_bytes("\ufeffenv: {id: ü}\ncoordinator: {id: y}\nagents: {a: {player: p}}".encode())
    assert load_config(file).env.id == load_config(str(file)).env.id == "ü"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a configuration is a mapping of keys, this one is empty"),
        (b"# nothing\n", "a configuration is a mapping of keys, this one is empty"),
        (b"- a\n- b\n", "a configuration is a mapping of keys, this one is a list"),
        (b"hello", "a configuration is a mapping of keys, this one is a str"),
        ("env: ü".encode("latin-1"), "cannot read the configuration .*c.yaml': it is not UTF-8 text"),
        ("env: x".encode("utf-16"), "cannot read the configuration .*c.yaml': it is not UTF-8 text"),
        (b"env: {id: x}\nenv: {id: y}", "c.yaml is not valid: line 2, column 1: duplicate key 'env'"),
        (b"{[]: 1}", "unhashable key"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, content, message):
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize("name", ["missing.yaml", ".", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(ConfigError, match=re.escape(f"cannot read the configuration {str(tmp_path / name)!r}: ")):
        load_config(tmp_path / name)


def test_a_file_of_a_near_name_is_suggested(tmp_path):
    (tmp_path / "echo.yaml").touch()
    with pytest.raises(ConfigError, match="echo.yml.*did you mean .*echo.yaml'"):
        load_config(tmp_path / "echo.yml")


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", len, 1j])
def test_what_yaml_cannot_hold_is_refused_in_kwargs(value):
    (line,) = told(env={"id": "x", "kwargs": {"deep": {"er": [value]}}})
    assert line == (
        f"env.kwargs: deep.er.0: YAML cannot hold a {type(value).__name__}; use numbers, text, lists and mappings"
    )


def test_tuples_of_a_mapping_are_lists():
    config = load_config({**BASE, "train": {"optim": {"betas": (0.5, 0.6)}}, "env": {"id": "x", "kwargs": {"a": (1, (2,))}}})
    assert config.train.optim.betas == (0.5, 0.6)
    assert config.env.kwargs == {"a": [1, [2]]}


def test_a_mapping_that_holds_itself_is_refused():
    loop = copy.deepcopy(BASE)
    loop["env"]["kwargs"] = loop
    with pytest.raises(ConfigError, match="nested too deeply, or holds itself"):
        load_config(loop)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(math.nan),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def _paths(model, path=()):
    for name, field in model.model_fields.items():
        yield (*path, name)
        if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
            yield from _paths(field.annotation, (*path, name))


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(_paths(RunConfig))), JUNK)
def test_junk_anywhere_gives_a_configuration_or_one_clear_error(path, junk):
    data = copy.deepcopy(BASE)
    node = data
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = junk
    try:
        config = load_config(data)
    except ConfigError as error:
        for line in str(error).splitlines():
            assert not re.search("literal|union|function|dictionary or instance|Input should", line, re.IGNORECASE), line
    else:
        assert load_config(config) == config
