import pytest
from hypothesis import given
from hypothesis import strategies as st

from opentinker.sampling.base import Request
from opentinker.sampling.batching import Failure, Limits, plan
from opentinker.sampling.policies import make_served
from opentinker.types import FinishReason, PolicyRef, SamplingParams

A, B, C = (3, 4), (5, 6, 7), (8,)


@pytest.fixture(scope="module")
def served(tiny):
    return make_served("learner", *tiny, version=0, context=50)


def requests(*pairs):
    return [
        Request(PolicyRef("learner"), prompt, SamplingParams(max_tokens=n), 0, (i, 0, "a", 0, 0), None)
        for i, (prompt, n) in enumerate(pairs)
    ]


def groups(batches):
    return [[request.key[0] for request in batch.requests] for batch in batches]


def test_batches_keep_the_order_and_the_limit_of_rows(served):
    batches, answers = plan(requests((A, 5), (B, 5), (A, 5), (C, 5), (C, 5)), served, Limits(rows=2, tokens=999))
    assert groups(batches) == [[0, 1], [2, 3], [4]]
    assert [batch.prompts for batch in batches] == [[A, B], [A, C], [C]]
    assert [[row.prompt for row in batch.rows] for batch in batches] == [[0, 1], [0, 1], [0]]
    assert answers == []


def test_one_id_from_a_prompt_that_is_read_already_needs_no_row(served):
    batches, _ = plan(requests((A, 1), (A, 1), (B, 1), (A, 1), (B, 1), (C, 1), (C, 1)), served, Limits(2, 999))
    assert groups(batches) == [[0, 1, 2, 3, 4], [5, 6]]


def test_the_limit_of_tokens_counts_the_longest_row(served):
    # rows of 2+5, 3+5 and 1+5 positions: two of at most 8 fit in 16
    batches, _ = plan(requests((A, 5), (B, 5), (C, 5)), served, Limits(rows=99, tokens=16))
    assert groups(batches) == [[0, 1], [2]]
    # a row that is too long alone goes alone
    batches, _ = plan(requests((A, 1), (B, 40), (A, 1)), served, Limits(rows=99, tokens=16))
    assert groups(batches) == [[0], [1], [2]]


def test_what_needs_no_model_is_answered_at_once(served):
    batches, answers = plan(requests((A, 9), ((9,) * 50, 9), ((), 9), ((9,) * 45, 9)), served, Limits(9, 999))
    assert groups(batches) == [[0, 3]]
    assert [row.limit for row in batches[0].rows] == [9, 5]
    (_, full), (_, empty) = answers
    assert full.finish_reason is FinishReason.CONTEXT and full.token_ids == () and full.text == ""
    assert isinstance(empty, Failure) and "empty" in empty.message


@given(
    asked=st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 60)), max_size=30),
    rows=st.integers(1, 6),
    tokens=st.integers(1, 200),
)
def test_every_request_stands_in_one_batch_within_the_limits(served, asked, rows, tokens):
    batches, _ = plan(requests(*asked), served, Limits(rows, tokens))
    assert [number for group in groups(batches) for number in group] == list(range(len(asked)))
    for batch in batches:
        assert len(batch.prompts) == len(set(batch.prompts)) <= rows
        assert [batch.prompts[row.prompt] for row in batch.rows] == [request.prompt for request in batch.requests]
        growing = [len(request.prompt) + row.limit for request, row in zip(batch.requests, batch.rows, strict=True)]
        held = max(len(batch.prompts), sum(row.limit > 1 for row in batch.rows))
        assert held <= rows
        assert held == 1 or held * max(growing) <= tokens
