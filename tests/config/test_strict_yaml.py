import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opentinker.config import dump_yaml, parse_yaml
from opentinker.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("-2E5", -200000.0),
        ("1.5e3", 1500.0),
        ("[1e-3, +1e+2]", [0.001, 100.0]),
        ("1e", "1e"),
        ("e3", "e3"),
        ("'1e-3'", "1e-3"),
        ("0.5", 0.5),
        ("7", 7),
        ("2024-01-01", "2024-01-01"),
        ("2024-13-45", "2024-13-45"),
        ("", None),
        ("null", None),
        ("true", True),
        ("a=b", "a=b"),
        ("ünï: 日本", {"ünï": "日本"}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
    ],
)
def test_scalars_mean_what_people_mean(text, value):
    found = parse_yaml(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\nb: 2\na: 3", 3),
        ("a: {b: 1, c: 2, b: 3}", 1),
        ("a:\n  - x: 1\n    x: 2", 3),
        ('a: 1\n"a": 2', 2),
        ("a: &x {k: 1}\nb:\n  <<: *x\n  <<: *x", 4),
        ("? [1]\n: {z: 1, z: 2}", 2),
    ],
)
def test_duplicate_keys_are_refused_with_their_line(text, line):
    with pytest.raises(ConfigError, match=f"cfg is not valid: line {line}, .*duplicate key"):
        parse_yaml(text, "cfg")


def test_merge_keys_add_what_is_not_given():
    text = "one: &one {x: 1, y: 1}\ntwo: &two {<<: *one, x: 2}\nthree: {<<: *two, z: 3}"
    assert parse_yaml(text)["three"] == {"x": 2, "y": 1, "z": 3}


def test_of_several_merged_mappings_the_first_counts():
    assert parse_yaml("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b], z: 3}")["c"] == {"x": 1, "y": 2, "z": 3}


@pytest.mark.parametrize("value", ["3", "[1]", "null"])
def test_merging_something_else_is_refused(value):
    with pytest.raises(ConfigError, match="<< takes a mapping or a list of mappings"):
        parse_yaml(f"a: {{<<: {value}}}")


def test_merging_something_merged_deeper_down_is_no_duplicate():
    text = "a: &a {x: 1}\ndeep: {er: {b: &b {<<: *a, x: 2}}}\nc: {<<: *b, y: 3}"
    assert parse_yaml(text) == {"a": {"x": 1}, "deep": {"er": {"b": {"x": 2}}}, "c": {"x": 2, "y": 3}}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['echo hello']",
        "a: !!python/name:os.system",
        "!!python/object:os.x {}",
        "!mine 3",
        "a: [!!int x]",
        "a: !!timestamp nonsense",
        "!!bool maybe: 1",
    ],
)
def test_tags_are_refused(text):
    with pytest.raises(ConfigError, match=r"line 1, column \d+: tags such as .* are not allowed"):
        parse_yaml(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1, 2", "line 1"),
        ("a: b: c", "line 1, column 5"),
        ("\ta: 1", "line 1"),
        ("a: 1\n---\nb: 2", "line 2.*document"),
        ("{[1]: 2}", "unhashable key"),
        ("a: *nowhere", "undefined alias"),
        ("@x", "line 1"),
        ("a: \x00", "cfg is not valid YAML"),
        ("9" * 5000, "cfg is not valid YAML"),
        ("[" * 2000, "nested too deeply"),
        ("a: &a [*a]", r"alias \*a stands inside what it names"),
        ("a: &a {b: {c: *a}}", r"alias \*a stands inside what it names"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_in_one_message(text, told):
    with pytest.raises(ConfigError, match=told) as caught:
        parse_yaml(text, "cfg")
    assert str(caught.value).startswith("cfg is not valid")


@pytest.mark.parametrize("shape", ["list", "mapping", "merge"])
def test_a_billion_laughs_are_refused_at_once(shape):
    form = {
        "list": "[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]",
        "mapping": "{{a: {0}, b: {0}, c: {0}, d: {0}, e: {0}, f: {0}, g: {0}}}",
        "merge": "{{<<: [{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]}}",
    }[shape]
    text = "x0: &x0 {lol: 1}\n" + "".join(f"x{n}: &x{n} {form.format(f'*x{n - 1}')}\n" for n in range(1, 40))
    started = time.monotonic()
    with pytest.raises(ConfigError, match="more than 100000 values"):
        parse_yaml(text)
    assert time.monotonic() - started < 5


def test_a_shared_anchor_is_no_laugh():
    assert parse_yaml("a: &a {k: [1, 2]}\nb: *a\nc: [*a, *a]")["c"] == [{"k": [1, 2]}, {"k": [1, 2]}]


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.sampled_from(["1e-3", "1e5", "2024-01-01", "yes", "null", "~", "0x1", "1:30", "<<", "=", "a: b", "\x85", "\ud800"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(PLAIN)
def test_what_is_written_is_read_back(data):
    text = dump_yaml(data)
    found = parse_yaml(text)
    assert found == data
    assert repr(found) == repr(data)  # 1, 1.0 and True are equal but not the same
    text.encode("utf-8")


def test_infinity_is_written_and_read_back():
    assert parse_yaml(dump_yaml([math.inf, -math.inf])) == [math.inf, -math.inf]


def test_shared_data_is_written_without_aliases():
    shared = [1]
    assert "&" not in dump_yaml({"a": shared, "b": shared})
