import asyncio
import subprocess
import sys

import pytest

from opentinker.envs import env_ids, make_env, open_env, register_env
from opentinker.envs.registry import ENVS
from opentinker.envs.tasks.bandit import Bandit
from opentinker.errors import ConfigError, DuplicateId, EnvError, UnknownId
from opentinker.testing.envs import SlowEnv


async def play_out(id, seed, **options):
    """A random game through codec and handle, from texts alone; returns each agent's total reward and the texts seen."""
    env = open_env(id, **options)
    totals, texts = dict.fromkeys(env.possible_agents, 0.0), []

    def act(agent, observation, info, step):
        codec = env.codec(agent)
        observation, mask = codec.split(observation, info)
        texts.append(codec.render(observation))
        reply = codec.render_action(codec.sample(1000 * seed + step, mask))
        return codec.parse(reply, mask)

    answer = await env.reset(seed)
    for step in range(1000):
        if env.kind == "aec":
            turn = await env.turn()
            if turn is None:
                break
            totals[turn.agent] += turn.reward
            over = turn.terminated or turn.truncated
            await env.step(None if over else act(turn.agent, turn.observation, turn.info, step))
        else:
            answer = await env.step(act("agent", answer[0], answer[-1], step))
            totals["agent"] += answer[1]
            if answer[2] or answer[3]:
                break
    else:
        raise AssertionError("it never ended")
    await env.close()
    return totals, texts


@pytest.mark.parametrize("seed", range(4))
def test_tictactoe_is_played_to_its_end(seed):
    totals, texts = asyncio.run(play_out("pettingzoo/classic/tictactoe_v3", seed))
    assert sum(totals.values()) == 0 and set(totals.values()) in ({0.0}, {1.0, -1.0})
    assert 5 <= len(texts) <= 9  # nobody wins before the fifth mark, nobody made an illegal one
    empty = "[[0, 0], [0, 0], [0, 0]]"
    assert texts[0] == f"[{empty}, {empty}, {empty}]"


@pytest.mark.parametrize("seed", range(4))
def test_frozen_lake_is_played_to_its_end(seed):
    options = {"action_names": ["left", "down", "right", "up"]}
    totals, texts = asyncio.run(play_out("gymnasium/FrozenLake-v1", seed, **options))
    assert texts[0] == "0" and totals["agent"] in (0.0, 1.0)


@pytest.mark.parametrize("id", ["kuhn_poker", "bandit", "pettingzoo/classic/connect_four_v3", "gymnasium/CartPole-v1"])
def test_others_are_played_to_their_end(id):
    totals, texts = asyncio.run(play_out(id, 3))
    assert texts and all(isinstance(text, str) and text for text in texts)


def test_our_own_ids():
    assert {"bandit", "kuhn_poker", "matrix_game"} <= set(env_ids())
    assert type(make_env("bandit", means=[0.5])) is Bandit


def test_families_are_listed_as_their_ids_are_written():
    assert "gymnasium/FrozenLake-v1" in env_ids("gymnasium")
    assert "pettingzoo/classic/tictactoe_v3" in env_ids("pettingzoo")
    with pytest.raises(UnknownId, match="did you mean 'gymnasium'"):
        env_ids("gymnasum")


@pytest.mark.parametrize("id", ["sketched_games", "sketched_games.cards"])
def test_a_module_without_a_class_is_told_the_form_and_not_imported(id, tmp_path, monkeypatch):
    (tmp_path / "sketched_games").mkdir()
    (tmp_path / "sketched_games" / "__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownId) as error:
        make_env(id)
    assert str(error.value) == f"unknown environment {id!r} (it is a module: name the class in it, {id}:Class)"


@pytest.mark.parametrize("id", ["kuhn_pokr", "matrix game", "a..b", ""])
def test_what_is_no_module_is_told_near_names_and_forms(id):
    with pytest.raises(UnknownId, match="package.module:Class"):
        make_env(id)


def test_a_class_by_its_path():
    env = make_env("opentinker.testing.envs:SlowEnv", seconds=0.5)
    assert type(env) is SlowEnv and env.seconds == 0.5 and env.spec is None


def test_either_api_of_pettingzoo():
    from pettingzoo import AECEnv, ParallelEnv

    assert isinstance(make_env("pettingzoo/classic/rps_v2"), AECEnv)
    assert isinstance(make_env("pettingzoo/classic/rps_v2", api="parallel", num_actions=3), ParallelEnv)
    with pytest.raises(ConfigError, match="no api 'parallel'; it has: aec"):
        make_env("pettingzoo/classic/tictactoe_v3", api="parallel")


@pytest.mark.parametrize(
    ("given", "near"),
    [
        ("kuhn_pokr", "kuhn_poker"),
        ("FrozenLake-v1", "gymnasium/FrozenLake-v1"),
        ("gymnasium/FrozenLak-v1", "gymnasium/FrozenLake-v1"),
        ("tictactoe_v3", "pettingzoo/classic/tictactoe_v3"),
        ("pettingzoo/tictactoe_v3", "pettingzoo/classic/tictactoe_v3"),
        ("pettingzoo/classic/tictactoe_v9", "pettingzoo/classic/tictactoe_v3"),
        ("petingzoo/classic/tictactoe_v3", "pettingzoo/classic/tictactoe_v3"),
    ],
)
def test_unknown_ids_suggest_near_names(given, near):
    with pytest.raises(UnknownId) as error:
        make_env(given)
    assert near in error.value.near and f"unknown environment {given!r}; did you mean" in str(error.value)


def test_an_id_far_from_all_lists_ours_and_the_other_forms():
    with pytest.raises(UnknownId, match="known: bandit, .*kuhn_poker, .*matrix_game.*package.module:Class"):
        make_env("@")


@pytest.mark.parametrize(
    ("id", "kwargs", "message"),
    [
        ("bandit", {"mean": [1.0]}, "did you mean 'means'"),
        ("kuhn_poker", {"cards": 4}, "it takes no arguments"),
        ("opentinker.testing.envs:SlowEnv", {"q": 1}, "it takes seconds, steps"),
        ("no.such.module:Env", {}, "cannot import 'no.such.module'"),
        ("opentinker.testing.envs:Nothing", {}, "no 'Nothing'"),
        ("math:pi", {}, "is no class or function but float"),
    ],
)
def test_what_cannot_be_made_says_what_to_do(id, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(id, **kwargs)


class Picky(SlowEnv):
    def __init__(self, error=None, **more):
        super().__init__()
        if error is not None:
            raise error


@pytest.mark.parametrize("isolation", ["inline", "thread"])
def test_arguments_that_a_constructor_refuses_are_a_matter_of_configuration(isolation):
    with pytest.raises(
        ConfigError, match=r"'gymnasium/FrozenLake-v1' cannot be made with \{'map_name': 'zz'\}: KeyError: 'zz'"
    ) as caught:
        open_env("gymnasium/FrozenLake-v1", {"map_name": "zz"}, isolation=isolation)
    assert type(caught.value.__cause__) is KeyError


@pytest.mark.parametrize("kind", [TypeError, ValueError, KeyError, AssertionError])
def test_only_what_was_given_can_be_wrong(monkeypatch, kind):
    monkeypatch.setattr(ENVS, "_entries", dict(ENVS._entries))
    register_env("picky", Picky)
    register_env("broken", lambda: Picky(kind("deep down")))
    with pytest.raises(ConfigError, match=f"'picky' cannot be made with .*: {kind.__name__}: .*deep down"):
        make_env("picky", error=kind("deep down"))
    with pytest.raises(OSError, match="disk"):
        make_env("picky", error=OSError("disk"))
    with pytest.raises(EnvError, match=f"raised in open: {kind.__name__}"):
        open_env("broken")


def test_an_argument_may_have_any_name(monkeypatch):
    monkeypatch.setattr(ENVS, "_entries", dict(ENVS._entries))
    register_env("picky", Picky)
    assert open_env("picky", {"id": 3, "kwargs": 4}, isolation="inline").kind == "solo"
    with pytest.raises(ConfigError, match="keywords must be strings"):
        open_env("bandit", {1: 2})


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    with pytest.raises(ConfigError, match="gymnasium/LunarLander-v3 needs a package that is not installed.*[Bb]ox2"):
        make_env("gymnasium/LunarLander-v3")


def test_registering(monkeypatch):
    monkeypatch.setattr(ENVS, "_entries", dict(ENVS._entries))
    register_env("my_task", Bandit)
    register_env("my_slow", "opentinker.testing.envs:SlowEnv")
    assert type(make_env("my_task")) is Bandit and type(make_env("my_slow")) is SlowEnv
    assert "my_task" in env_ids()
    with pytest.raises(DuplicateId, match="'my_task'"):
        register_env("my_task", SlowEnv)
    for id in ("a/b", "a:b", ""):
        with pytest.raises(ConfigError, match="no '/' and no ':'"):
            register_env(id, Bandit)


def test_classic_games_print_no_banner():
    program = "from opentinker.envs import make_env; make_env('pettingzoo/classic/tictactoe_v3')"
    done = subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
