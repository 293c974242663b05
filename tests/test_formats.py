import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opentinker.errors import InvalidAction, UnknownId
from opentinker.formats import FORMATS, make_format


@pytest.mark.parametrize(
    ("name", "reply", "action"),
    [
        ("plain", " up\n", " up\n"),
        ("plain", "", ""),
        ("tag", "<action>up</action>", "up"),
        ("tag", "first <action>up</action>, no: <action> down </action>.", "down"),
        ("tag", "<ACTION>up</Action>", "up"),
        ("tag", "<action>a\nb</action>", "a\nb"),
        ("tag", "<action>up</action> or <action>left", "up"),
        ("tag", "<action>up</action></action>", "up"),
        ("tag", "<action><action>up</action></action>", "up"),
        ("tag", "İİ<action>左へ</action>", "左へ"),
        ("tag", "<action></action>", ""),
        ("boxed", r"so \boxed{up}", "up"),
        ("boxed", r"\boxed{up}, rather \boxed {down}", "down"),
        ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("boxed", r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        ("boxed", r"\boxed{a\}b}", r"a\}b"),
        ("boxed", r"\boxed{a \boxed{b}}", r"a \boxed{b}"),
        ("boxed", r"\boxed{up} } { \boxed{left", "up"),
        ("json", '{"action": "up"}', "up"),
        ("json", 'maybe {"action": "up"}, no: {"why": "{", "action": "down"} done', "down"),
        ("json", '{"action": 3}', "3"),
        ("json", '{"action": [1, 2.5]}', "[1, 2.5]"),
        ("json", '{"action": {"action": "inner"}}', '{"action": "inner"}'),
        ("json", '{"action": "a", "note": {"action": "b"}}', "a"),
        ("json", '{"action": "\\u5de6"}', "左"),
        ("json", '{ {"action": "up"}', "up"),
    ],
)
def test_the_last_action_of_a_reply_counts(name, reply, action):
    assert make_format(name).extract(reply) == action


@pytest.mark.parametrize(
    ("name", "reply", "reason"),
    [
        ("tag", "up", "no <action>...</action> in the reply"),
        ("tag", "</action>up<action>", "no <action>"),
        ("boxed", r"boxed{up} \boxed{left", r"no \\boxed{...} in the reply"),
        ("json", '{"move": "up"}', 'no {"action": ...} in the reply'),
        ("json", '["action"]', "no {"),
        ("json", "", "no {"),
    ],
)
def test_replies_without_an_action_are_invalid(name, reply, reason):
    with pytest.raises(InvalidAction, match=reason) as caught:
        make_format(name).extract(reply)
    assert caught.value.reply == reply


TAGS = ["<action>", "</action>", r"\boxed{", "\\"]
PIECES = [*TAGS, "{", "}", '"', '{"action":', '{"action": "\\ud800"}', "[", "1e999", "NaN"]


@pytest.mark.parametrize("name", FORMATS)
@given(reply=st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3))).map("".join))
def test_junk_never_crashes(name, reply):
    try:
        assert isinstance(FORMATS[name].extract(reply), str)
    except InvalidAction:
        pass


@pytest.mark.parametrize("name", FORMATS)
@given(action=st.text(st.characters(exclude_characters="{}\\<>")))
def test_what_is_wrapped_is_found_again(name, action):
    found = FORMATS[name].extract(FORMATS[name].wrap(action))
    assert found == (action.strip() if name in ("tag", "boxed") else action)


JUNK = [
    '{"a":' * 13000,
    '{"action":' + "[" * 65536,
    "{" * 65536,
    '{"' * 32768,
    r"\boxed{" * 9000,
    "<action>" * 8000,
]


@pytest.mark.parametrize("junk", JUNK, ids=["objects", "arrays", "braces", "strings", "boxes", "tags"])
def test_long_junk_stays_cheap(junk):
    for format in FORMATS.values():
        start = time.process_time()
        try:
            format.extract(junk)
        except InvalidAction:
            pass
        assert time.process_time() - start < 2.0


def test_unknown_formats_are_named_with_near_ones():
    with pytest.raises(UnknownId, match="unknown action format 'box'; did you mean 'boxed'"):
        make_format("box")


def test_hints_show_what_extract_reads():
    assert FORMATS["plain"].hint == ""
    for name in ("tag", "boxed", "json"):
        assert FORMATS[name].wrap("X").split("X")[0].rstrip('"') in FORMATS[name].hint
    assert json.loads(FORMATS["json"].wrap('"}')) == {"action": '"}'}
