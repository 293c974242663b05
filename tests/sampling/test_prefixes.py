import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opentinker.sampling.prefixes import Prefixes

EACH = 16
"""Bytes of one id: two tensors of 2 heads, size 1, float32."""


class Row:
    """Keys are the ids themselves, values their negatives; what was copied out is noted."""

    def __init__(self, ids):
        self.ids = ids
        self.cuts = []

    def cut(self, start, stop):
        self.cuts.append((start, stop))
        part = torch.tensor(self.ids[start:stop], dtype=torch.float32)
        return [part.expand(2, -1)[..., None].clone(), -part.expand(2, -1)[..., None].clone()]


def store(prefixes, ids, scope="p"):
    row = Row(ids)
    prefixes.store(scope, tuple(ids), EACH, row.cut)
    return row.cuts


def known(prefixes, ids, scope="p"):
    """The ids that are remembered, read off what the pieces hold."""
    found = []
    for piece in prefixes.match(scope, tuple(ids)):
        keys, values = (tensor[:, : piece.length, 0] for tensor in piece.tensors)
        assert piece.start == len(found)
        assert torch.equal(keys[0], keys[1]) and torch.equal(keys, -values)
        found += [int(key) for key in keys[0]]
    return found


def test_a_longer_prompt_goes_on_from_what_is_known():
    prefixes = Prefixes(1000)
    assert store(prefixes, [1, 2, 3]) == [(0, 3)]
    assert known(prefixes, [1, 2, 3, 4]) == [1, 2, 3]
    assert store(prefixes, [1, 2, 3, 4, 5]) == [(3, 5)]
    assert known(prefixes, [1, 2, 3, 4, 5, 6]) == [1, 2, 3, 4, 5]
    assert known(prefixes, [1, 2]) == [1, 2]
    assert known(prefixes, [2, 1]) == known(prefixes, []) == []
    assert prefixes.bytes == 5 * EACH
    assert store(prefixes, [1, 2]) == []


def test_what_begins_alike_is_held_once():
    prefixes = Prefixes(1000)
    store(prefixes, [1, 2, 3, 4])
    assert store(prefixes, [1, 2, 8, 9]) == [(2, 4)]
    assert prefixes.bytes == 6 * EACH
    assert known(prefixes, [1, 2, 3, 4, 5]) == [1, 2, 3, 4]
    assert known(prefixes, [1, 2, 8, 9]) == [1, 2, 8, 9]
    assert known(prefixes, [1, 2, 7]) == [1, 2]


def test_scopes_know_nothing_of_each_other():
    prefixes = Prefixes(1000)
    store(prefixes, [1, 2], "p")
    store(prefixes, [1, 2, 3], "q")
    prefixes.drop("p")
    prefixes.drop("nobody")
    assert known(prefixes, [1, 2, 3], "p") == []
    assert known(prefixes, [1, 2, 3], "q") == [1, 2, 3]
    assert prefixes.bytes == 3 * EACH
    prefixes.clear()
    assert known(prefixes, [1, 2, 3], "q") == [] and prefixes.bytes == 0


def test_what_was_used_longest_ago_goes_first_and_ends_go_before_beginnings():
    prefixes = Prefixes(6 * EACH)
    store(prefixes, [1, 2])
    store(prefixes, [1, 2, 3])
    store(prefixes, [5, 6, 7])
    known(prefixes, [5, 6, 7])
    store(prefixes, [8])  # 7 ids: the end of the oldest goes
    assert known(prefixes, [1, 2, 3]) == [1, 2]
    store(prefixes, [9, 10])  # 8 ids: the next oldest is 5 6 7
    assert known(prefixes, [5, 6, 7]) == []
    assert known(prefixes, [1, 2, 3]) == [1, 2]
    assert prefixes.bytes == 5 * EACH


@pytest.mark.parametrize("limit", [0, 2 * EACH])
def test_what_is_too_long_to_be_held_drives_nothing_out(limit):
    prefixes = Prefixes(limit)
    store(prefixes, [1, 2])
    assert store(prefixes, [1, 2, 3]) == []
    assert known(prefixes, [1, 2, 3]) == ([1, 2] if limit else [])


IDS = st.lists(st.integers(0, 2), min_size=1, max_size=9)


@given(steps=st.lists(st.tuples(st.sampled_from("pq"), IDS, st.booleans()), max_size=40), limit=st.integers(0, 30))
def test_the_bound_holds_and_nothing_wrong_is_ever_remembered(steps, limit):
    prefixes, stored = Prefixes(limit * EACH), {"p": [], "q": []}
    for scope, ids, drops in steps:
        found = known(prefixes, ids, scope)
        assert found == ids[: len(found)]
        assert not found or any(old[: len(found)] == found for old in stored[scope])
        store(prefixes, ids, scope)
        stored[scope].append(ids)
        if len(ids) <= limit:
            assert known(prefixes, ids, scope) == ids
        assert 0 <= prefixes.bytes <= limit * EACH
        assert prefixes.bytes == sum(node.bytes for node in prefixes._order)
        if drops:
            prefixes.drop(scope)
            stored[scope].clear()
