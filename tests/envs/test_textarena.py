"""TextArena's games through the adapter, against TextArena's own loop on freshly seeded global generators."""

import copy
import itertools
import random
import socket
import sys
import threading

import numpy as np
import pytest

from opentinker.envs import check_env, env_ids, make_env, open_env
from opentinker.envs.adapters import textarena as adapter
from opentinker.envs.text import encodable
from opentinker.errors import ConfigError, MissingExtra, UnknownId
from opentinker.rollout import run_async
from opentinker.seeding import derive
from opentinker.testing.played import play_world
from opentinker.testing.played_textarena import bracketed, played
from opentinker.types import EpisodeStatus

ta = pytest.importorskip("textarena")

from textarena.envs.registration import ENV_REGISTRY  # noqa: E402

LIMIT = 60
"""Decisions a game in these tests."""
HEAVY = {"Sokoban-v0-medium", "Sudoku-v0-hard"}
"""Puzzles that are searched for seconds."""


class NobodyLeft(Exception):
    """All players of a game have been eliminated."""


def game_of(name):
    return ENV_REGISTRY[name].entry_point.split(".")[2]


def reason(name):
    """Why `make` refuses an id; empty where it makes it."""
    try:
        adapter.make(name)
    except ConfigError as error:
        return str(error)
    return ""


def games():
    """The first id of every game that is played."""
    first = {}
    for name in sorted(ENV_REGISTRY):
        if not name.endswith(("-raw", "-train")) and name not in HEAVY:
            first.setdefault(game_of(name), name)
    return [name for name in first.values() if not reason(name)]


def lines(messages, roles):
    return "\n".join(f"[{'GAME' if who == -1 else roles.get(who, f'Player {who}')}] {said}" for who, said, _ in messages)


def raw_game(name, seed, players, limit=LIMIT):
    """TextArena's own loop: (player, observation, reply) of every turn, then the rewards, None where the limit came first.

    Where nobody is left it would not come back, and there is no reward of its own to compare with.
    """
    random.seed(seed)
    np.random.seed(seed)
    env = ta.make(name, **copy.deepcopy(ENV_REGISTRY[name].kwargs))
    env.reset(num_players=players, seed=seed)
    step = env.state.step

    def stopping(*arguments, **named):
        if not env.state.done and set(getattr(env.state, "elimination_order", ())) == set(range(players)):
            raise NobodyLeft
        return step(*arguments, **named)

    env.state.step = stopping
    told = []
    for turn in range(limit):
        player, shown = env.get_observation()
        text = shown if isinstance(shown, str) else lines(shown, env.state.role_mapping)
        reply = bracketed(text, None, None, derive(seed, turn))
        told.append((player, text, reply))
        try:
            done, _ = env.step(action=reply)
        except NobodyLeft:
            return told, dict.fromkeys(range(players), 0.0)
        if done:
            return told, env.close()[0]
    return told, None


def our_game(env, seed, limit=LIMIT):
    """The same of an environment of ours, with plain calls."""
    return (solo_game if hasattr(env, "observation_space") and not hasattr(env, "agents") else aec_game)(env, seed, limit)


def solo_game(env, seed, limit):
    text, _ = env.reset(seed=seed)
    told = []
    for turn in range(limit):
        reply = bracketed(text, None, None, derive(seed, turn))
        told.append((0, text, reply))
        text, reward, terminated, truncated, _ = env.step(reply)
        assert not truncated and (terminated or reward == 0)
        if terminated:
            return told, {0: reward}
    return told, None


def aec_game(env, seed, limit):
    env.reset(seed=seed)
    told, paid = [], dict.fromkeys(range(len(env.possible_agents)), 0.0)
    for turn in range(limit):
        text, reward, terminated, _, _ = env.last()
        if terminated:
            break
        assert reward == 0
        reply = bracketed(text, None, None, derive(seed, turn))
        told.append((env.possible_agents.index(env.agent_selection), text, reply))
        env.step(reply)
    if not any(env.terminations.values()):
        return told, None
    while env.agents:
        agent = env.agent_selection
        _, reward, terminated, _, _ = env.last()
        assert terminated
        paid[env.possible_agents.index(agent)] += reward
        env.step(None)
    return told, paid


def seats_of(env):
    return len(getattr(env, "possible_agents", [None]))


def global_state():
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, keys.tobytes(), *rest


def differences(name, seed=3):
    """Where ours departs from TextArena's own game or from an earlier one on its object, or draws from global generators."""
    env = adapter.make(name)
    before = global_state()
    first = our_game(env, seed)
    our_game(env, seed + 1)
    again = our_game(env, seed)
    if global_state() != before:
        yield "it drew from a global generator"
    if first != again:
        yield f"the game before showed: {next(pair for pair in zip(first[0], again[0], strict=False) if pair[0] != pair[1])}"
    own = raw_game(name, seed, seats_of(env))
    if first[0] != own[0]:
        yield f"TextArena: {next(pair for pair in itertools.zip_longest(first[0], own[0]) if pair[0] != pair[1])}"
    if first[1] != own[1]:
        yield f"rewards {first[1]}, TextArena's own {own[1]}"


def test_every_game_is_played_as_textarena_plays_it_and_leaves_nothing_behind():
    names = games()
    assert len(names) >= 68
    assert {name: found for name in names if (found := list(differences(name)))} == {}


@pytest.mark.parametrize("name", ["TicTacToe-v0", "KuhnPoker-v0", "2048-v0", "Taboo-v0", "LiarsDice-v0", "Wordle-v0"])
@pytest.mark.parametrize("ending", ["-raw", "-train"])
def test_what_an_ending_shows_is_what_textarena_shows(name, ending):
    if name == "Wordle-v0":
        assert "nltk" in reason(name + ending)
    else:
        assert list(differences(name + ending)) == []


def test_new_only_shows_the_transcript_in_pieces():
    whole, piecewise = make_env("textarena/TicTacToe-v0"), make_env("textarena/TicTacToe-v0", new_only=True)
    whole.reset(seed=0), piecewise.reset(seed=0)
    pieces = {agent: "" for agent in whole.possible_agents}
    for move in ("[4]", "[0]", "nonsense", "[1]", "[7]"):
        agent = piecewise.agent_selection
        pieces[agent] += "\n" + piecewise.last()[0]
        assert pieces[agent] == whole.last()[0]
        whole.step(move), piecewise.step(move)
    assert "[Player 1] [0]" in pieces["player_0"]
    assert pieces["player_0"].count("You are Player 0 in Tic Tac Toe") == 1


def test_a_move_that_is_none_is_met_by_the_games_own_rule():
    """TicTacToe warns once, then the game is lost."""
    env = make_env("textarena/TicTacToe-v0")
    env.reset(seed=0)
    env.step("I pass")
    assert env.agent_selection == "player_0"
    assert "Player 0 attempted an invalid move" in env.last()[0]
    env.step("")
    assert env.rewards == {"player_0": -1.0, "player_1": 1.0}
    assert env.terminations == {"player_0": True, "player_1": True}
    assert env.infos["player_0"]["invalid_move"] and not env.infos["player_1"]["invalid_move"]


def test_who_is_out_stays_until_the_end_and_is_paid_there():
    """Three at liar's dice with one die each; the first two go by invalid calls. TextArena pays by rank: -1, 0, 1."""
    env = make_env("textarena/LiarsDice-v0", players=3, num_dice=1)
    env.reset(seed=0)
    asked = []
    while not env.terminations["player_0"]:
        asked.append(env.agent_selection)
        env.step("pass")
    assert asked == ["player_0"] * 2 + ["player_1"] * 2
    assert env.agents == ["player_0", "player_1", "player_2"]
    assert env.rewards == {"player_0": -1.0, "player_1": 0.0, "player_2": 1.0}


def test_a_game_without_survivors_is_a_draw_where_textarena_would_search_for_ever():
    env = make_env("textarena/PublicGoodsGame-v0", num_rounds=1, communication_turns=0)
    env.reset(seed=0)
    state = env._match._inner.state
    state.elimination_order += [0, 1, 2]
    env.step("{hello}")
    assert env.rewards == {"player_0": 0.0, "player_1": 0.0, "player_2": 0.0}


@pytest.mark.parametrize(
    ("name", "kwargs"), [("KuhnPoker-v0", {}), ("Secretary-v0", {}), ("Sokoban-v0", {"dim_room": (6, 6), "num_boxes": 2})]
)
def test_games_in_threads_do_not_disturb_each_other(name, kwargs):
    """E3; Sokoban searches for its rooms in globals of its module."""
    alone = [our_game(adapter.make(name, **kwargs), seed, 4) for seed in range(4)]
    found = {}
    start = threading.Barrier(4)

    def play(seed):
        env = adapter.make(name, **kwargs)
        start.wait()
        for _ in range(3):
            found[seed] = our_game(env, seed, 4)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(4)] == alone


def test_a_process_of_its_own_plays_the_same():
    def observations(isolation):
        async def main():
            world = open_env("textarena/FrozenLake-v0-random", isolation=isolation)
            try:
                return await play_world(world, 5, max_turns=LIMIT, reply=bracketed)
            finally:
                await world.close()

        return run_async(main)

    here, there = observations("thread"), observations("process")
    assert here.status is there.status is EpisodeStatus.TERMINATED
    assert [turn.observation for turn in here.turns] == [turn.observation for turn in there.turns]
    assert here.rewards == there.rewards


def test_without_a_seed_games_differ_and_a_seed_fixes_those_that_follow():
    def followed(name, first):
        env = make_env(f"textarena/{name}")
        env.reset(seed=1)
        found = []
        for _ in range(6):
            answer = env.reset()
            found.append(first(env, answer))
        return found

    for name, first in (
        ("FrozenLake-v0-random", lambda env, answer: answer[0]),
        ("KuhnPoker-v0", lambda env, answer: env.last()[0]),
    ):
        assert followed(name, first) == followed(name, first)
        assert len(set(followed(name, first))) > 1


@pytest.mark.parametrize("id", ["textarena/TicTacToe-v0", "textarena/2048-v0-train", "textarena/SecretMafia-v0-raw"])
def test_the_checker_finds_nothing(id):
    assert check_env(id, max_steps=60) == []


def test_any_text_is_an_action():
    env = make_env("textarena/TicTacToe-v0")
    env.reset(seed=0)
    for text in ("🌲 \x00", f"[{'9' * 5000}]"):
        assert env.action_space("player_0").contains(text) and encodable(text)
        env.step(text)
    assert env.terminations["player_0"]


def test_what_games_print_is_kept_from_the_output(capsys):
    """RushHour tells how many boards it has tried."""
    make_env("textarena/RushHour-v0").reset(seed=0)
    assert capsys.readouterr() == ("", "")


def test_refused_ids_name_the_reason_and_touch_no_network(monkeypatch):
    def touched(*_):
        raise AssertionError("the network")

    monkeypatch.setattr(socket, "create_connection", touched)
    monkeypatch.setattr(socket, "getaddrinfo", touched)
    told = {
        "Wordle-v0": "word lists",
        "Debate-v0": "OpenRouter",
        "ScorableGames-v0": "not part of TextArena's package",
        "UsedCar-v0-balanced": "No module named",
        "BabyAiText-v0": "No module named 'gym'",
        "Countdown-v0": "a text where a number belongs",
        "CharacterConclave-v0": "observation_type",
        "LightsOut-v0-train": "shows none",
    }
    for name, part in told.items():
        with pytest.raises(ConfigError, match=f"textarena/{name} cannot be played.*{part}"):
            make_env(f"textarena/{name}")
    assert not {"textarena.envs.Wordle.env", "textarena.envs.Hangman.env"} & set(sys.modules)


def test_numpys_generator_is_the_games_own_too():
    """IteratedStagHunt draws from it, and cannot be read by Python 3.11."""
    make_env("textarena/TicTacToe-v0")
    stand_in, before = adapter._STAND_INS[np], global_state()
    with adapter._drawing_from(random.Random(0), np.random.RandomState(4)):
        drawn = [int(stand_in.random.randint(100)) for _ in range(5)]
    assert drawn == np.random.RandomState(4).randint(100, size=5).tolist()
    assert global_state() == before
    assert stand_in.random.default_rng is np.random.default_rng and stand_in.zeros is np.zeros


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it is the older Python that lacks the syntax")
def test_games_in_newer_syntax_say_so():
    with pytest.raises(ConfigError, match=r"Chess-v0 cannot be played here: Python 3\.11 cannot read its source"):
        make_env("textarena/Chess-v0")


def test_what_is_known_against_games_is_true():
    """A table that outlives its reasons would keep sound games away."""
    rewarded = ta.make("Countdown-v0")
    rewarded.reset(num_players=1, seed=0)
    rewarded.step(action="nothing"), rewarded.step(action="nothing")
    assert isinstance(rewarded.close()[0][0], str)
    conclave = ta.make("CharacterConclave-v0")
    conclave.reset(num_players=3, seed=0)
    with pytest.raises(TypeError, match="observation_type"):
        conclave.step(action="hello")
    lights = ta.make("LightsOut-v0-train")
    lights.reset(num_players=1, seed=0)
    with pytest.raises(ValueError, match="GAME_BOARD"):
        lights.get_observation()
    scorable = ta.make("ScorableGames-v0")
    with pytest.raises(FileNotFoundError):
        scorable.reset(num_players=6, seed=0)


def test_arguments_are_checked_when_a_game_is_made():
    with pytest.raises(ConfigError, match="a game for 2 players, given: players=3"):
        make_env("textarena/TicTacToe-v0", players=3)
    with pytest.raises(ConfigError, match="a game for 6 to 15 players, given: players=True"):
        make_env("textarena/SecretMafia-v0", players=True)
    with pytest.raises(ConfigError, match="given: players=2.0"):
        make_env("textarena/TicTacToe-v0", players=2.0)
    with pytest.raises(ConfigError, match="for 4, 6, 8, 10, 12, 14, 16 players, given: players=5"):
        make_env("textarena/Taboo-v0", players=5)
    with pytest.raises(ConfigError, match="Board 5x5 is too small for 15 snakes"):
        make_env("textarena/Snake-v0", players=15)
    with pytest.raises(ConfigError, match="unexpected keyword argument 'rows'"):
        make_env("textarena/TicTacToe-v0", rows=3)
    with pytest.raises(UnknownId, match="did you mean 'textarena/TicTacToe-v0'"):
        make_env("textarena/TicTacToe-v")


def test_arguments_reach_the_game_and_stay_what_they_are():
    piles = [1, 1]
    env = make_env("textarena/Nim-v0", piles=piles)
    env.reset(seed=0)
    env.step("[0 1]")
    assert "pile 0: 0" in env.last()[0]
    env.reset(seed=0)
    assert "pile 0: 1" in env.last()[0]
    assert piles == [1, 1]
    assert len(make_env("textarena/Snake-v0", players=7).possible_agents) == 7


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    adapter._registry.cache_clear()
    adapter._import.cache_clear()
    try:
        for call in (lambda: make_env("textarena/TicTacToe-v0"), lambda: env_ids("textarena")):
            with pytest.raises(MissingExtra, match=r"opentinker\[textarena\]"):
                call()
    finally:
        adapter._registry.cache_clear()
        adapter._import.cache_clear()


def test_the_rows_of_the_table():
    rows = list(played(["textarena/TicTacToe-v0", "textarena/Wordle-v0"], games=2))
    assert [(row.kind, row.agents, row.games) for row in rows] == [("aec", 2, 2), ("", 0, 0)]
    assert rows[0].reason == "" and rows[0].turns >= 4 and "nltk" in rows[1].reason


@pytest.mark.slow
def test_all_ids_are_played_or_refused():
    """Those in an ending of TextArena's, too: 178 of 238 games' ids without an ending, on Python 3.11."""
    rows = list(played(games=1))
    assert len(rows) == 712
    assert {row.id: row.reason for row in rows if row.reason and "cannot be played" not in row.reason} == {}
    plain = [row for row in rows if not row.id.endswith(("-raw", "-train"))]
    assert sum(not row.reason for row in plain) >= 178
    assert all(row.games == 1 and row.turns > 0 for row in rows if not row.reason)


@pytest.mark.slow
def test_every_id_is_played_as_textarena_plays_it():
    heavy = tuple(HEAVY)
    names = [name for name in sorted(ENV_REGISTRY) if not name.startswith(heavy) and not reason(name)]
    assert {name: found for name in names if (found := list(differences(name)))} == {}
