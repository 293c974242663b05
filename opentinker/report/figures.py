"""Which figures belong into one picture, what it is called, and which pictures come first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

FAILED = "rollout/failed"

MAIN = (
    ("eval/exploitability", "exploitability"),
    ("eval/win_rate", "wins against opponents"),
    ("eval/draw_rate", "draws against opponents"),
    ("eval/loss_rate", "losses against opponents"),
    ("eval/return_mean", "return against opponents"),
    ("eval/invalid_rate", "invalid replies against opponents"),
    ("rollout/return_mean", "return"),
    ("rollout/win_rate", "wins"),
    ("rollout/invalid_rate", "invalid replies"),
    ("rollout/entropy", "entropy (nats a token)"),
    ("train/loss", "loss"),
    (FAILED, "failed episodes"),
)
"""Pictures that tell most, best first: name and title."""

OF_MATCHES = ("win_rate", "draw_rate", "loss_rate", "return_mean", "invalid_rate", "games")
"""Last part of `eval/OPPONENT/figure`; other figures are `eval/figure/WEIGHTS`."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture: figures of one kind over the steps."""

    id: str
    """`area/figure`, for example `rollout/return_mean`."""
    title: str
    main: bool
    """Whether it is one of those that tell most."""
    lines: dict[str, str]
    """What a line is called in it, and its key in `metrics.jsonl`."""


def charts(keys: Iterable[str]) -> list[Chart]:
    """The pictures that these keys of `metrics.jsonl` make: main ones first, then the others by name."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for key in sorted(set(keys) - {"step"}):
        id, who = _place(key)
        found[id][who] = key
    titles = dict(MAIN)
    order = [id for id, _ in MAIN if id in found] + sorted(set(found) - set(titles))
    return [Chart(id, titles.get(id) or _title(id), id in titles, found[id]) for id in order]


def _place(key: str) -> tuple[str, str]:
    area, *rest = key.split("/")
    if not rest:
        return key, key
    if area == "time" and len(rest) == 1 and key.endswith("_s") and not key.endswith("_per_s"):
        return "time/seconds a step", rest[0].removesuffix("_s")
    if len(rest) == 1:
        return key, rest[0]
    if area == "eval" and rest[-1] not in OF_MATCHES:
        return f"eval/{rest[0]}", "/".join(rest[1:])
    return f"{area}/{rest[-1]}", "/".join(rest[:-1])


def _title(id: str) -> str:
    area, _, figure = id.rpartition("/")
    name = (figure or id).replace("_", " ")
    return f"{name} ({area})" if area and area != "time" else name
