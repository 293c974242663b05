import logging
import math

import matplotlib.figure
import numpy as np
import pytest
from matplotlib.image import imread

from opentinker.errors import WriteFailed
from opentinker.report.curves import plot_curves, plot_runs


@pytest.fixture
def drawn(monkeypatch):
    """The figure behind the last PNG."""
    figures = []
    real = matplotlib.figure.Figure.savefig

    def keep(figure, *args, **kwargs):
        figures.append(figure)
        return real(figure, *args, **kwargs)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
    return figures


def row(step, **figures):
    return {"step": step, "time_s": 1.0 * step, **{key.replace("__", "/"): value for key, value in figures.items()}}


def rows_of(n):
    return [
        row(
            step,
            eval__exploitability__last=1 / (step + 1),
            rollout__player_0__return_mean=step / 10,
            rollout__player_1__return_mean=-step / 10,
            rollout__player_0__invalid_rate=0.5,
            rollout__learner__entropy=1.0,
            train__learner__entropy=2.0,
            train__learner__entropy_loss=3.0,
        )
        for step in range(n)
    ]


def ink(file):
    """How many pixels are coloured: lines are, axes and text are not."""
    pixels = imread(file)
    assert pixels.shape[0] > 200 and pixels.shape[1] > 200
    return int((np.ptp(pixels[..., :3], axis=-1) > 0.2).sum())


def test_no_rows_give_a_picture_with_a_title_only(tmp_path):
    file = plot_curves([], tmp_path / "deep" / "er" / "curves.png", "kuhn")
    assert file == tmp_path / "deep" / "er" / "curves.png"
    assert file.read_bytes().startswith(b"\x89PNG")
    assert ink(file) == 0
    assert imread(file)[..., :3].min() < 0.5  # the title


def test_one_row_can_be_seen_in_every_panel(tmp_path, drawn):
    assert ink(plot_curves(rows_of(1), tmp_path / "one.png", "kuhn")) > 50
    for axes in drawn[0].axes:
        axes.get_legend().remove()
    file = tmp_path / "bare.png"
    drawn[0].savefig(file)
    quarter = imread(file).shape[1] // 4
    coloured = np.ptp(imread(file)[..., :3], axis=-1) > 0.2
    assert all(coloured[:, place * quarter : (place + 1) * quarter].sum() > 10 for place in range(4))


def test_many_rows_make_lines(tmp_path, drawn):
    file = plot_curves(rows_of(50), tmp_path / "a.png", "kuhn")
    assert ink(file) > 1000
    panels = {axes.get_title(): axes for axes in drawn[0].axes}
    assert list(panels) == ["exploitability", "return", "invalid replies", "entropy (nats a token)"]
    curves = {line.get_label(): line for line in panels["return"].lines}
    assert list(curves) == ["player_0", "player_1"]
    assert curves["player_1"].get_xydata()[10].tolist() == [10, -1.0]
    (entropy,) = panels["entropy (nats a token)"].lines  # the rollout's, not the trainer's
    assert entropy.get_ydata()[0] == 1.0
    assert [line.get_label() for line in panels["exploitability"].lines] == ["last"]
    assert panels["exploitability"].get_ylim()[0] == 0


def test_gaps_nulls_and_what_is_not_finite_are_left_out(tmp_path, drawn):
    rows = [
        row(0, eval__exploitability__last=0.5, eval__exploitability__ema=None),
        row(1),
        row(2, eval__exploitability__last=math.nan, rollout__a__return_mean=math.nan),
        row(3, eval__exploitability__last=math.inf, rollout__a__return_mean=None),
        row(4, eval__exploitability__last=0.25),
    ]
    plot_curves(rows, tmp_path / "a.png", "kuhn")
    (axes,) = drawn[0].axes
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[0, 0.5], [4, 0.25]]


def test_names_that_matplotlib_reads_otherwise_are_shown_as_they_are(tmp_path, drawn):
    names = ["$x^$", "_hidden", "a_b", "team/a", r"\frac"]
    plot_curves(
        [{"step": n, **{f"rollout/{name}/return_mean": n for name in names}} for n in range(3)], tmp_path / "a.png", "t"
    )
    (axes,) = drawn[0].axes
    shown = [text.get_text().replace("\\$", "$").strip() for text in axes.get_legend().get_texts()]
    assert sorted(shown) == sorted(names)


def test_an_existing_picture_is_replaced(tmp_path):
    file = tmp_path / "a.png"
    file.write_bytes(b"old")
    plot_curves(rows_of(2), file, "kuhn")
    assert file.read_bytes().startswith(b"\x89PNG")


ODD = ["\ud800", "a\0b\n\x1b", "$\ud800$", "$", r"\$x", "漢字", "\ue000\U000fffff", "\u2028", "x" * 5000, "_$_", ""]


@pytest.mark.parametrize("title", ODD, ids=ascii)
def test_no_name_and_no_title_fails_a_finished_run(tmp_path, title):
    rows = [{"step": n, **{f"rollout/{name}/return_mean": n for name in ODD}} for n in range(2)]
    assert ink(plot_curves(rows, tmp_path / "a.png", title)) > 50


def test_what_cannot_be_drawn_is_replaced(tmp_path, drawn):
    plot_curves([{"step": 0, "rollout/$a\ud800\nb/return_mean": 1}], tmp_path / "a.png", "$\ud800")
    (axes,) = drawn[0].axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [r"\$a" + "\ufffd\ufffdb"]
    assert drawn[0].get_suptitle() == r"\$" + "\ufffd"


def test_figures_that_no_axis_holds_are_left_out(tmp_path, drawn):
    values = [1e308, -1e308, 10**400, "1", [1], 0.5]
    plot_curves([{"step": n, "rollout/a/return_mean": value} for n, value in enumerate(values)], tmp_path / "a.png", "t")
    (line,) = drawn[0].axes[0].lines
    assert line.get_xydata().tolist() == [[5, 0.5]]


def test_a_picture_that_cannot_be_written_is_logged(tmp_path, caplog):
    (tmp_path / "report").touch()
    with caplog.at_level(logging.WARNING):
        file = plot_curves(rows_of(2), tmp_path / "report" / "a.png", "t")
    assert not file.exists()
    assert "cannot write " in caplog.text


def test_several_runs_have_a_colour_each_and_their_lines_a_dash_each(tmp_path, drawn):
    runs = {"one": rows_of(5), "two": rows_of(9), "none": []}
    assert ink(plot_runs(runs, tmp_path / "a.png", "3 runs")) > 500
    panels = {axes.get_title(): axes for axes in drawn[0].axes}
    lines = panels["return"].lines
    assert [(line.get_color(), line.get_linestyle(), len(line.get_xdata())) for line in lines] == [
        ("C0", "-", 5),
        ("C1", "-", 9),
        ("C0", "--", 5),
        ("C1", "--", 9),
    ]
    assert [text.get_text() for text in panels["return"].get_legend().get_texts()] == ["player_0", "player_1"]
    assert panels["invalid replies"].get_legend() is None
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["one", "two", "none"]


def test_matches_and_losses_are_drawn_and_failures_only_where_there_are_some(tmp_path, drawn):
    rows = [row(n, eval__random__win_rate=0.5, train__learner__loss=1.0, rollout__all__failed=0) for n in range(3)]
    plot_curves(rows, tmp_path / "a.png", "t")
    assert [axes.get_title() for axes in drawn[-1].axes] == ["wins against opponents", "loss"]
    plot_curves([*rows, row(3, rollout__all__failed=2)], tmp_path / "a.png", "t")
    assert [axes.get_title() for axes in drawn[-1].axes][-1] == "failed episodes"


def test_panels_fill_several_lines_and_end_at_eight(tmp_path, drawn):
    keys = [f"eval/a/{name}" for name in ("win_rate", "draw_rate", "loss_rate", "return_mean", "invalid_rate")]
    keys += [f"rollout/a/{name}" for name in ("return_mean", "win_rate", "invalid_rate", "entropy")]
    plot_curves([{"step": n, **dict.fromkeys(keys, 0.5)} for n in range(3)], tmp_path / "a.png", "t")
    assert len(drawn[0].axes) == 8
    assert ink(tmp_path / "a.png") > 1000


def test_a_picture_that_finds_no_room_leaves_the_one_before(tmp_path, monkeypatch):
    def half(self, path, **settings):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "a.png").write_bytes(b"before")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(WriteFailed, match=r"^cannot write .*/a\.png: No space left on device \(file system /"):
        plot_runs({"": rows_of(2)}, tmp_path / "a.png", "t")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.png", b"before")]
