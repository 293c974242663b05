"""OpenSpiel's games through seats and coordinators, against OpenSpiel itself.

A raw state replays what was played: the same words, the same texts, the same returns.
"""

from __future__ import annotations

import itertools
import random
import sys

import numpy as np
import pyspiel
import pytest

from opentinker.config import load_config
from opentinker.coordinators import Table, make_coordinator, play_episode
from opentinker.envs import TextCodec, check_env, env_ids, make_env, open_env
from opentinker.envs.world import kind_of
from opentinker.errors import ConfigError, EnvError, InvalidAction, MissingExtra, UnknownId
from opentinker.rollout import Rollout, run_async
from opentinker.sampling.hf import HFSampler
from opentinker.sampling.tiny import build_tiny
from opentinker.seeding import derive
from opentinker.testing.played import COORDINATOR
from opentinker.testing.played_openspiel import INNER, played
from opentinker.testing.seats import FunctionSeat
from opentinker.types import EpisodeStatus


def play(name, episode_seed=0, isolation="inline", **kwargs):
    """One game by random players: the episode, and (player, action) of all that happened."""
    numbers = itertools.count()

    def answer(observation, space, mask):
        return space.render_action(space.sample(derive(episode_seed, next(numbers)), mask))

    async def main():
        world = open_env(f"openspiel/{name}", kwargs, isolation=isolation)
        try:
            table = Table(world, lambda agent: FunctionSeat(agent, answer), episode_id="game", seed=episode_seed)
            episode = await play_episode(make_coordinator(COORDINATOR[world.kind]), world, table)
            return episode, await world.call("history")
        finally:
            await world.close()

    return run_async(main)


def look(game, state, player):
    """What a player should see; perfect information is all that is left where a game has no text for players."""
    kind = game.get_type()
    if kind.provides_information_state_string:
        return state.information_state_string(player)
    return state.observation_string(player) if kind.provides_observation_string else str(state)


def replay(game, episode, history):
    """OpenSpiel's own game of what was played; every word and every text is compared on the way."""
    state = game.new_initial_state()
    steps, turns = iter(history), iter(episode.turns)

    def acted(player):
        (who, action), turn = next(steps), next(turns)
        assert who == player and turn.agent == f"player_{player}" and turn.valid
        name = state.action_to_string(player, action).strip()
        assert turn.action in (name, f"{name} #{action}".strip()) and action in state.legal_actions(player)
        assert turn.observation == look(game, state, player)
        assert turn.n_legal == len(state.legal_actions(player))
        return action

    while not state.is_terminal():
        if state.is_chance_node():
            who, action = next(steps)
            assert who == pyspiel.PlayerId.CHANCE and dict(state.chance_outcomes())[action] > 0
            state.apply_action(action)
        elif state.is_simultaneous_node():
            state.apply_actions([acted(player) for player in range(game.num_players())])
        else:
            state.apply_action(acted(state.current_player()))
    assert next(steps, None) is None and next(turns, None) is None
    return state


def loaded(name, kwargs, seed):
    """The game itself, where it draws chance with its own generator with the seed that the environment gives it."""
    kind = next(kind for kind in pyspiel.registered_games() if kind.short_name == name)
    parameters = {
        key: pyspiel.game_parameters_from_string(value) if kind.parameter_specification[key] == {} else value
        for key, value in kwargs.items()
    }
    if "rng_seed" in kind.parameter_specification:
        parameters["rng_seed"] = random.Random(seed).randrange(2**31)
    return pyspiel.load_game(name, parameters)


def compare(name, episode_seed=0, **kwargs):
    before = random.getstate(), np.random.get_state()[1].tolist()
    episode, history = play(name, episode_seed, **kwargs)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # all chance is the environment's own
    assert episode.status is EpisodeStatus.TERMINATED, episode.error
    game = loaded(name, kwargs, episode_seed)
    returns = replay(game, episode, history).returns()
    assert [episode.rewards[f"player_{player}"] for player in range(game.num_players())] == pytest.approx(returns, abs=1e-9)
    return episode


NAMES = [id.partition("/")[2] for id in env_ids("openspiel")]
REFUSED = {"crossword", "efg_game", "nfg_game"} | {name for name in NAMES if name.startswith("mfg_")}
LONG = {"bridge", "chinese_checkers", "colored_trails", "go", "kriegspiel", "laser_tag", "tiny_bridge_2p", "yacht"}
"""Games that take a second and more."""


def test_nearly_all_of_openspiels_games_are_played():
    assert len(set(NAMES) - REFUSED) >= 125 and REFUSED | LONG | set(INNER) <= set(NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in NAMES if name not in REFUSED]
)
def test_a_game_is_played_to_its_end_with_openspiels_words_texts_and_returns(name):
    compare(name, **INNER.get(name, {}))


def test_a_game_from_a_file(tmp_path):
    file = tmp_path / "matching_pennies.nfg"
    file.write_text('NFG 1 R "Matching pennies" { "Even" "Odd" } { 2 2 }\n\n1 -1 -1 1 -1 1 1 -1\n')
    episode = compare("nfg_game", filename=str(file))
    assert sorted(episode.rewards.values()) == [-1, 1]


def test_equal_seeds_give_equal_episodes_and_chance_is_the_environments_own():
    def deals(seeds):
        return [play("kuhn_poker", seed)[1][:2] for seed in seeds]

    state = random.getstate()
    first = deals(range(60))
    assert random.getstate() == state
    assert deals(range(60)) == first
    assert len({tuple(deal) for deal in first}) == 6  # every deal of three cards to two players


def test_a_game_that_draws_with_its_own_generator_is_seeded_by_reset():
    for name in ("tarok", "negotiation", "bridge_uncontested_bidding"):
        env, told = make_env(f"openspiel/{name}"), []
        for seed in (1, 2, 1, 2, 3):
            env.reset(seed=seed)
            told.append(env.last()[0])
        assert told[:2] == told[2:4] and len(set(told)) == 3
        env.reset()
        assert env.last()[0] not in told  # the generator goes on


def test_rewards_come_when_they_are_earned():
    env = make_env("openspiel/2048")
    env.reset(seed=1)
    game = pyspiel.load_game("2048")
    total, paid = 0.0, 0
    while not env.terminations["player_0"] and paid < 3:
        env.step(env.last()[4]["action_mask"][0])
        reward, state = env.rewards["player_0"], game.new_initial_state()
        for _, action in env.history():
            state.apply_action(action)
        total += reward
        paid += reward > 0
        assert total == state.returns()[0]
    assert paid == 3


def test_every_player_can_be_asked_what_it_sees_and_only_who_acts_has_a_menu():
    env = make_env("openspiel/leduc_poker", players=3)
    env.reset(seed=4)
    assert env.possible_agents == ["player_0", "player_1", "player_2"]
    texts = [env.observe(agent) for agent in env.possible_agents]
    assert len(set(texts)) == 3
    actor = env.agent_selection
    assert [agent for agent in env.possible_agents if "action_mask" in env.infos[agent]] == [actor]
    assert env.last()[0] == texts[env.possible_agents.index(actor)]


def test_players_answer_in_openspiels_words():
    env = make_env("openspiel/chess")
    env.reset(seed=1)
    codec = TextCodec(env.observation_space("player_0"), env.action_space("player_0"))
    menu = env.last()[4]["action_mask"]
    assert {"e4", "Nf3"} <= set(menu) and len(menu) == 20
    assert codec.describe(menu) == f"Answer with one of: {', '.join(menu)}"
    assert codec.parse("nf3", menu) == "Nf3"
    with pytest.raises(InvalidAction, match="'Qh5': not legal now; legal: "):
        codec.parse("Qh5", menu)
    env.step("e4")
    assert env.agent_selection == "player_0" and "e5" in env.last()[4]["action_mask"]  # OpenSpiel's white is player 1


def test_a_word_that_is_not_legal_changes_nothing():
    env = make_env("openspiel/tic_tac_toe")
    env.reset(seed=1)
    before = env.last()
    with pytest.raises(ValueError, match=r"player 0 may answer x\(0,0\), .* now, given: 'zz'"):
        env.step("zz")
    assert env.last() == before and env.history() == []
    both = make_env("openspiel/matrix_pd")
    both.reset(seed=1)
    with pytest.raises(ValueError, match="player 1 may answer Cooperate, Defect now"):
        both.step({"player_0": "Cooperate", "player_1": "zz"})
    assert both.history() == []


def test_which_text_is_seen_can_be_chosen():
    texts = ("information_state", "observation", "state")
    seen = {text: make_env("openspiel/tic_tac_toe", observation=text) for text in texts}
    for env in seen.values():
        env.reset(seed=1)
        env.step("x(1,1)")
    assert {text: env.last()[0] for text, env in seen.items()} == {
        "information_state": "4",
        "observation": "...\n.x.\n...",
        "state": "...\n.x.\n...",
    }


def test_moves_at_once_are_not_seen_by_the_others_when_played_in_turns():
    told = set()
    for word in ("Cooperate", "Defect"):
        env = make_env("openspiel/matrix_pd", api="aec")
        env.reset(seed=1)
        env.step(word)
        assert env.agent_selection == "player_1"
        told.add(env.last()[0])
        env.step("Defect")
        assert tuple(env.rewards.values()) == ((0, 10) if word == "Cooperate" else (1, 1))
    assert len(told) == 1


MIXED_TYPE = pyspiel.GameType(
    short_name="test_mixed",
    long_name="A turn, then a move at once",
    dynamics=pyspiel.GameType.Dynamics.SIMULTANEOUS,
    chance_mode=pyspiel.GameType.ChanceMode.DETERMINISTIC,
    information=pyspiel.GameType.Information.IMPERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.GENERAL_SUM,
    reward_model=pyspiel.GameType.RewardModel.TERMINAL,
    max_num_players=2,
    min_num_players=2,
    provides_information_state_string=False,
    provides_information_state_tensor=False,
    provides_observation_string=True,
    provides_observation_tensor=False,
)


class MixedGame(pyspiel.Game):
    """Player 0 names 0 or 1; then both do. Who has named player 0's first number again wins it."""

    def __init__(self, params=None):
        super().__init__(MIXED_TYPE, pyspiel.GameInfo(2, 0, 2, 0.0, 1.0, 0.0, 2), params or {})

    def new_initial_state(self):
        return MixedState(self)

    def make_py_observer(self, iig_obs_type=None, params=None):
        return MixedObserver()


class MixedObserver:
    tensor, dict = None, {}

    def set_from(self, state, player):
        pass

    def string_from(self, state, player):
        return f"first {state.first}"


class MixedState(pyspiel.State):
    def __init__(self, game):
        super().__init__(game)
        self.first, self.both = None, None

    def current_player(self):
        if self.both is not None:
            return pyspiel.PlayerId.TERMINAL
        return 0 if self.first is None else pyspiel.PlayerId.SIMULTANEOUS

    def _legal_actions(self, player):
        return [0, 1]

    def _apply_action(self, action):
        self.first = action

    def _apply_actions(self, actions):
        self.both = list(actions)

    def _action_to_string(self, player, action):
        return f"number {action}"

    def is_terminal(self):
        return self.both is not None

    def returns(self):
        return [0.0, 0.0] if self.both is None else [float(number == self.first) for number in self.both]

    def __str__(self):
        return f"{self.first} {self.both}"


@pytest.fixture(scope="module")
def mixed_game():
    pyspiel.register_game(MIXED_TYPE, MixedGame)


def test_a_game_with_turns_and_moves_at_once_is_played_in_turns(mixed_game):
    env = make_env("openspiel/test_mixed")
    assert kind_of(env) == "aec"
    env.reset(seed=1)
    env.step("number 1")
    assert env.agent_selection == "player_0" and env.last()[0].endswith("first 1")
    env.step("number 1")
    assert env.agent_selection == "player_1"
    env.step("number 0")
    assert env.rewards == {"player_0": 1.0, "player_1": 0.0} and all(env.terminations.values())
    with pytest.raises(EnvError, match="has turns of single players among its moves: make it with api='aec'"):
        make_env("openspiel/test_mixed", api="parallel").reset(seed=1)


def test_actions_of_one_name_are_told_apart(mixed_game, monkeypatch):
    monkeypatch.setattr(MixedState, "_action_to_string", lambda self, player, action: "same")
    env = make_env("openspiel/test_mixed")
    env.reset(seed=1)
    assert env.last()[4]["action_mask"] == ("same #0", "same #1")
    env.step("same #1")
    assert env.last()[0].endswith("first 1")


def test_all_simultaneous_games_are_played_at_once_unless_asked_otherwise():
    assert kind_of(make_env("openspiel/goofspiel")) == "parallel"
    assert kind_of(make_env("openspiel/goofspiel", api="aec")) == "aec"


def test_parameters_reach_the_game():
    for players in (2, 3, 4):
        episode = compare("kuhn_poker", players=players)
        assert set(episode.rewards) == {f"player_{player}" for player in range(players)}
    assert make_env("openspiel/misere", game={"name": "kuhn_poker", "players": 3}).possible_agents[-1] == "player_2"
    assert make_env("openspiel/misere", game="kuhn_poker(players=4)").possible_agents[-1] == "player_3"


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("kuhn_poker", {"playrs": 3}, "has no parameter 'playrs'; did you mean 'players'.; it takes players"),
        ("tic_tac_toe", {"zz": 3}, "has no parameter 'zz'; it takes none"),
        ("kuhn_poker", {"players": 44}, "cannot be made with {'players': 44}: .*num_players_ = 44"),
        ("kuhn_poker", {"players": "3"}, "cannot be made with {'players': '3'}: Wrong type for parameter players"),
        ("kuhn_poker", {"players": [3]}, "cannot be made with"),
        ("kuhn_poker", {"api": "parallel"}, "has no api 'parallel'; it has: aec"),
        ("goofspiel", {"api": "turns"}, "has no api 'turns'; it has: aec, parallel"),
        ("gin_rummy", {"observation": "information_state"}, "has no observation 'information_state'; it has: observation"),
        ("misere", {}, "cannot be made without parameters; it takes game"),
        ("efg_game", {}, "cannot be made without parameters; it takes filename"),
        ("nfg_game", {}, "cannot be made without parameters; it takes filename"),
        ("nfg_game", {"filename": "/no/such/file"}, "cannot be made with {'filename': '/no/such/file'}: "),
        ("repeated_game", {"stage_game": "matrix_pd"}, "Missing parameter num_repetitions; it takes num_repetitions, "),
        ("crossword", {}, "has no list of actions"),
        ("misere", {"game": "tic_tac_to"}, "no game 'tic_tac_to'; did you mean 'tic_tac_toe'"),
        ("misere", {"game": 3}, r"misere: game must be a game in the form goofspiel\(players=3\) or .*, given: 3"),
        ("misere", {"game": "kuhn_poker(playrs=3)"}, "openspiel/kuhn_poker has no parameter 'playrs'"),
        ("tarok", {"rng_seed": 3}, "leave out rng_seed=3; the seed of `reset` decides chance"),
        ("connect_four", {"rows": 0}, "rows must be 1 or more .given: 0; by itself it is 6"),  # it would crash the process
        ("go", {"board_size": 1000}, "cannot be made with {'board_size': 1000}: .*supports board size up to 19"),
        ("leduc_poker", {"players": 2**40}, "cannot be made with"),
        ("misere", {"game": "kuhn_poker("}, "misere: game: 'kuhn_poker.' is no game as OpenSpiel writes one"),
        ("mfg_garnet", {}, "is a mean-field game: a population acts in it"),
        ("mfg_crowd_modelling", {}, "is a mean-field game"),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_reason(name, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make_env(f"openspiel/{name}", **kwargs)


def test_an_unknown_game_is_told_near_names():
    with pytest.raises(UnknownId, match="did you mean 'openspiel/leduc_poker'"):
        make_env("openspiel/leduc_pokr")


def test_the_extra_is_named_where_openspiel_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(MissingExtra, match=r"pip install 'opentinker\[openspiel\]'"):
        make_env("openspiel/kuhn_poker")
    assert env_ids("openspiel") == []


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("leduc_poker", {}),
        ("tic_tac_toe", {"observation": "observation"}),
        ("goofspiel", {"num_cards": 4}),
        ("matrix_pd", {}),
        ("goofspiel", {"num_cards": 4, "api": "aec"}),
        ("repeated_game", INNER["repeated_game"]),
        ("catch", {}),
        ("tarok", {}),
        ("python_tic_tac_toe", {}),
    ],
)
def test_the_checker_finds_nothing(name, kwargs):
    assert check_env(f"openspiel/{name}", kwargs=kwargs) == []


def test_games_are_played_in_a_process_of_their_own():
    here, there = play("liars_dice", 3), play("liars_dice", 3, isolation="process")
    assert [turn.action for turn in here[0].turns] == [turn.action for turn in there[0].turns]
    assert here[0].rewards == there[0].rewards and here[1] == there[1]


class Host:
    """Serves a tiny policy that nobody trains."""

    def __init__(self):
        model, self.words = build_tiny(5)
        self.sampler = HFSampler()
        self.sampler.add("learner", model, self.words)

    def tokenizer(self, policy):
        return self.words

    def max_context(self, policy):
        return 2048


def test_a_policy_is_told_the_legal_words_and_what_it_says_is_read():
    config = load_config(
        {
            "seed": 3,
            "env": {"id": "openspiel/leduc_poker", "kwargs": {"players": 3}},
            "coordinator": {"id": "turns"},
            "agents": {
                "player_0": {"policy": "learner", "memory": "last", "on_invalid": "fallback"},
                "*": {"player": "random_legal"},
            },
            "policies": {"learner": {"model": "tiny", "sampling": {"max_tokens": 4}}},
        }
    )
    host = Host()

    async def main():
        session = Rollout(config, host)
        try:
            await session.check()
            return [episode for group in await session.collect(1, groups=3) for episode in group.episodes]
        finally:
            await session.close()

    for episode in run_async(main):
        assert episode.status is EpisodeStatus.TERMINATED and sum(episode.rewards.values()) == 0
        turn = next(turn for turn in episode.turns if turn.agent == "player_0")
        prompt = host.words.decode(list(turn.prompt_ids))
        assert turn.observation in prompt and "Answer with one of: " in prompt
        assert turn.valid or " instead" in turn.error


def test_the_table_of_games_says_what_was_played_and_what_refused():
    rows = list(played(["openspiel/misere", "openspiel/matrix_pd", "openspiel/crossword"], games=2))
    assert [(row.kind, row.agents, row.games) for row in rows] == [("aec", 2, 2), ("parallel", 2, 2), ("", 0, 0)]
    assert [bool(row.reason) for row in rows] == [False, False, True] and "no list of actions" in rows[2].reason
    assert rows[1].turns == 4
    assert [row.id for row in itertools.islice(played(), 2)] == ["openspiel/2048", "openspiel/add_noise"]
