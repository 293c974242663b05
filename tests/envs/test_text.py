import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opentinker.envs.text import Observation, TextAECEnv, TextParallelEnv, TextSpace

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))


class TestTextSpace:
    @given(st.text(max_size=50))
    def test_holds_any_unicode_of_bounded_length(self, text):
        assert text in TextSpace(max_length=50)
        assert text + "x" * (51 - len(text)) not in TextSpace(max_length=50)

    def test_holds_no_lone_surrogate_and_nothing_but_texts(self):
        assert "\ud800" not in TextSpace()
        assert "caf\u00e9 \U0001f600" in TextSpace()
        assert b"bytes" not in TextSpace() and 3 not in TextSpace() and None not in TextSpace()

    def test_with_choices_holds_exactly_these(self):
        space = TextSpace(choices=["p", "b"])
        assert "p" in space and "b" in space
        assert "" not in space and "P" not in space and " p" not in space

    @given(st.integers(0, 2**63 - 1))
    def test_samples_lie_inside_and_follow_the_seed(self, seed):
        for make in (lambda: TextSpace(seed=seed), lambda: TextSpace(choices=["a", "bb", "ccc"], seed=seed)):
            one, other = make(), make()
            drawn = [one.sample() for _ in range(5)]
            assert all(text in one for text in drawn)
            assert drawn == [other.sample() for _ in range(5)]

    def test_a_mask_limits_what_is_drawn(self):
        space = TextSpace(choices=["a", "b", "c"], seed=1)
        assert {space.sample(np.array([0, 1, 1], np.int8)) for _ in range(60)} == {"b", "c"}
        assert {space.sample(probability=np.array([1.0, 0.0, 0.0])) for _ in range(20)} == {"a"}

    def test_refuses_masks_that_make_no_sense(self):
        space = TextSpace(choices=["a", "b"])
        with pytest.raises(ValueError, match="expected 2 entries"):
            space.sample(np.zeros(2, np.int8))
        with pytest.raises(ValueError, match="expected 2 entries"):
            space.sample(np.ones(3, np.int8))
        with pytest.raises(ValueError, match="not both"):
            space.sample(np.ones(2, np.int8), np.ones(2))
        with pytest.raises(ValueError, match="without choices"):
            TextSpace().sample(np.ones(2, np.int8))

    def test_two_spaces_do_not_disturb_each_other(self):
        alone = TextSpace(choices="a b c d".split(), seed=3)
        expected = [alone.sample() for _ in range(10)]
        one, other = TextSpace(choices="a b c d".split(), seed=3), TextSpace(choices="a b c d".split(), seed=4)
        assert [(one.sample(), other.sample())[0] for _ in range(10)] == expected

    def test_equality_text_form_and_pickling(self):
        assert TextSpace(5) == TextSpace(5) != TextSpace(6)
        assert TextSpace(choices=["a"]) != TextSpace(choices=["b"]) and TextSpace(choices=["a"]) != TextSpace()
        assert repr(TextSpace(5)) == "TextSpace(5)"
        assert repr(TextSpace(choices=("a", "b"))) == "TextSpace(choices=['a', 'b'])"
        assert pickle.loads(pickle.dumps(TextSpace(choices=["a", "b"]))) == TextSpace(choices=["a", "b"])

    @pytest.mark.parametrize("choices", [[], ["a", "a"], "ab", ["a", 1], ["toolong"], ["\ud800"]])
    def test_refuses_choices_that_make_no_space(self, choices):
        with pytest.raises(ValueError, match="choices"):
            TextSpace(max_length=3, choices=choices)

    def test_refuses_a_negative_length(self):
        with pytest.raises(ValueError, match="-1"):
            TextSpace(-1)


def test_an_observation_is_a_str_in_every_way_but_its_dtype():
    assert Observation("abc") == "abc" and hash(Observation("abc")) == hash("abc")
    assert Observation("abc").dtype == TextSpace().dtype


class Echo(TextAECEnv):
    metadata = {"name": "echo"}
    possible_agents = ["one_0", "two_0"]
    observation_spaces = action_spaces = {agent: TextSpace() for agent in possible_agents}

    def observe(self, agent):
        return f"hello {agent}"

    def step(self, action):
        self.agent_selection = "two_0"


def test_an_aec_author_gets_bookkeeping_and_a_generator_from_reset():
    env = Echo()
    env.reset(seed=5)
    assert env.agents == ["one_0", "two_0"] and env.agent_selection == "one_0"
    assert env.last() == ("hello one_0", 0.0, False, False, {})
    assert env.last(observe=False)[0] is None
    assert env.last()[0].dtype == env.observation_space("one_0").dtype
    first = [env.rng.random() for _ in range(3)]
    env.reset()  # no seed: the generator goes on
    assert env.rng.random() not in first
    env.reset(seed=5)
    assert [env.rng.random() for _ in range(3)] == first


def test_a_parallel_author_gets_the_same_from_begin():
    class Both(TextParallelEnv):
        possible_agents = ["one_0", "two_0"]

    env = Both()
    env.begin(7)
    drawn = env.rng.random()
    env.agents.clear()
    env.begin(7)
    assert env.agents == ["one_0", "two_0"] and env.rng.random() == drawn
