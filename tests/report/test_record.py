import dataclasses
import enum
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opentinker.report.record import episode_from_json, episode_to_json
from opentinker.types import Completion, Episode, EpisodeStatus, FinishReason, Message, Turn

COMPLETION = Completion((5, 6), (-0.5, -1e-300), "a\ud800🂡", FinishReason.LENGTH, "learner", 3)

TURN = Turn(
    agent="player_0",
    role="Größe",
    policy="learner",
    version=3,
    index=1,
    attempt=2,
    phase="critique",
    prompt_ids=(1, 2),
    completion=COMPLETION,
    observation="Card K.\u2028",
    action="p",
    valid=True,
    n_legal=2,
    trainable=False,
    reward=1.5,
    penalty=-0.25,
    reply="p!",
    error="none",
)

EPISODE = Episode(
    id="1/2/3",
    env="kuhn_poker",
    seed=2**62,
    group=2,
    member=3,
    roles={"player_0": "Größe"},
    opponents={"player_1": "random_legal"},
    turns=(TURN, replace(TURN, policy=None, version=None, completion=None, prompt_ids=(), n_legal=None, action=None)),
    messages=(Message("player_0", ("player_1", "player_2"), "hi\udfff", 1),),
    final_prompts={"player_0": (9, 8), "player_1": ()},
    rewards={"player_0": 0.1 + 0.2, "player_1": -2.0},
    status=EpisodeStatus.TRUNCATED,
    error="Traceback …",
    outcome={"forfeit": ["player_1"], "deadline": 3.5},
    timings={"env": 0.25, "total": 1.0},
)


def there_and_back(episode, advantages=None):
    """As it goes through a file."""

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    line = json.dumps(episode_to_json(episode, advantages), allow_nan=False)
    assert line.isascii() and "\n" not in line
    return episode_from_json(json.loads(line.encode("utf-8"), parse_constant=refuse))


def test_the_example_leaves_no_field_at_its_default():
    for value in (EPISODE, TURN):
        defaults = {f.name: f.default for f in dataclasses.fields(value) if f.default is not dataclasses.MISSING}
        assert [name for name, default in defaults.items() if getattr(value, name) == default] == []


def test_an_episode_comes_back_equal():
    found = there_and_back(EPISODE)
    assert found == EPISODE
    assert type(found.status) is EpisodeStatus
    assert type(found.turns[0].completion.finish_reason) is FinishReason


def test_advantages_stand_beside_the_turns():
    row = episode_to_json(EPISODE, (0.5, -0.5))
    assert [turn["advantage"] for turn in row["turns"]] == [0.5, -0.5]
    assert there_and_back(EPISODE, (0.5, -0.5)) == EPISODE
    assert "advantage" not in episode_to_json(EPISODE)["turns"][0]
    with pytest.raises(ValueError, match="zip"):
        episode_to_json(EPISODE, (0.5,))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_survive_without_breaking_json(value):
    turn = replace(TURN, reward=value, penalty=value, completion=replace(COMPLETION, logprobs=(value, -1.0)))
    episode = replace(EPISODE, turns=(turn,), rewards={"player_0": value}, timings={"env": value}, outcome={"x": value})
    found = there_and_back(episode, (value,))
    assert repr(found.turns) == repr(episode.turns)
    assert repr(found.rewards) == repr(episode.rewards)
    assert repr(found.timings) == repr(episode.timings)
    assert found.outcome == {"x": repr(value)}


class Move(enum.Enum):
    LEFT = 1


@pytest.mark.parametrize(
    ("action", "written"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(0.25), 0.25),
        (np.float32("nan"), "nan"),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([0.5, np.inf]), [0.5, "inf"]),
        (np.array(7), 7),
        (np.array(["a", None], dtype=object), ["a", None]),
        (np.str_("left"), "left"),
        ((1, (2, 3)), [1, [2, 3]]),
        ({"a": np.int8(1), 2: (np.float16(1),)}, {"a": 1, "2": [1.0]}),
        ({3}, "{3}"),
        (b"\xff", "b'\\xff'"),
        (Move.LEFT, "Move.LEFT"),
        (EpisodeStatus.FAILED, "failed"),
        (2**100, 2**100),
        ("\ud800", "\ud800"),
    ],
    ids=repr,
)
def test_actions_become_plain_data(action, written):
    episode = replace(EPISODE, turns=(replace(TURN, action=action),), outcome={"last": action})
    found = there_and_back(episode)
    assert found.turns[0].action == written
    assert type(found.turns[0].action) is type(written)
    assert found.outcome["last"] == written
    assert found.turns[0] == replace(TURN, action=written)


TEXT = st.text(st.characters(codec=None, exclude_categories=["Cs"]) | st.just("\ud800"), max_size=10)


@settings(deadline=None)
@given(TEXT, TEXT, st.floats(allow_nan=False), st.lists(st.integers(0, 2**31), max_size=4).map(tuple))
def test_any_text_and_number_comes_back(text, name, number, ids):
    completion = replace(COMPLETION, text=text, token_ids=ids, logprobs=(number,) * len(ids))
    turn = replace(TURN, agent=name, observation=text, reply=text, prompt_ids=ids, reward=number, completion=completion)
    episode = replace(
        EPISODE, turns=(turn,), rewards={name: number}, final_prompts={name: ids}, error=text, roles={name: text}
    )
    assert there_and_back(episode) == episode
