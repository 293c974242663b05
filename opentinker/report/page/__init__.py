"""Runs as one HTML page: curves, settings, every episode turn by turn, failures. It asks no network for anything.

The page holds its data compressed, in chunks that are opened when they are looked at.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import logging
import math
import os
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import IO, Any

from opentinker.report.figures import charts
from opentinker.report.page.episodes import Line, Packer, choose, find_lines
from opentinker.report.page.evaluations import evaluation_rows
from opentinker.report.page.tokens import vocabularies
from opentinker.report.record import plain
from opentinker.report.runs import RunRecord, read_runs
from opentinker.runs.writing import writing

log = logging.getLogger(__name__)

SCRIPTS = ("base.js", "data.js", "curves.js", "turns.js", "episodes.js", "settings.js", "main.js")
"""Joined in this order into the page's only script."""

MAX_EPISODES = 20_000

UNSHOWABLE = ("Cc", "Cs", "Cn", "Cf")


def write_page(runs: Sequence[Path | RunRecord], file: Path, max_episodes: int = MAX_EPISODES) -> Path:
    """Writes one or several runs as one HTML page.

    Args:
        runs: folders of runs, or what was read of them; what is torn in them is left out and the page says how much.
        file: the page; its folder is made, an existing page is replaced at once.
        max_episodes: of all runs together, evenly spread, failed ones first. The page says how many are shown.

    Returns:
        `file`.

    Raises:
        ConfigError: a folder is no run.
        WriteFailed: the page cannot be written; one that was there before is untouched.
    """
    read = iter(read_runs([run for run in runs if isinstance(run, Path)]))
    records = [next(read) if isinstance(run, Path) else run for run in runs]
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("w", encoding="utf-8", newline="\n") as out:
                _write(records, max_episodes, out)
            unfinished.replace(file)
        finally:
            with suppress(OSError):
                unfinished.unlink()
    return file


def _write(records: Sequence[RunRecord], max_episodes: int, out: IO[str]) -> None:
    script = "(() => {\n'use strict';\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    style = _asset("page.css")
    title = " · ".join(record.name for record in records[:4]) + (" …" if len(records) > 4 else "")
    marks = {
        "POLICY": "; ".join(
            (
                "default-src 'none'",
                f"script-src '{_hash(script)}'",
                f"style-src '{_hash(style)}'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
        "TITLE": html.escape(_plain(title)),
        "STYLE": style,
        "SCRIPT": script,
    }
    # the marks stand between the parts of the template: what replaces one is never searched for another
    for part in _asset("page.html").split("%%"):
        if part == "DATA":
            _write_data(records, max_episodes, out)
        else:
            out.write(marks.get(part, part))


def _write_data(records: Sequence[RunRecord], max_episodes: int, out: IO[str]) -> None:
    lines = [line for number, record in enumerate(records) for line in find_lines(number, record)]
    packer = Packer()
    for number, chunk in enumerate(packer.chunks(choose(lines, max_episodes))):
        out.write(_packed(f"chunk-{number}", chunk))
    data = {
        "runs": [_run(number, record, lines, packer) for number, record in enumerate(records)],
        "charts": [
            {"id": chart.id, "title": chart.title, "main": chart.main, "lines": list(chart.lines.items())}
            for chart in charts(key for record in records for key in _keys(record))
        ],
        "index": packer.index(),
    }
    out.write(_packed("data", data))


def _run(number: int, record: RunRecord, lines: Sequence[Line], packer: Packer) -> dict[str, Any]:
    used = packer.used[number]
    found = vocabularies(record, used)
    tables = list(dict.fromkeys(found.values()))
    ids: list[set[int]] = [set() for _ in tables]
    for policy, vocabulary in found.items():
        ids[tables.index(vocabulary)] |= used[policy]
    keys = _keys(record)
    return {
        "name": record.name,
        "path": str(record.path),
        "state": record.state,
        "step": record.step,
        "steps": record.steps,
        "error": record.error,
        "traceback": record.traceback,
        "updated": record.updated,
        "config": plain(record.config),
        "torn": record.torn,
        "unread": packer.unread[number],
        "episodes": sum(line.run == number for line in lines),
        "evaluations": list(evaluation_rows(record)),
        "at": [row["step"] for row in record.rows],
        "figures": {key: [_figure(row.get(key)) for row in record.rows] for key in keys},
        "vocabularies": [vocabulary.table(part) for vocabulary, part in zip(tables, ids, strict=True)],
        "policies": {policy: tables.index(vocabulary) for policy, vocabulary in found.items()},
    }


def _keys(record: RunRecord) -> list[str]:
    keys = dict.fromkeys(key for row in record.rows for key in row if key != "step")
    return [key for key in keys if any(_figure(row.get(key)) is not None for row in record.rows)]


def _figure(value: Any) -> float | None:
    # beyond the bound the axes' own sums overflow
    if type(value) not in (int, float) or not abs(value) < 1e100 or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def _packed(id: str, data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # pure ASCII: lone surrogates stay escapes
    packed = gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)
    return f'<script type="application/gzip" id="{id}">{base64.b64encode(packed).decode("ascii")}</script>\n'


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return resources.files("opentinker.report.page").joinpath(name).read_text(encoding="utf-8")


def _plain(text: str) -> str:
    return "".join("\ufffd" if unicodedata.category(mark) in UNSHOWABLE else mark for mark in text)
