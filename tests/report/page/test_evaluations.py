import json

import pytest

from opentinker.report.page.evaluations import evaluation_rows
from opentinker.report.runs import RunRecord
from opentinker.testing.runs import write_run


def rows(folder, **files):
    run = write_run(folder / "run", {}, [], [])
    (run / "evaluations").mkdir()
    for name, text in files.items():
        (run / "evaluations" / f"{name.replace('_', '-')}.json").write_text(
            text if isinstance(text, str) else json.dumps(text)
        )
    return list(evaluation_rows(RunRecord.read(run)))


def result(step, **seats):
    return {"step": step, "weights": "latest", "opponents": {"random": {"overall": {"games": 9}, "seats": seats}}}


def test_the_newest_comes_first_and_all_seats_before_each(tmp_path):
    old = result(5, a={"games": 3}, b={"games": 4})
    found = rows(tmp_path, step_000005_20260101T000000=old, step_000001_20260102T000000=result(1, a={"games": 1}))
    assert [(row["step"], row["seat"], row["games"]) for row in found] == [
        (1, "a", 1),
        (5, "all seats", 9),
        (5, "a", 3),
        (5, "b", 4),
    ]


def test_figures_come_with_their_intervals_and_gaps_stay_gaps(tmp_path):
    figures = {"win": {"count": 1, "rate": 0.5, "low": 0.1, "high": 0.9}, "return": {"mean": 1.0, "low": None, "high": None}}
    (row,) = rows(tmp_path, a=result(1, seat=figures))
    assert (row["win"], row["draw"], row["return"]) == ([0.5, 0.1, 0.9], [None] * 3, [1.0, None, None])
    assert row["games"] is None and row["invalid"] is None


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"opponents": 3}', '{"opponents": {"a": 3}}', '{"opponents": {"a": {"seats": {"b": 3}}}}']
)
def test_what_is_no_result_is_passed_over(tmp_path, text):
    assert rows(tmp_path, a=text) == []


def test_odd_values_become_gaps(tmp_path):
    odd = {"games": "many", "win": 3, "return": {"mean": 1e308, "low": True, "high": [1]}, "invalid_rate": None}
    (row,) = rows(tmp_path, a={**result([1], seat=odd), "weights": 7})
    assert (row["step"], row["games"], row["weights"]) == (None, None, "7")
    assert row["win"] == row["return"] == [None, None, None]
