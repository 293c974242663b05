from __future__ import annotations

import json
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from opentinker.errors import ConfigError, RolloutFailed, UnknownId
from opentinker.human import Left
from opentinker.play import Played, play_run
from opentinker.report.record import episode_from_json
from opentinker.samples import to_samples
from opentinker.types import EpisodeStatus, Group

saved = SimpleNamespace(**runpy.run_path(str(Path(__file__).parent / "fixtures" / "saved.py")))
PLAYER_FIRST = {"player_0": {"player": "always:b"}, "player_1": {"policy": "learner", "memory": "last"}}


def play(folder: Path, agent: str | None, *lines: str, **settings) -> tuple[Played, str]:
    """A game in which the human writes these lines and then goes away."""
    shown, left = [], iter(lines)

    def read() -> str:
        for line in left:
            return line
        raise Left

    played = play_run(folder, agent, show=shown.append, read=read, **{"seed": 4, **settings})
    return played, "\n".join(shown)


@pytest.fixture
def kuhn(tmp_path):
    return saved.save_run(tmp_path / "kuhn", steps=(3,), agents=PLAYER_FIRST)


def test_a_game_is_an_episode_like_any_other(kuhn):
    played, shown = play(kuhn, "player_1", "b")
    assert shown.startswith("You play player_1 against player_0 (trained); seed 4.") and "Moves b. p/b?" in shown
    assert played.file.parent == kuhn / "play" and played.file.name.startswith("player_1-")
    episode = episode_from_json(json.loads(played.file.read_text()))
    assert episode == played.episode and episode.status is EpisodeStatus.TERMINATED
    assert [(turn.agent, turn.reply, turn.trainable) for turn in episode.turns] == [
        ("player_0", "b", False),
        ("player_1", "b", False),
    ]
    assert episode.opponents == {"player_0": "always:b", "player_1": "human"}
    assert sorted(episode.rewards.values()) == [-2, 2]
    samples, _ = to_samples([Group("kuhn_poker", (episode,))], {episode.id: (1.0, 1.0)})
    assert samples == []
    told = played.describe()
    assert "game over (terminated)" in told and "player_1, you: " in told and "moves: player_0 b, player_1 b" in told


def test_the_trained_agents_sit_in_the_other_seats_and_their_turns_are_trainable(tmp_path):
    folder = saved.save_run(tmp_path / "kuhn", steps=(3,), agents={"*": {"policy": "learner", "memory": "last"}})
    played, shown = play(folder, "player_0", "b", ":seen player_1")
    (answer,) = [turn for turn in played.episode.turns if turn.agent == "player_1"]
    assert (answer.policy, answer.version, answer.trainable) == ("learner", 3, True)
    assert played.episode.opponents == {"player_0": "human"}
    ones = {played.episode.id: (1.0,) * len(played.episode.turns)}
    samples, _ = to_samples([Group("kuhn_poker", (played.episode,))], ones)
    assert {sample.agent for sample in samples} == {"player_1"}


def test_what_each_agent_saw_is_shown_on_request(tmp_path):
    seats = {"*": {"policy": "learner", "memory": "full", "system": "Be kind.", "on_invalid": {"retry": 1}}}
    folder = saved.save_run(tmp_path / "kuhn", steps=(3,), agents=seats)
    for seed in range(20):  # until the answer to a pass is a bet, and the human is asked again
        played, shown = play(folder, "player_0", ":seen", "p", ":seen player_1", ":seen nobody", "p", seed=seed)
        if "Moves pb" in shown:
            break
    assert "Be kind." in shown  # the human has the seat's own instructions
    assert "=== player_1 (learner@latest) 1 of 1 ===\nnothing yet" in shown
    prompt = shown[shown.rindex("=== player_1 (learner@latest)") :]
    assert "Be kind." in prompt and "Moves p. p/b?" in prompt
    assert "nobody is called 'nobody'; the agents are player_0, player_1" in shown


def test_equal_seeds_are_equal_games(kuhn):
    first, second, other = (play(kuhn, "player_1", "p", seed=seed)[0] for seed in (8, 8, 9))
    assert first.episode.seed == second.episode.seed != other.episode.seed and first.seed == 8
    assert [turn.observation for turn in first.episode.turns] == [turn.observation for turn in second.episode.turns]
    assert first.file != second.file


@pytest.mark.parametrize("lines", [(":quit",), ("nonsense", ":quit"), ()])
def test_whoever_leaves_leaves_a_transcript(kuhn, lines):
    played, _ = play(kuhn, "player_1", *lines)
    episode = episode_from_json(json.loads(played.file.read_text()))
    assert episode.status is EpisodeStatus.TRUNCATED and episode.outcome["out"] == {"player_1": "truncate"}
    assert "player_1 left: the human left" in played.describe()


def test_moves_at_once_are_made_without_sight_of_each_other(tmp_path):
    agents = {"*": {"policy": "learner", "memory": "last"}}
    folder = saved.save_run(tmp_path / "rps", agents=agents, env={"id": "matrix_game"}, coordinator={"id": "simultaneous"})
    played, shown = play(folder, "player_1", ":seen player_0", "rock", against="always:paper")
    assert played.episode.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert shown.endswith("=== player_0 (always:paper) 1 of 1 ===\nrock/paper/scissors?")
    played, _ = play(folder, "player_0", ":seen", "rock")
    assert {turn.agent for turn in played.episode.turns} == {"player_0", "player_1"}


def test_three_players_and_one_alone(tmp_path):
    three = {"id": "opentinker.testing:OffTurnDeathEnv", "kwargs": {"players": 3, "rounds": 1}}
    folder = saved.save_run(tmp_path / "three", env=three, agents={"*": {"policy": "learner"}})
    played, shown = play(folder, "player_1", "wait", against="always:wait")
    assert "against player_0, player_2 (always:wait)" in shown and set(played.episode.rewards.values()) == {0.5}
    solo = {"env": {"id": "bandit"}, "coordinator": {"id": "solo"}}
    folder = saved.save_run(tmp_path / "solo", **solo)
    with pytest.raises(ConfigError, match="'bandit' is played by one agent, so nobody plays against 'random'"):
        play(folder, "agent", "a", against="random")
    played, shown = play(folder, "agent", "a")
    assert shown.startswith("You play agent; seed 4.") and played.episode.roles == {"agent": "agent"}


def test_people_may_take_their_time(tmp_path):
    clocks = {"id": "turns", "kwargs": {}, "turn_timeout": 0.05, "episode_timeout": 0.05}
    settings = {"coordinator": clocks, "runtime": {"deterministic": False}, "agents": PLAYER_FIRST}
    folder = saved.save_run(tmp_path / "kuhn", env={"id": "kuhn_poker", "isolation": "thread"}, **settings)

    def slowly() -> str:
        time.sleep(0.2)
        return "b"

    episode = play_run(folder, "player_1", show=lambda text: None, read=slowly).episode
    assert episode.status is EpisodeStatus.TERMINATED and "deadline" not in episode.outcome


def test_roles_name_agents_too(tmp_path):
    agents = {"player_0": {"policy": "learner", "role": "opener"}, "player_1": {"policy": "learner", "role": "caller"}}
    folder = saved.save_run(tmp_path / "kuhn", agents=agents)
    played, shown = play(folder, "opener", ":quit")
    assert played.agent == "player_0" and "--- player_0 (opener) ---" in shown
    assert played.episode.roles == {"player_0": "opener", "player_1": "caller"}


@pytest.mark.parametrize(
    ("agent", "against", "error", "message"),
    [
        (None, "self", ConfigError, "say whom you play: --as AGENT; the agents are player_0, player_1"),
        ("player_2", "self", UnknownId, "unknown agent 'player_2'.*the agents are player_0, player_1"),
        ("player_1", "nobody", UnknownId, "unknown opponent 'nobody'"),
        ("player_1", "always:fold", ConfigError, "player 'always:fold' can never act as 'player_0'"),
    ],
)
def test_what_cannot_be_played_is_told(kuhn, agent, against, error, message):
    with pytest.raises(error, match=message):
        play(kuhn, agent, against=against)
    assert not (kuhn / "play").exists()


def test_a_game_that_breaks_is_written_down(tmp_path):
    broken = {"id": "opentinker.testing:RaisingEnv", "kwargs": {"at": 1}}
    folder = saved.save_run(tmp_path / "broken", env=broken, coordinator={"id": "solo"}, agents={"*": {"policy": "learner"}})
    with pytest.raises(RolloutFailed, match=r"the game failed: .*the world broke.*its transcript is"):
        play(folder, "agent", "go")
    (file,) = (folder / "play").iterdir()
    assert episode_from_json(json.loads(file.read_text())).status is EpisodeStatus.FAILED
