"""Random spaces, nested to any depth: what is written is read back, whatever it holds."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, OneOf, Sequence, Space, Text, Tuple
from gymnasium.vector.utils import iterate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opentinker.envs.codec import TextCodec
from opentinker.envs.text import TextSpace, encodable
from opentinker.errors import ConfigError, EnvError, InvalidAction

ANY_CHARACTER = st.one_of(
    st.characters(exclude_categories=()),
    st.sampled_from("\0\ud800\udfff\u200f\u202e\u05d0\U0001f600\n \"'\\,:()[]{}-0"),
)
"""Lone surrogates, NUL, right-to-left letters and marks, emoji, and what the texts of spaces are made of, often."""
ANY_TEXT = st.text(ANY_CHARACTER, max_size=40)
NUMBERS = [np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64, np.bool_]
SHAPES = st.lists(st.integers(1, 3), max_size=3).map(tuple)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def bounds(dtype: Any) -> st.SearchStrategy[Any]:
    if np.issubdtype(dtype, np.floating):
        return st.floats(width=np.finfo(dtype).bits, allow_nan=False).map(lambda number: dtype(number))
    if dtype is np.bool_:
        return st.integers(0, 1)
    return st.integers(int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), 2**63 - 2))


@st.composite
def boxes(draw: Any) -> Box:
    dtype = draw(st.sampled_from(NUMBERS))
    shape = draw(SHAPES)
    size = int(np.prod(shape, dtype=int))
    pairs = [sorted((draw(bounds(dtype)), draw(bounds(dtype)))) for _ in range(size)]
    low = np.array([pair[0] for pair in pairs], dtype).reshape(shape)
    high = np.array([pair[1] for pair in pairs], dtype).reshape(shape)
    return Box(low, high, dtype=dtype)


@st.composite
def counts(draw: Any) -> MultiDiscrete[Any]:
    shape = draw(SHAPES.filter(bool))
    size = int(np.prod(shape))
    nvec, start = (draw(st.lists(st.integers(low, 9), min_size=size, max_size=size)) for low in (1, -9))
    dtype = draw(st.sampled_from([np.int64, np.int8]))
    return MultiDiscrete(np.array(nvec).reshape(shape), dtype=dtype, start=np.array(start).reshape(shape))


def texts() -> st.SearchStrategy[Text]:
    lengths = st.tuples(st.integers(0, 4), st.integers(0, 9)).map(sorted)
    alphabets = st.lists(ANY_CHARACTER.filter(encodable), min_size=1, max_size=6, unique=True)
    return st.builds(lambda pair, chars: Text(pair[1], min_length=pair[0], charset="".join(chars)), lengths, alphabets)


LEAVES = st.one_of(
    st.builds(Discrete, st.integers(1, 30), start=st.integers(-40, 40)),
    st.builds(Discrete, st.just(10**6), start=st.integers(-(10**7), 10**7)),
    boxes(),
    counts(),
    SHAPES.filter(bool).map(MultiBinary),
    texts(),
    st.lists(st.text(max_size=5), min_size=1, max_size=4, unique=True).map(lambda names: TextSpace(choices=names)),
    st.integers(0, 20).map(TextSpace),
)


def containers(inner: st.SearchStrategy[Space[Any]]) -> st.SearchStrategy[Space[Any]]:
    return st.one_of(
        st.lists(inner, max_size=3).map(Tuple),
        st.dictionaries(st.text(ANY_CHARACTER, max_size=5), inner, max_size=3).map(Dict),
        st.lists(inner, min_size=1, max_size=3).map(OneOf),
        st.builds(Sequence, inner, stack=st.just(False)),
        st.builds(Sequence, LEAVES, stack=st.just(True)),
    )


SPACES = st.recursive(LEAVES, containers, max_leaves=8)
SEEDS = st.integers(0, 2**63 - 1)


def same(one: Any, other: Any, space: Space[Any]) -> bool:
    """Equal in every part, types of arrays and signs of zeros included."""
    if isinstance(space, Dict):
        return one.keys() == other.keys() and all(same(one[key], other[key], space[key]) for key in one)
    if isinstance(space, OneOf):
        return one[0] == other[0] and same(one[1], other[1], space.spaces[one[0]])
    if isinstance(space, Tuple):
        return len(one) == len(other) and all(map(same, one, other, space.spaces))
    if isinstance(space, Sequence):
        if space.stack:
            one, other = (list(iterate(space.stacked_feature_space, value)) for value in (one, other))
        return len(one) == len(other) and all(same(a, b, space.feature_space) for a, b in zip(one, other, strict=True))
    if isinstance(space, (Box, MultiDiscrete, MultiBinary)):
        one, other = np.asarray(one), np.asarray(other)
        return one.dtype == other.dtype == space.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(one == other)


def inside(value: Any, space: Space[Any]) -> bool:
    with warnings.catch_warnings():  # Gymnasium's Boxes without axes, drawn or unstacked, are no arrays, at which it warns
        warnings.simplefilter("ignore")
        return space.contains(value)


@MANY
@given(space=SPACES, seed=SEEDS)
def test_a_random_action_is_read_back_from_its_text(space, seed):
    codec = TextCodec(None, space, render=str)
    action = codec.sample(seed)
    assert inside(action, space)
    text = codec.render_action(action)
    read = codec.parse(text)
    assert same(read, action, space) and inside(read, space)
    assert same(codec.sample(seed), action, space)


@MANY
@given(space=SPACES, seed=st.integers(0, 2**31))
def test_what_gymnasium_draws_is_read_back_and_shown(space, seed):
    codec = TextCodec(space, space)
    space.seed(seed)
    with np.errstate(all="ignore"):
        try:
            action = space.sample()
        except (OverflowError, ValueError):  # its own Box and Text cannot draw from each of theirs
            return
    if not inside(action, space):  # nor is all that it draws inside
        return
    assert same(codec.parse(codec.render_action(action)), action, space)
    assert isinstance(codec.render(action), str) and isinstance(codec.describe(), str)


@MANY
@given(space=SPACES, reply=ANY_TEXT)
def test_no_text_crashes_parse(space, reply):
    codec = TextCodec(None, space, render=str)
    try:
        action = codec.parse(reply)
    except InvalidAction as error:
        assert error.reply == reply and str(error)
    else:
        assert inside(action, space) and same(codec.parse(codec.render_action(action)), action, space)


@MANY
@given(space=SPACES, seed=SEEDS, data=st.data())
def test_no_damage_to_a_right_answer_crashes_parse(space, seed, data):
    codec = TextCodec(None, space, render=str)
    right = codec.render_action(codec.sample(seed))
    start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(right))] * 2)))
    with contextlib.suppress(InvalidAction):
        assert inside(codec.parse(right[:start] + data.draw(ANY_TEXT) + right[end:]), space)


@MANY
@given(text=ANY_TEXT, key=ANY_TEXT)
def test_any_text_is_shown_and_told_apart_by_its_key(text, key):
    assert TextCodec(TextSpace(), Discrete(2)).render(text) == text
    inner = TextCodec(Dict({key: Text(40)}), Discrete(2)).render({key: text})
    inner.encode()  # escapes where there is no character
    spoken = TextCodec(None, Dict({key: TextSpace(40)}), render=str)
    if encodable(text):
        assert spoken.parse(inner) == {key: text}
    else:
        with pytest.raises(InvalidAction, match="lone surrogates"):
            spoken.parse(inner)


def test_lone_surrogates_are_no_characters_whatever_a_charset_says():
    space = Text(4, min_length=2, charset="a\ud800\udc00")
    codec = TextCodec(space, Tuple([space]))
    assert {codec.sample(seed)[0].replace("a", "") for seed in range(20)} == {""}
    assert codec.parse('("aa")') == ("aa",)
    with pytest.raises(InvalidAction, match="surrogates"):
        codec.parse('("a\\ud800")')
    with pytest.raises(ValueError, match="lone surrogates"):
        codec.render_action(("a\ud800",))
    assert codec.render("\ud800\udc00") == "\ud800\udc00"  # what the environment shows is shown
    assert TextCodec(None, Text(2, min_length=0, charset="\ud800"), render=str).sample(1) == ""
    with pytest.raises(ConfigError, match="no reply can be in"):
        TextCodec(None, Text(2, charset="\ud800"), render=str)
    for mask in ((None, [0, 1, 1]), (3, [0, 0, 0])):
        with pytest.raises(EnvError, match="leaves no legal action"):
            TextCodec(None, space, render=str).sample(1, mask)


def nested(space: Space[Any]) -> TextCodec:
    return TextCodec(space, space)


SPELLED = [
    (MultiDiscrete([3, 9]), np.array([2, 7]), "2, 7", ["[2, 7]", "2 7", "(2; 7)"]),
    (MultiDiscrete([[3], [9]], start=[[1], [-9]]), np.array([[3], [-1]]), "[[3], [-1]]", ["3 -1"]),
    (MultiBinary([2, 2]), np.array([[1, 0], [0, 1]], np.int8), "[[1, 0], [0, 1]]", ["1 0 0 1"]),
    (
        Tuple([Discrete(4), Box(0, 1, (2,))]),
        (3, np.array([0.5, 1], np.float32)),
        "(3, [0.5, 1])",
        ["[3, [0.5, 1]]", "3,[.5 1]"],
    ),
    (Tuple([Discrete(4)]), (3,), "(3)", ["3", "(3,)", " [ 3 ] \n"]),
    (Tuple([]), (), "()", ["[]"]),
    (
        Dict({"go": TextSpace(choices=["up", "down"]), "n": Discrete(3, start=1)}),
        {"go": "up", "n": 3},
        '{go: "up", n: 3}',
        ["{'n': 3, 'go': 'Up'}", "n: 3, go: up", '{"n": 3, "go": "up",}', "{n:3;go:UP}"],
    ),
    (Dict({'a "b"': Discrete(2), "": Discrete(2)}), {"": 0, 'a "b"': 1}, '{"": 0, "a \\"b\\"": 1}', []),
    (Dict({"say": TextSpace()}), {"say": "it's, well"}, '{say: "it\'s, well"}', ["say: \"it's\\u002c well\""]),
    (Dict({"say": TextSpace()}), {"say": "two\nlines"}, '{say: "two\\nlines"}', ['say: "two\nlines"', "say: two\nlines"]),
    (Dict({"say": TextSpace()}), {"say": "it's fine: yes"}, '{say: "it\'s fine: yes"}', ["{say: it's fine: yes }"]),
    (Sequence(Discrete(5)), (4, 0, 4), "[4, 0, 4]", ["(4, 0, 4)", "4, 0, 4", "[4,0,4,]"]),
    (Sequence(Discrete(5)), (), "[]", ["()"]),
    (Sequence(Box(0, 9, (2,), np.int8), stack=True), np.array([[1, 2], [3, 4]], np.int8), "[[1, 2], [3, 4]]", []),
    (Sequence(Box(0, 9, (2,), np.int8), stack=True), np.empty((0, 2), np.int8), "[]", ["()"]),
    (
        OneOf([Discrete(3), Box(-9, 9, ())]),
        (1, np.array(-2.5, np.float32)),
        "1: -2.5",
        ["(1, -2.5)", "[1: -2.5]", " 1 :-2.5"],
    ),
    (
        Dict({"to": OneOf([Text(3, charset="ab\n"), Sequence(Tuple([Discrete(2), MultiBinary(2)]))])}),
        {"to": (1, ((1, np.array([0, 1], np.int8)),))},
        "{to: 1: [(1, [0, 1])]}",
        ["to: 1: [[1, [0, 1]]]"],
    ),
    (Box(-np.inf, np.inf, (2,)), np.array([np.inf, -np.inf], np.float32), "inf, -inf", ["+Inf -infinity"]),
    (Box(0, 2**64 - 1, (), np.uint64), np.array(2**64 - 1, np.uint64), "18446744073709551615", []),
]


@pytest.mark.parametrize(("space", "action", "text", "others"), SPELLED, ids=[text for *_, text, _ in SPELLED])
def test_how_an_action_is_written_and_what_else_is_read_as_it(space, action, text, others):
    codec = nested(space)
    assert codec.render_action(action) == text
    for reply in (text, *others):
        assert same(codec.parse(reply), action, space), reply
    assert codec.legal() is None


FAULTS = [
    (Tuple([Discrete(4), Discrete(4)]), "", "the reply is empty"),
    (Tuple([Discrete(4), Discrete(4)]), "(1, 2", r"'\)' is expected at the end"),
    (Tuple([Discrete(4), Discrete(4)]), "(1)", r"',' is expected before '\)'"),
    (Tuple([Discrete(4), Discrete(4)]), "(1, 9)", "part 2: no such action; legal: 0, 1, 2, 3"),
    (Tuple([Discrete(4), Discrete(4)]), "(1, 2) ok", "nothing more is expected before 'ok'"),
    (Dict({"a": Tuple([Discrete(4), Box(0, 1, (2,))])}), "{a: (1, [2 0])}", "a, part 2: out of bounds"),
    (Dict({"a": Discrete(2), "b": Discrete(2)}), "{a: 1}", "b is missing"),
    (Dict({"a": Discrete(2), "b": Discrete(2)}), "{c: 1}", "there is no 'c'; legal: a, b"),
    (Dict({"a": Discrete(2), "b": Discrete(2)}), "{a: 1, a: 1}", "'a' is given twice"),
    (Dict({"a": Discrete(2), "b": Discrete(2)}), "{a 1}", "':' is expected"),
    (Sequence(Box(0, 1, (2,))), "[[0 1], [0 1]", r"'\]' is expected at the end|',' is expected at the end"),
    (Sequence(Box(0, 1, (2,))), "[[0 1]], [0", "nothing more is expected"),
    (Sequence(Box(0, 1, (2,))), "[[0 1", "item 1: a bracket is not closed"),
    (Sequence(Discrete(3)), "[0, , 1]", "item 2: a value is missing before ', 1]'"),
    (OneOf([Discrete(3), Discrete(9)]), "2: 0", "there is no part 2 now; legal: 0, 1"),
    (OneOf([Discrete(3), Discrete(9)]), "up", "a whole number is expected before 'up'"),
    (Dict({"say": Text(3)}), '{say: "abc}', "say: a text in double quotes does not end"),
    (Dict({"say": Text(3)}), '{say: "\\ud800"}', "say: .*surrogates"),
    (MultiBinary(2), "1 2", "out of bounds: at least .0, 0., at most .1, 1."),
]


@pytest.mark.parametrize(("space", "reply", "reason"), FAULTS, ids=[reply for _, reply, _ in FAULTS])
def test_a_reply_that_is_no_action_is_told_where_and_why(space, reply, reason):
    with pytest.raises(InvalidAction, match=reason) as error:
        nested(space).parse(reply)
    assert error.value.reply == reply


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (MultiDiscrete([3, 9]), [3, 0]),
        (MultiDiscrete([3, 9]), [0.5, 0.5]),
        (MultiBinary(2), [1, 2]),
        (Box(0, 9, (1,), np.int8), np.array([257])),  # 1 in a byte
        (Box(0, 9, (1,), np.int8), "no"),
        (Discrete(10**6), 0.5),
        (Tuple([Discrete(2)]), (1, 1)),
        (Dict({"a": Discrete(2)}), {"b": 1}),
        (Dict({"a": Discrete(2)}), 1),
        (Sequence(Discrete(2)), 1),
        (Sequence(Discrete(2)), (0, 2)),
        (Sequence(Dict({"a": Discrete(2)}), stack=True), 1),
        (OneOf([Discrete(2)]), (1, 0)),
        (OneOf([Discrete(2)]), (0.0, 0)),
        (OneOf([Discrete(2)]), 0),
    ],
    ids=repr,
)
def test_rendering_what_is_no_action_is_an_error(space, wrong):
    with pytest.raises(ValueError, match="is not in|is none of|is not from"):
        nested(space).render_action(wrong)


@pytest.mark.parametrize(
    ("space", "how"),
    [
        (MultiDiscrete([3, 9]), "Answer with 2 whole numbers, at least [0, 0] and at most [2, 8], separated by commas."),
        (MultiBinary(3), "Answer with 3 whole numbers from 0 to 1, separated by commas."),
        (Text(4, min_length=2, charset="a\nb"), 'Answer with 2 to 4 characters of: "\\nab"'),
        (Tuple([Discrete(3), TextSpace(9)]), '(<0|1|2>, "<at most 9 characters>")'),
        (Dict({"at": Discrete(99), "by": Box(0, 1, (2,))}), "{at: <0 to 98>, by: [<2 numbers from 0 to 1>]}"),
        (Sequence(OneOf([Discrete(2), Box(0, 1, ())])), "[0: <0|1> or 1: <1 number from 0 to 1>, ...: any number of them]"),
    ],
)
def test_how_to_answer(space, how):
    prefix = "" if how.startswith("Answer") else "Answer in this form, with a value in the place of every <...>: "
    assert nested(space).describe() == prefix + how


class TestWhatHasNoText:
    @pytest.mark.parametrize("wrap", [lambda inner: inner, lambda inner: Tuple([inner]), lambda inner: Dict({"a": inner}),
                                      Sequence, lambda inner: OneOf([inner])])  # fmt: skip
    @pytest.mark.parametrize(
        ("space", "why"),
        [
            (Graph(Box(0, 1, (2,)), Discrete(3)), "Graph have no text form.*which of them helps depends on the task"),
            (Box(0, 255, (84, 84, 3), np.uint8), r"the size of an image \(84 x 84 x 3\) are not written as text"),
            (Box(0, 1, (4, 84, 84)), r"the size of an image \(4 x 84 x 84\)"),
            (MultiBinary([32, 32]), r"the size of an image \(32 x 32\)"),
            (Box(0, 1, (10_001,)), "of 10001 numbers"),
        ],
        ids=lambda part: "" if isinstance(part, str) else type(part).__name__,
    )
    def test_is_refused_with_a_word_on_what_to_do(self, space, why, wrap):
        with pytest.raises(ConfigError, match=f"observations.*{why}.*`render` function"):
            TextCodec(wrap(space), Discrete(2))
        with pytest.raises(ConfigError, match=f"actions.*{why}.*`parse` function"):
            TextCodec(TextSpace(), wrap(space))
        codec = TextCodec(wrap(space), wrap(space), render=lambda seen: "seen", parse=lambda text: text)
        assert codec.render(None) == "seen" and codec.legal() is None

    @pytest.mark.parametrize("shape", [(19, 19, 17), (8, 8, 111), (7, 7, 3), (10_000,), (31, 300)])
    def test_boards_of_games_and_long_vectors_are_not_images(self, shape):
        assert TextCodec(Box(0, 1, shape, np.int8), Discrete(2)).render(np.zeros(shape, np.int8)).startswith("[")

    def test_an_author_s_own_kind_of_space(self):
        class Own(Space):
            pass

        with pytest.raises(ConfigError, match="actions of Own have no text form.*Supported are Discrete, Box"):
            TextCodec(TextSpace(), Own())


@MANY
@given(space=LEAVES, seed=SEEDS)
def test_no_mask_for_a_part_is_no_limit(space, seed):
    codec, inner = nested(Tuple([space, Discrete(2)])), nested(space)
    action = codec.sample(seed, (None, [0, 1]))
    assert action[1] == 1 and inside(action[0], space)
    assert same(inner.parse(inner.render_action(action[0])), action[0], space)


def test_nested_so_deep_that_a_reader_would_lose_the_thread():
    space: Space[Any] = Discrete(2)
    for _ in range(60):
        space = Tuple([space])
    codec = nested(space)
    action = codec.sample(1)
    assert codec.parse(codec.render_action(action)) == action
    with pytest.raises(InvalidAction):
        codec.parse("(" * 100_000)


@pytest.mark.parametrize(
    "space",
    [
        Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (400,), np.float64),
        Box(-(2**63), 2**63 - 2, (400,), np.int64),
        Box(0, 2**64 - 1, (400,), np.uint64),
    ],
    ids=str,
)
def test_random_numbers_are_spread_over_the_widest_bounds(space):
    drawn = TextCodec(None, space, render=str).sample(3)
    assert drawn in space and len(set(drawn.tolist())) == drawn.size
    assert drawn.size == 400 and 120 < (drawn > space.low / 2 + space.high / 2).sum() < 280


def test_random_numbers_do_not_step_over_a_bound_by_rounding():
    space = Box(5.3, 5.3, (1000,), np.float64)  # 5.3 * (1 - p) + 5.3 * p is not always 5.3
    assert TextCodec(None, space, render=str).sample(3) in space
