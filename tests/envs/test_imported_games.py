"""Games of Gymnasium and PettingZoo, unchanged, through seats and coordinators, against raw loops of the libraries."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import gymnasium
import pytest
from pettingzoo.classic.rps import rps
from pettingzoo.classic.tictactoe import tictactoe

from opentinker.config import load_config
from opentinker.envs import check_env, env_ids
from opentinker.errors import ConfigError
from opentinker.rollout import Rollout
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.types import EpisodeStatus

VIEWS = {
    "render": "opentinker.envs.views.tictactoe:render",
    "parse": "opentinker.envs.views.tictactoe:parse",
}
AEC = {"id": "turns"}
SOLO = {"id": "solo"}
GAMES = {
    "tictactoe": ({"id": "pettingzoo/classic/tictactoe_v3"}, AEC, tictactoe.raw_env),
    "tictactoe in words of one's own": ({"id": "pettingzoo/classic/tictactoe_v3", **VIEWS}, AEC, tictactoe.raw_env),
    "rps in turn": (
        {"id": "pettingzoo/classic/rps_v2", "kwargs": {"max_cycles": 4}},
        AEC,
        lambda: rps.raw_env(max_cycles=4),
    ),
    "rps at once": (
        {"id": "pettingzoo/classic/rps_v2", "kwargs": {"api": "parallel", "max_cycles": 4}},
        {"id": "simultaneous"},
        lambda: rps.parallel_env(max_cycles=4),
    ),
    "slippery lake": ({"id": "gymnasium/FrozenLake-v1"}, SOLO, lambda: gymnasium.make("FrozenLake-v1")),
    "firm lake": (
        {"id": "gymnasium/FrozenLake-v1", "kwargs": {"is_slippery": False}, "action_names": ["l", "d", "r", "u"]},
        SOLO,
        lambda: gymnasium.make("FrozenLake-v1", is_slippery=False),
    ),
    "cliff": (
        {"id": "gymnasium/CliffWalking", "kwargs": {"max_episode_steps": 30}},
        SOLO,
        lambda: gymnasium.make("CliffWalking-v1"),
    ),
    "blackjack": ({"id": "gymnasium/Blackjack-v1"}, SOLO, lambda: gymnasium.make("Blackjack-v1")),
}
PLAYERS = {"random_legal": {"player": "random_legal"}, "tiny": {"policy": "learner", "memory": "last"}}


class Host:
    """Serves a tiny policy that nobody trains."""

    def __init__(self) -> None:
        model, self.words = build_tiny(5)
        self.sampler = HFSampler()
        self.sampler.add("learner", model, self.words)

    def tokenizer(self, policy):
        return self.words

    def max_context(self, policy):
        return 1024


def collect(env: dict[str, Any], coordinator: dict[str, Any], seat: dict[str, Any], groups: int = 3):
    config = load_config(
        {
            "seed": 3,
            "env": env,
            "coordinator": coordinator,
            "agents": {"*": seat},
            "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 1}}} if "policy" in seat else {},
        }
    )

    async def main():
        session = Rollout(config, Host())
        try:
            await session.check()
            return [episode for group in await session.collect(1, groups=groups) for episode in group.episodes]
        finally:
            await session.close()

    return asyncio.run(main())


def acted(env: dict[str, Any], turn) -> int:
    """The action that was played, the one instead of an invalid reply included."""
    if turn.valid:
        return turn.action
    (text,) = re.findall(r"; played '(.)' instead", turn.error)
    return env.get("action_names", list("0123456789")).index(text)


def raw_aec(env, seed, actions):
    """(agent, reward) of every `last()`, and how many actions were asked for."""
    env.reset(seed=seed)
    told, left = [], list(actions)
    for agent in env.agent_iter():
        _, reward, terminated, truncated, _ = env.last()
        told.append((agent, reward))
        env.step(None if terminated or truncated else left.pop(0)[1])
    return told, left


def raw_parallel(env, seed, actions):
    env.reset(seed=seed)
    told, left = [], list(actions)
    while env.agents:
        joint = dict(left[: len(env.agents)])
        del left[: len(env.agents)]
        told += env.step(joint)[1].items()
    return told, left


def raw_solo(env, seed, actions):
    env = env.unwrapped
    env.reset(seed=seed)
    told, over, left = [], False, list(actions)
    while left and not over:
        _, reward, over, *_ = env.step(left.pop(0)[1])
        told.append(("agent", reward))
    return told, left


RAW = {"turns": raw_aec, "simultaneous": raw_parallel, "solo": raw_solo}


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("game", GAMES)
def test_a_game_is_played_to_its_end_and_pays_what_the_library_pays(game, player):
    env, coordinator, make = GAMES[game]
    for episode in collect(env, coordinator, PLAYERS[player]):
        assert episode.status is not EpisodeStatus.FAILED, episode.error
        actions = [(turn.agent, acted(env, turn)) for turn in episode.turns]
        told, left = RAW[coordinator["id"]](make(), episode.seed, actions)
        assert not left  # neither of the two ended before the other
        if game == "cliff":
            assert len(actions) == 30 and episode.status is EpisodeStatus.TRUNCATED
        totals: Counter[str] = Counter()
        for agent, reward in told:
            totals[agent] += reward
        assert episode.rewards == totals  # credited once to the player
        for agent in totals:  # and once to its turns
            assert sum(turn.reward for turn in episode.turns if turn.agent == agent) == totals[agent]


def test_the_default_words_are_the_observations():
    def first(game):
        env, coordinator, _ = GAMES[game]
        return collect(env, coordinator, PLAYERS["random_legal"], groups=1)[0]

    game = first("tictactoe")
    row = "[[0, 0], [0, 0], [0, 0]]"
    assert game.turns[0].observation == f"[{row}, {row}, {row}]"
    assert game.turns[0].n_legal == 9 and game.turns[3].n_legal == 6
    assert first("rps in turn").turns[0].observation == "3"  # its own code for "nothing yet"
    assert first("firm lake").turns[0].observation == "0"
    assert first("cliff").turns[0].observation == "36"
    hand = first("blackjack")
    raw, _ = gymnasium.make("Blackjack-v1").reset(seed=hand.seed)
    assert hand.turns[0].observation == f"({raw[0]}, {raw[1]}, {raw[2]})"


def test_words_of_ones_own_are_what_the_players_see_and_say():
    episode = collect(*GAMES["tictactoe in words of one's own"][:2], PLAYERS["random_legal"], groups=1)[0]
    board = "012345678"
    for number, turn in enumerate(episode.turns):
        mark = "xo"[number % 2]
        assert turn.observation == board + mark and turn.n_legal == 9 - number
        board = board.replace(str(turn.action), mark)


@pytest.mark.parametrize("isolation", ["inline", "thread", "process"])
def test_words_of_ones_own_work_wherever_the_environment_runs(isolation):
    env, coordinator, _ = GAMES["tictactoe in words of one's own"]
    (episode,) = collect({**env, "isolation": isolation}, coordinator, PLAYERS["random_legal"], groups=1)
    assert episode.turns[0].observation == "012345678x" and sum(episode.rewards.values()) == 0


def shout(text: str) -> str:
    return text.upper()


def test_words_of_ones_own_replace_texts_too():
    env = {"id": "kuhn_poker", "render": f"{__name__}:shout"}
    (episode,) = collect(env, AEC, PLAYERS["random_legal"], groups=1)
    assert episode.turns[0].observation.startswith("CARD ")


@pytest.mark.parametrize(
    ("view", "message"),
    [
        ({"render": "no.such.module:f"}, "render: cannot import 'no.such.module'"),
        ({"parse": "opentinker.envs.views.tictactoe:pars"}, "parse: .*did you mean 'parse'.*text -> action"),
        ({"render": "opentinker.envs.views.tictactoe:MARKS"}, "render: .*MARKS' is a tuple; it must be a function"),
        ({"render": "operator:add"}, "render: 'operator:add' cannot be called with one argument"),
        ({"parse": "just_a_name"}, "parse: 'just_a_name' is not of the form"),
    ],
)
def test_words_that_cannot_be_used_are_refused_before_anything_is_played(view, message):
    with pytest.raises(ConfigError, match=message):
        collect({"id": "pettingzoo/classic/tictactoe_v3", **view}, AEC, PLAYERS["random_legal"])


def test_words_that_are_none_fail_the_episode_and_say_why():
    env = {"id": "pettingzoo/classic/tictactoe_v3", "render": "builtins:len"}
    with pytest.raises(Exception, match="`render` returned a int, not text: 3"):
        collect(env, AEC, PLAYERS["random_legal"])


@pytest.mark.parametrize("game", GAMES)
def test_the_checker_finds_nothing_in_them(game):
    env = GAMES[game][0]
    words = {key: env[key] for key in ("render", "parse", "action_names") if key in env}
    assert check_env(env["id"], kwargs=env.get("kwargs"), **words) == []


def test_arguments_belong_to_an_id():
    with pytest.raises(ConfigError, match="kwargs are for an environment's id; OrderEnforcing is made already"):
        check_env(gymnasium.make("CliffWalking-v1"), kwargs={"max_episode_steps": 3})


def test_an_id_without_a_version_is_the_newest():
    assert "gymnasium/CliffWalking" not in env_ids("gymnasium")  # it is no id of its own
    (episode,) = collect(*GAMES["cliff"][:2], PLAYERS["random_legal"], groups=1)
    assert episode.env == "gymnasium/CliffWalking"
