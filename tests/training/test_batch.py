from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from opentinker.training.batch import make_rows, plan_forward, split_micro, split_mini, to_batch


def test_rows_end_at_the_last_sampled_id_and_leave_out_samples_without_any(sample):
    """P P c g c G G: two trailing ids of glue are cut; the second sample has nothing sampled (T4)."""
    rows = make_rows([sample([5, 6], [7], [8], [9], [1, 1]), sample([5, 6])])
    assert (rows.prompts, rows.ends, rows.tokens) == ((2,), (5,), (2,))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ([dict(prompt=[])], "starts with a sampled id"),
        ([dict(prompt=[1], temperature=0.5), dict(prompt=[1], temperature=1.0)], r"temperatures \[0.5, 1.0\]"),
    ],
)
def test_rows_refuse_what_cannot_be_scored(sample, broken, message):
    with pytest.raises(ValueError, match=message):
        make_rows([sample(kwargs.pop("prompt"), [3], **kwargs) for kwargs in map(dict, broken)])


def test_rows_refuse_sequences_of_different_lengths(sample):
    from dataclasses import replace

    with pytest.raises(ValueError, match="different lengths"):
        make_rows([replace(sample([1], [2]), advantages=(0.0,))])


def test_denominator_counts_each_merged_row_as_often_as_it_stands_for(sample):
    rows = make_rows([sample([1], [2, 3], weight=4), sample([1], [2])])
    assert rows.denominator == 4 * 2 + 1


def test_sequences_count_a_dialogue_once_however_it_was_split(sample):
    rows = make_rows(
        [
            sample([1], [2], episode="1/0/0"),
            sample([1, 9], [2], episode="1/0/0"),
            sample([1], [2], episode="1/0/0", agent="player_1"),
            sample([1], [2], weight=3),
        ]
    )
    assert rows.sequences == 1 + 1 + 3


def test_one_forward_row_for_answers_to_one_prompt_and_logits_where_needed(sample):
    """Rows 0 and 1 share the prefix 5 6; row 2 needs the ids before its last sampled one.

    sampled   a=7      b=8      c=3, d=4
    predicted by (prefix 0, position 1) twice, and (prefix 1, positions 0 and 2)
    """
    rows = make_rows([sample([5, 6], [7]), sample([5, 6], [8]), sample([9], [3], [2], [4])])
    forward = plan_forward(rows, [4])
    assert forward.input_ids.tolist() == [[5, 6, 0], [9, 3, 2]]
    assert forward.keep.tolist() == [0, 1, 2]
    places = [(int(forward.row[p]), int(forward.keep[forward.column[p]])) for p in forward.place]
    assert places == [(0, 1), (0, 1), (1, 0), (1, 2)]
    assert len(forward.row) == 3
    assert forward.labels.tolist() == [7, 8, 3, 4]
    assert (forward.offsets.tolist(), forward.packed.tolist()) == ([0, 5], [0, 1, 2, 3])


def test_loss_rows_hold_sampled_ids_only(sample):
    samples = [
        sample([5, 6], [7], logprobs=[-1.0], advantages=2.0, weight=3),
        sample([9], [3], [2], [4], logprobs=[-2.0, -3.0], advantages=[0.5, -0.5]),
    ]
    batch = to_batch(make_rows(samples), denominator=9.0, sequences=2, by_row=True)
    assert batch["responses"].tolist() == [[7, 0], [3, 4]]
    assert batch["response_mask"].tolist() == [[1, 0], [1, 1]]
    assert batch["old_log_probs"].tolist() == [[-1.0, 0.0], [-2.0, -3.0]]
    assert batch["advantages"].tolist() == [[2.0, 0.0], [0.5, -0.5]]
    # 9 = 3 + 1 + 1 and a rest of 4 where nothing is predicted
    assert [row.tolist() for row in batch["loss_mask"].unbind()] == [[4.0, 3.0], [0.0, 1.0, 1.0]]
    packed = to_batch(make_rows(samples), denominator=5.0, sequences=2, by_row=False)
    assert packed["responses"].tolist() == [[7, 3, 4]]
    assert packed["loss_mask"].sum() == 5.0


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 200))
def test_micro_batches_hold_every_row_once_and_keep_the_budget(sample, lengths, budget):
    rows = make_rows([sample(range(3, 3 + length), [index + 1]) for index, length in enumerate(lengths)])
    parts = split_micro(rows, budget)
    assert sorted(s.token_ids[-1] for part in parts for s in part.samples) == list(range(1, len(lengths) + 1))
    assert all(len(part) == 1 or len(part) * max(part.ends) <= budget for part in parts)
    assert sum(part.denominator for part in parts) == rows.denominator


@given(st.integers(0, 20), st.integers(1, 8))
def test_p8_mini_batches_are_even_and_complete(sample, n, parts):
    rows = make_rows([sample([1], [index + 1]) for index in range(n)])
    minis = split_mini(rows, parts, list(reversed(range(n))))
    assert [s.token_ids[-1] for mini in minis for s in mini.samples] == list(range(n, 0, -1))
    assert len(minis) == min(parts, n)
    assert not minis or max(map(len, minis)) - min(map(len, minis)) <= 1


def test_no_rows_give_no_batches():
    rows = make_rows([])
    assert split_micro(rows, 10) == [] and split_mini(rows, 2, []) == []
    assert torch.tensor(rows.denominator) == 0
