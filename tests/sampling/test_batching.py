from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opentinker.sampling.adapters import AdapterShape
from opentinker.sampling.base import Request
from opentinker.sampling.batching import Failure, Limits, Row, passes, screen, take
from opentinker.sampling.network import Network
from opentinker.sampling.policies import make_adapted, make_served
from opentinker.types import FinishReason, PolicyRef, SamplingParams

A, B, C = (3, 4), (5, 6, 7), (8,)


@pytest.fixture(scope="module")
def served(tiny):
    return make_served("learner", *tiny, version=0, context=50)


def request(number, prompt, n):
    return Request(PolicyRef("learner"), prompt, SamplingParams(max_tokens=n), 0, (number, 0, "a", 0, 0), None)


def rows(served, *pairs):
    return [Row(request(number, prompt, n), served, n) for number, (prompt, n) in enumerate(pairs)]


def rounds(waiting, limits):
    """The numbers that are taken together when all rows leave before the next are taken."""
    queue, found = deque(waiting), []
    while queue:
        found.append([row.request.key[0] for row in take(queue, [], limits, joins=True)])
    return found


def test_rows_are_taken_in_order_up_to_the_limit_of_rows(served):
    assert rounds(rows(served, (A, 5), (B, 5), (A, 5), (C, 5), (C, 5)), Limits(2, 999)) == [[0, 1], [2, 3], [4]]


def test_one_id_from_a_prompt_that_is_read_already_needs_no_row(served):
    waiting = rows(served, (A, 1), (A, 1), (B, 1), (A, 1), (B, 1), (C, 1), (C, 1))
    assert rounds(waiting, Limits(2, 999)) == [[0, 1, 2, 3, 4], [5, 6]]


def test_the_limit_of_tokens_counts_the_longest_row(served):
    # rows of 2+5, 3+5 and 1+5 positions: two of at most 8 fit in 16
    assert rounds(rows(served, (A, 5), (B, 5), (C, 5)), Limits(99, 16)) == [[0, 1], [2]]
    # a row that is too long alone goes alone
    assert rounds(rows(served, (A, 1), (B, 40), (A, 1)), Limits(99, 16)) == [[0], [1], [2]]


def test_rows_join_those_that_grow_where_there_is_room(served):
    growing = rows(served, (A, 5), (B, 5))
    queue = deque(rows(served, (C, 5), (C, 7), (C, 7)))
    assert take(queue, growing, Limits(2, 999), joins=True) == []
    assert take(queue, growing, Limits(9, 999), joins=False) == []
    # three rows of 8 fit, a fourth would not
    assert len(take(queue, growing, Limits(9, 24), joins=True)) == 1
    assert [row.limit for row in queue] == [7, 7]


def test_an_adapter_that_is_no_number_goes_alone(tiny, served):
    shape = AdapterShape(1, 1.0, ("lm_head",))
    tensors = {"base_model.model.lm_head.lora_A.weight": torch.ones(1, 64)}
    tensors["base_model.model.lm_head.lora_B.weight"] = torch.full((259, 1), float("nan"))
    sick = make_adapted("sick", Network(tiny[0]), tiny[1], shape, tensors, 0)
    waiting = [Row(request(n, A, 2), sick if n in (1, 2, 5) else served, 2) for n in range(6)]
    assert rounds(waiting, Limits(9, 999)) == [[0], [1, 2], [3, 4], [5]]


def test_what_needs_no_model_is_answered_at_once(served):
    found = [screen(request(0, prompt, 9), served) for prompt in (A, (9,) * 50, (), (9,) * 45)]
    assert (found[0].limit, found[3].limit) == (9, 5)
    assert found[1][1].finish_reason is FinishReason.CONTEXT and found[1][1].token_ids == () and found[1][1].text == ""
    assert isinstance(found[2][1], Failure) and "empty" in found[2][1].message


@given(
    asked=st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 60)), max_size=30),
    most=st.integers(1, 6),
    tokens=st.integers(1, 200),
)
def test_every_request_is_taken_once_within_the_limits(served, asked, most, tokens):
    waiting = rows(served, *asked)
    found = rounds(waiting, Limits(most, tokens))
    assert [number for group in found for number in group] == list(range(len(asked)))
    for group in found:
        taken = [waiting[number] for number in group]
        held = max(len({row.request.prompt for row in taken}), sum(row.limit > 1 for row in taken))
        assert held <= most
        assert held == 1 or held * max(row.width for row in taken) <= tokens


@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=30))
def test_forward_passes_pad_at_most_as_much_again(lengths):
    items = list(enumerate(lengths))
    parts = list(passes(items, lambda item: (item[1], item[1])))
    assert sorted(item for part in parts for item in part) == items
    for part in parts:
        widths = [length for _, length in part]
        assert len(widths) * max(widths) <= 2 * sum(widths)
