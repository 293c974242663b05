import pytest

from opentinker.report.figures import charts


def pictures(*keys):
    return {chart.id: chart.lines for chart in charts(keys)}


@pytest.mark.parametrize(
    ("key", "id", "who"),
    [
        ("eval/exploitability/ema", "eval/exploitability", "ema"),
        ("eval/invalid_mass/last", "eval/invalid_mass", "last"),
        ("eval/random/win_rate", "eval/win_rate", "random"),
        ("eval/runs_kuhn@120/return_mean", "eval/return_mean", "runs_kuhn@120"),
        ("rollout/player_0/return_mean", "rollout/return_mean", "player_0"),
        ("rollout/team/a/return_mean", "rollout/return_mean", "team/a"),
        ("rollout//return_mean", "rollout/return_mean", ""),
        ("train/learner/loss", "train/loss", "learner"),
        ("time/rollout_s", "time/seconds a step", "rollout"),
        ("time/tokens_per_s", "time/tokens_per_s", "tokens_per_s"),
        ("time_s", "time_s", "time_s"),
        ("own", "own", "own"),
    ],
)
def test_a_key_has_its_place(key, id, who):
    assert pictures(key) == {id: {who: key}}


def test_what_tells_most_comes_first_and_the_rest_by_name():
    found = charts(["time_s", "train/a/kl", "train/a/loss", "rollout/p/return_mean", "eval/exploitability/last", "step"])
    assert [(chart.title, chart.main) for chart in found] == [
        ("exploitability", True),
        ("return", True),
        ("loss", True),
        ("time s", False),
        ("kl (train)", False),
    ]


def test_figures_of_one_kind_share_a_picture_and_repeated_keys_count_once():
    keys = ["rollout/b/entropy", "rollout/a/entropy", "rollout/b/entropy"]
    assert pictures(*keys) == {"rollout/entropy": {"a": "rollout/a/entropy", "b": "rollout/b/entropy"}}
