"""Episodes to samples: `P` prompt, `c` sampled, `g` glue; streams are drawn in the docstrings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from opentinker.credit import make_credit
from opentinker.errors import CreditError, SamplerError
from opentinker.samples import loss_tokens, merge_identical, to_samples
from opentinker.types import Completion, Episode, EpisodeStatus, FinishReason, Group, Sample, Turn

VOCABULARY = 12


def turn(prompt, sampled, agent="a", **given: Any) -> Turn:
    """A turn by its ids; the log-probability of id i is -i/10."""
    logprobs = given.pop("logprobs", tuple(-i / 10 for i in sampled))
    policy = given.get("policy", "learner")
    facts: dict[str, Any] = {
        "role": agent, "policy": policy, "version": 1, "index": 0, "attempt": 0, "phase": "", "observation": "",
        "action": "x", "valid": True, "n_legal": 2, "trainable": True, "reward": 0.0, "penalty": 0.0,
        "completion": Completion(tuple(sampled), logprobs, "", FinishReason.EOS, policy, 1),
    }  # fmt: skip
    return Turn(agent=agent, prompt_ids=tuple(prompt), **{**facts, **given})


def episode(*turns: Turn, id: str = "0", status: EpisodeStatus = EpisodeStatus.TERMINATED, **rewards: float) -> Episode:
    return Episode(id, "game", 0, 0, 0, {}, {}, turns, (), {}, rewards, status)


def samples_of(*turns: Turn, advantages=None, **settings):
    group = Group("task", (episode(*turns),))
    return to_samples([group], {"0": tuple(advantages or [1.0] * len(turns))}, **settings)


def test_t2_turns_that_extend_each_other_become_one_row_and_only_sampled_ids_carry_loss():
    """Turn 0: P1 P2 | c3 c4; turn 1: P1 P2 c3 c4 g5 g6 | c7.

    ids   1 2 3 4 5 6 7
    mask  0 0 1 1 0 0 1
    """
    rows, stats = samples_of(turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5, 6], [7], index=1), advantages=[0.5, -2.0])
    assert rows == [
        Sample(
            "learner", "a", "a", (1, 2, 3, 4, 5, 6, 7), (0, 0, 1, 1, 0, 0, 1), (0.0, 0.0, -0.3, -0.4, 0.0, 0.0, -0.7),
            (0.0, 0.0, 0.5, 0.5, 0.0, 0.0, -2.0), episode="0",
        )
    ]  # fmt: skip
    assert (stats.turns, stats.rows, stats.splits, stats.empty, stats.tokens) == (2, 1, 0, 0, 3)


def test_t1_ids_are_trained_as_they_were_sampled():
    """Ids 3 and 4 say what a tokenizer writes as 11: nothing is decoded, so 3 and 4 stay."""
    rows, _ = samples_of(turn([1], [3, 4]), turn([1, 3, 4, 5], [6], index=1))
    assert rows[0].token_ids == (1, 3, 4, 5, 6)


def test_t3_a_prompt_that_does_not_extend_the_row_starts_another_and_is_counted():
    """A window of one exchange: turn 2 sees P1 and turn 1 only.

    row 0  1 2 | c3 | g4 | c5       turns 0 and 1
    row 1  1 g4 c5 g6 | c7          turn 2, with c5 as context
    """
    turns = [turn([1, 2], [3]), turn([1, 2, 3, 4], [5], index=1), turn([1, 4, 5, 6], [7], index=2)]
    rows, stats = samples_of(*turns, advantages=[1.0, 2.0, 3.0])
    assert [row.token_ids for row in rows] == [(1, 2, 3, 4, 5), (1, 4, 5, 6, 7)]
    assert [row.loss_mask for row in rows] == [(0, 0, 1, 0, 1), (0, 0, 0, 0, 1)]
    assert [row.advantages for row in rows] == [(0.0, 0.0, 1.0, 0.0, 2.0), (0.0, 0.0, 0.0, 0.0, 3.0)]
    assert (stats.turns, stats.rows, stats.splits, stats.tokens) == (3, 2, 1, 3)


def test_t3_a_template_that_drops_earlier_thinking_splits():
    """Turn 0 samples c3 (thought) c4; turn 1's prompt keeps only c4."""
    rows, stats = samples_of(turn([1, 2], [3, 4]), turn([1, 2, 4, 5], [6], index=1))
    assert [row.token_ids for row in rows] == [(1, 2, 3, 4), (1, 2, 4, 5, 6)]
    assert stats.splits == 1


def test_t3_memory_of_the_last_observation_gives_a_row_a_turn():
    rows, stats = samples_of(turn([1, 2], [3]), turn([1, 4], [5], index=1), turn([1, 6], [7], index=2))
    assert len(rows) == 3
    assert stats.splits == 2


def test_t4_empty_completion_gives_no_sample():
    rows, stats = samples_of(turn([1, 2], []))
    assert rows == []
    assert (stats.turns, stats.rows, stats.empty, stats.tokens) == (0, 0, 1, 0)


def test_t4_an_empty_turn_in_a_dialogue_leaves_its_neighbours_as_they_are():
    """Turn 1 says nothing; turn 2 goes on behind it: 1 2 | c3 | g4 g5 | c6."""
    rows, stats = samples_of(turn([1, 2], [3]), turn([1, 2, 3, 4], [], index=1), turn([1, 2, 3, 4, 5], [6], index=2))
    assert [(row.token_ids, row.loss_mask) for row in rows] == [((1, 2, 3, 4, 5, 6), (0, 0, 1, 0, 0, 1))]
    assert (stats.turns, stats.splits, stats.empty) == (2, 0, 1)


def test_t5_failed_episodes_give_no_sample():
    failed = episode(turn([1, 2], [3]), id="bad", status=EpisodeStatus.FAILED)
    rows, stats = to_samples([Group("task", (failed, episode(turn([4], [5]))))], {"0": (1.0,)})
    assert [row.token_ids for row in rows] == [(4, 5)]
    assert stats.turns == 1


def test_c1_players_of_a_zero_sum_game_carry_their_own_rewards():
    """Seats alternate; the loser's rows never carry the winner's advantage, nor the last player's."""
    turns = [
        turn([1], [2], "p0"),
        turn([3], [4], "p1"),
        turn([1, 2, 5], [6], "p0", index=1),
        turn([3, 4, 7], [8], "p1", index=1),
    ]
    groups = [Group("duel", (episode(*turns, p0=1.0, p1=-1.0),))]
    rows, _ = to_samples(groups, make_credit("reinforce")(groups, {}).advantages)
    assert [(row.agent, row.token_ids, row.advantages) for row in rows] == [
        ("p0", (1, 2, 5, 6), (0.0, 1.0, 0.0, 1.0)),
        ("p1", (3, 4, 7, 8), (0.0, -1.0, 0.0, -1.0)),
    ]


def test_turns_that_are_not_trained_are_context_at_most():
    """Turn 1 is not trainable: its c5 stands in the row without loss. The scripted seat has no policy."""
    turns = [
        turn([1], [2]),
        turn([1, 2, 4], [5], index=1, trainable=False),
        replace(turn([], [], "b"), policy=None, completion=None),
        turn([1, 2, 4, 5, 6], [7], index=2),
    ]
    rows, stats = samples_of(*turns)
    assert [(row.token_ids, row.loss_mask) for row in rows] == [((1, 2, 4, 5, 6, 7), (0, 1, 0, 0, 0, 1))]
    assert (stats.turns, stats.empty) == (2, 0)


def test_only_the_policies_asked_for_and_their_temperatures():
    turns = [turn([1], [2], "p0", policy="red"), turn([1], [3], "p1", policy="blue")]
    rows, stats = samples_of(*turns, policies={"blue"}, temperatures={"red": 0.5, "blue": 0.7})
    assert [(row.policy, row.temperature) for row in rows] == [("blue", 0.7)]
    assert stats.turns == 1


def test_rows_have_the_temperature_that_their_completions_were_drawn_at():
    cool = replace(turn([1], [2]).completion, temperature=0.5)
    rows, _ = samples_of(turn([1], [2], completion=cool), turn([1], [3], "p1", policy="blue"))
    assert [(row.policy, row.temperature) for row in rows] == [("learner", 0.5), ("blue", 1.0)]
    rows, stats = samples_of(turn([1], [2], completion=cool), turn([1, 2, 3], [4], index=1))
    assert [(row.token_ids, row.temperature) for row in rows] == [((1, 2), 0.5), ((1, 2, 3, 4), 1.0)]
    assert stats.splits == 1  # one row is of one temperature


def test_a_change_of_role_starts_a_row():
    rows, stats = samples_of(turn([1], [2], role="proposer"), turn([1, 2, 3], [4], role="judge", index=1))
    assert [row.role for row in rows] == ["proposer", "judge"]
    assert stats.splits == 1


def test_missing_advantages_are_refused():
    with pytest.raises(CreditError, match="no advantages for episode '0'"):
        to_samples([Group("task", (episode(turn([1], [2])),))], {})


def test_a_completion_without_a_logprob_for_each_id_is_refused():
    with pytest.raises(SamplerError, match=r"'learner' in episode '0' has 2 ids but 1 log-probabilities"):
        samples_of(turn([1], [2, 3], logprobs=(-0.1,)))


# random dialogues

IDS = st.lists(st.integers(0, VOCABULARY - 1), max_size=3)


@st.composite
def dialogues(draw) -> tuple[Turn, ...]:
    """Turns of two agents; each prompt extends the agent's last ids, or drops some of them, or starts afresh."""
    turns: list[Turn] = []
    so_far: dict[str, list[int]] = {}
    for _ in range(draw(st.integers(1, 6))):
        agent = draw(st.sampled_from(["p0", "p1"]))
        known = so_far.get(agent, [])
        kept = draw(st.sampled_from([known, known, known[:-1], known[1:], []]))
        prompt = [*kept, *draw(IDS)] or [0]
        sampled = draw(IDS)
        trainable = draw(st.sampled_from([True, True, True, False]))
        turns.append(turn(prompt, sampled, agent, index=len(turns), trainable=trainable))
        so_far[agent] = prompt + sampled
    return tuple(turns)


ADVANTAGE = st.integers(-8, 8).map(lambda n: n / 4)


@given(turns=dialogues(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_t2_t3_every_sampled_id_stands_behind_the_ids_it_was_sampled_behind(turns, data):
    """Reading the rows' masked runs back gives the trainable turns: same context, same ids, same log-probabilities.

    An inverted or shifted mask would read back prompts.
    """
    advantages = [data.draw(ADVANTAGE) for _ in turns]
    rows, stats = samples_of(*turns, advantages=advantages)
    trained = [(t, a) for t, a in zip(turns, advantages, strict=True) if t.trainable and t.completion.token_ids]
    read = []
    for row in rows:
        assert len(row.token_ids) == len(row.loss_mask) == len(row.logprobs) == len(row.advantages)
        starts = [i for i, m in enumerate(row.loss_mask) if m]
        read += [(row.agent, row.token_ids[:i], row.token_ids[i], row.logprobs[i], row.advantages[i]) for i in starts]
        assert all(row.logprobs[i] == row.advantages[i] == 0.0 for i, m in enumerate(row.loss_mask) if not m)
    expected = []
    for t, advantage in trained:
        ids = t.completion.token_ids
        for i, (token, logprob) in enumerate(zip(ids, t.completion.logprobs, strict=True)):
            expected.append((t.agent, t.prompt_ids + ids[:i], token, logprob, advantage))
    assert sorted(read) == sorted(expected)
    assert stats.turns == len(trained)
    assert stats.tokens == len(expected)
    assert stats.rows == len(rows) == stats.splits + len({t.agent for t, _ in trained})


# one gradient


class TinyModel(torch.nn.Module):
    """Causal, with positions: embeddings into a GRU into logits."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = torch.nn.Embedding(VOCABULARY, 6)
        self.positions = torch.nn.Embedding(64, 6)
        self.memory = torch.nn.GRU(6, 6, batch_first=True)
        self.head = torch.nn.Linear(6, VOCABULARY)

    def logprobs(self, ids: tuple[int, ...]) -> torch.Tensor:
        """Log-probability of each id behind the ids before it; the first has none (0). Shape (len(ids),)."""
        given = torch.tensor([ids])
        hidden, _ = self.memory(self.tokens(given) + self.positions(torch.arange(len(ids)))[None])
        scores = torch.log_softmax(self.head(hidden)[0, :-1], dim=-1)
        return torch.cat([torch.zeros(1), scores[torch.arange(len(ids) - 1), given[0, 1:]]])


@pytest.fixture(scope="module")
def model():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield TinyModel()
    torch.set_default_dtype(before)


def gradient(model: TinyModel, samples: list[Sample], tokens: int) -> torch.Tensor:
    """Of the policy-gradient loss `-sum(A * logp) / tokens` over the masked ids, flat."""
    model.zero_grad()
    loss = torch.zeros(())
    for sample in samples:
        weights = torch.tensor([a * m for a, m in zip(sample.advantages, sample.loss_mask, strict=True)])
        loss = loss - (weights * model.logprobs(sample.token_ids)).sum() / tokens
    loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def one_row_a_turn(groups, advantages) -> list[Sample]:
    """The plainest rows there are: prompt, then what was sampled."""
    rows = []
    for group in groups:
        for played in group.episodes:
            for t, advantage in zip(played.turns, advantages[played.id], strict=True):
                sampled, before = t.completion.token_ids, (0,) * len(t.prompt_ids)
                if t.trainable and sampled:
                    mask = before + (1,) * len(sampled)
                    shared = tuple(advantage * m for m in mask)
                    logprobs = before + t.completion.logprobs
                    rows.append(Sample("learner", t.agent, t.role, t.prompt_ids + sampled, mask, logprobs, shared))
    return rows


@given(played=st.lists(dialogues(), min_size=1, max_size=3), copies=st.integers(1, 3), data=st.data())
@settings(max_examples=40, deadline=None)
def test_merged_split_and_deduplicated_batches_give_one_gradient(model, played, copies, data):
    """The same dialogues, several of them played more than once, in three layouts."""
    episodes = [episode(*turns, id=f"{number}/{copy}") for number, turns in enumerate(played) for copy in range(copies)]
    groups = [Group("task", tuple(episodes))]
    advantages = {e.id: tuple(data.draw(ADVANTAGE) for _ in e.turns) for e in episodes}
    rows, stats = to_samples(groups, advantages)
    split = one_row_a_turn(groups, advantages)
    few = merge_identical(rows)
    assert stats.tokens == loss_tokens(rows) == loss_tokens(split) == loss_tokens(few)
    assert len(few) <= len(rows) / copies
    if not stats.tokens:
        return
    expected = gradient(model, split, stats.tokens)
    for layout in (rows, few, merge_identical(split), merge_identical(few)):
        assert torch.allclose(gradient(model, layout, loss_tokens(layout)), expected, atol=1e-6, rtol=1e-6)


def test_dividing_by_the_tokens_of_merged_rows_would_be_another_gradient(model):
    """Three plays of one line and one of another: 4 tokens, of which merged rows show 2."""
    same = [episode(turn([1], [2]), id=f"{i}") for i in range(3)]
    groups = [Group("task", (*same, episode(turn([1], [3]), id="other")))]
    rows, stats = to_samples(groups, {"0": (1.0,), "1": (1.0,), "2": (-0.5,), "other": (-1.0,)})
    few = merge_identical(rows)
    assert [(row.token_ids, row.advantages, row.weight, row.episode) for row in few] == [
        ((1, 2), (0.0, 1.5), 3, ""),
        ((1, 3), (0.0, -1.0), 1, "other"),
    ]
    assert stats.tokens == loss_tokens(few) == 4
    assert sum(sum(row.loss_mask) for row in few) == 2
    right, wrong = gradient(model, few, 4), gradient(model, few, 2)
    assert torch.allclose(right, gradient(model, rows, 4), atol=1e-12)
    assert not torch.allclose(wrong, right, atol=1e-3)


def test_an_inverted_mask_is_another_gradient(model):
    rows, _ = samples_of(turn([1, 4], [2, 3]), advantages=[1.0])
    inverted = [
        replace(row, loss_mask=tuple(1 - m for m in row.loss_mask), advantages=tuple(1.0 - a for a in row.advantages))
        for row in rows
    ]
    assert not torch.allclose(gradient(model, rows, 2), gradient(model, inverted, 2), atol=1e-3)


ROW = Sample("learner", "a", "a", (1, 2), (0, 1), (0.0, -0.5), (0.0, 1.0), episode="0")


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": "other"},
        {"agent": "b"},
        {"role": "other"},
        {"token_ids": (1, 3)},
        {"loss_mask": (1, 1)},
        {"temperature": 0.5},
        {"logprobs": (0.0, -0.6)},
    ],
)
def test_rows_that_differ_stay_apart(changes):
    rows = [ROW, replace(ROW, **changes)]
    assert merge_identical(rows) == rows


def test_rows_that_differ_by_the_noise_of_batching_are_merged():
    noisy = replace(ROW, logprobs=(0.0, -0.5000001))
    assert merge_identical([ROW, noisy]) == [replace(ROW, advantages=(0.0, 2.0), weight=2)]


def test_rows_with_a_critics_values_stay_as_they_are():
    rows = [replace(ROW, values=(0.0, 0.3), returns=(0.0, 1.0))] * 2
    assert merge_identical(rows) == rows


def test_merging_twice_is_merging_once():
    once = merge_identical([ROW, ROW, replace(ROW, token_ids=(1, 3))])
    assert [row.weight for row in once] == [2, 1]
    assert merge_identical(once) == once
    assert merge_identical(once + once)[0] == replace(once[0], advantages=(0.0, 4.0), weight=4)


@pytest.mark.parametrize("name", ["grpo", "rae", "reinforce", "dr_grpo"])
def test_c8_what_is_left_out_after_credit_does_not_rescale_the_rest(name):
    """Normalising happens once, over all players; choosing one policy's turns and merging equal rows keep the numbers."""
    turns = [turn([1, 2], [3], agent="a", policy="one"), turn([4, 5], [6], agent="b", policy="two", index=0)]
    episodes = tuple(
        replace(episode(*turns, id=str(number), a=float(number), b=-float(number)), roles={"a": "a", "b": "b"})
        for number in range(4)
    )
    groups = [Group("task", episodes)]
    advantages = make_credit(name)(groups, {}).advantages
    rows, _ = to_samples(groups, advantages, {"one"})
    assert [row.advantages[-1] for row in rows] == [advantages[str(number)][0] for number in range(4)]
    both, _ = to_samples(groups, advantages)
    assert [row for row in both if row.policy == "one"] == rows
    (merged,) = merge_identical(rows)
    assert merged.advantages[-1] == pytest.approx(sum(advantages[str(number)][0] for number in range(4)), abs=1e-12)
