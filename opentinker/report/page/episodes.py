"""Episodes made small: strings and prompts once a chunk, a prompt as what it adds to the agent's last one."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentinker.report.runs import RunRecord, json_line

CHUNK_EPISODES = 256
CHUNK_BYTES = 2_000_000
"""Of the lines as they lie in the files."""

MAX_BYTES = 400_000_000
"""Lines that go into one page, together."""

STATUS = ("terminated", "truncated", "failed")


@dataclass(frozen=True, slots=True)
class Line:
    """Where an episode lies."""

    run: int
    kind: str
    file: Path
    offset: int
    length: int
    failed: bool


def find_lines(run: int, record: RunRecord) -> Iterator[Line]:
    """The lines of a run that may be episodes, without reading what they say."""
    for kind, file in record.episode_files():
        offset = 0
        with file.open("rb") as stream:
            for text in stream:
                # a running run's last line may be on its way; other records are no torn episodes
                whole = text.endswith(b"\n") or record.state != "running"
                if text.strip() and whole and (b'"turns"' in text or not text.lstrip().startswith(b"{")):
                    yield Line(run, kind, file, offset, len(text), b'"status": "failed"' in text)
                offset += len(text)


def choose(lines: Sequence[Line], limit: int, max_bytes: int = MAX_BYTES) -> list[Line]:
    """At most `limit` lines of together at most `max_bytes`, evenly spread; up to half of them are failed episodes."""
    wanted = min(limit, len(lines))
    while True:
        kept = list(lines) if wanted == len(lines) else _spread(lines, wanted)
        size = sum(line.length for line in kept)
        if size <= max_bytes or not wanted:
            return kept
        wanted = min(wanted - 1, int(wanted * max_bytes / size))


def _spread(lines: Sequence[Line], wanted: int) -> list[Line]:
    failed = [place for place, line in enumerate(lines) if line.failed]
    sound = [place for place, line in enumerate(lines) if not line.failed]
    failures = min(len(failed), max((wanted + 1) // 2, wanted - len(sound)))
    places = _evenly(failed, failures) + _evenly(sound, wanted - failures)
    return [lines[place] for place in sorted(places)]


def _evenly(places: Sequence[int], wanted: int) -> list[int]:
    return [places[index * len(places) // wanted] for index in range(wanted)]


class Strings:
    """A table of texts, each once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: Any) -> int:
        """The place of a text in the table."""
        return self._places.setdefault(text if isinstance(text, str) else _shown(text), len(self._places))

    def list(self) -> list[str]:
        """The table."""
        return list(self._places)


@dataclass(slots=True)
class Chunk:
    """Episodes that are packed together and opened together."""

    strings: Strings = field(default_factory=Strings)
    prompts: list[list[int]] = field(default_factory=list)
    """Place of the prompt it goes on from or -1, how many ids of it, and the ids that follow."""
    episodes: list[Any] = field(default_factory=list)
    size: int = 0
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)

    def prompt(self, ids: Sequence[int], last: tuple[int, tuple[int, ...]] | None) -> int:
        """The place of a prompt, given the place and the ids of one that it may go on from."""
        whole = tuple(ids)
        if whole in self._known:
            return self._known[whole]
        base, keep = -1, 0
        if last is not None:
            base, keep = last[0], _common(last[1], whole)
        self.prompts.append([base, keep, *whole[keep:]] if keep else [-1, 0, *whole])
        self._known[whole] = len(self.prompts) - 1
        return len(self.prompts) - 1

    def dump(self) -> dict[str, Any]:
        """JSON."""
        return {"s": self.strings.list(), "p": self.prompts, "e": self.episodes}


class Packer:
    """Packs episodes into chunks and keeps the index of them."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.columns: defaultdict[str, list[Any]] = defaultdict(list)
        self.unread: defaultdict[int, int] = defaultdict(int)
        """Lines of a run that are no episode."""
        self.used: defaultdict[int, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        """Token ids by run and policy."""
        self._chunks = 0

    def chunks(self, lines: Iterable[Line]) -> Iterator[dict[str, Any]]:
        """One JSON object after the other; the index grows beside them."""
        chunk = Chunk()
        for line, text in _read(lines):
            row = json_line(text)
            try:
                if row is None:
                    raise ValueError("torn")
                packed = self._pack(row, line, chunk)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
                self.unread[line.run] += 1
                continue
            chunk.episodes.append(packed)
            chunk.size += line.length
            if len(chunk.episodes) >= CHUNK_EPISODES or chunk.size >= CHUNK_BYTES:
                yield chunk.dump()
                self._chunks += 1
                chunk = Chunk()
        if chunk.episodes:
            yield chunk.dump()

    def index(self) -> dict[str, Any]:
        """JSON: a table of texts and one list for each column, an entry for each episode."""
        return {"s": self.strings.list(), **self.columns}

    def _pack(self, row: Mapping[str, Any], line: Line, chunk: Chunk) -> list[Any]:
        put = chunk.strings
        last: dict[str, tuple[int, tuple[int, ...]]] = {}
        turns = [self._turn(turn, line.run, chunk, last) for turn in row["turns"]]
        finals = row.get("final_prompts") or {}
        packed = [
            turns,
            [[put(m["sender"]), [put(name) for name in m["to"]], put(m["text"]), int(m["turn"])] for m in row["messages"]],
            [[put(agent), chunk.prompt(_ids(ids), last.get(agent))] for agent, ids in finals.items()],
            put(row.get("error") or ""),
            put(_shown(row.get("outcome") or {})),
            put(str(row.get("seed"))),
            put(_shown(row.get("timings") or {})),
            [[put(agent), put(_seat(row, agent))] for agent in row["roles"]],
        ]
        self._list(row, line, len(chunk.episodes))
        return packed

    def _turn(
        self, turn: Mapping[str, Any], run: int, chunk: Chunk, last: dict[str, tuple[int, tuple[int, ...]]]
    ) -> list[Any]:
        put, agent, policy = chunk.strings, turn["agent"], turn["policy"]
        ids = _ids(turn["prompt_ids"])
        prompt = chunk.prompt(ids, last.get(agent)) if ids else -1
        if ids:
            last[agent] = (prompt, ids)
        completion = turn["completion"]
        drawn: list[Any] | None = None
        if completion is not None:
            sampled = _ids(completion["token_ids"])
            chances = [_number(value, 5) for value in completion["logprobs"]]
            text = -1 if completion["text"] == turn.get("reply") else put(completion["text"])
            drawn = [list(sampled), chances, put(completion["finish_reason"]), text]
            ids = (*ids, *sampled)
        if policy is not None:
            self.used[run][str(policy)].update(ids)
        return [
            put(agent),
            put(turn["role"]),
            -1 if policy is None else put(policy),
            _count(turn["version"]),
            int(turn["index"]),
            int(turn["attempt"]),
            put(turn["phase"]),
            prompt,
            drawn,
            put(turn["observation"]),
            put(_shown(turn["action"])),
            int(bool(turn["valid"])),
            _count(turn["n_legal"]),
            int(bool(turn["trainable"])),
            _number(turn["reward"]),
            _number(turn["penalty"]),
            put(turn.get("reply") or ""),
            put(turn.get("error") or ""),
            _number(turn["advantage"]) if turn.get("advantage") is not None else None,
        ]

    def _list(self, row: Mapping[str, Any], line: Line, slot: int) -> None:
        put, turns = self.strings, row["turns"]
        agents = list(row["roles"])
        error = str(row.get("error") or "").strip()
        entry = {
            "id": put(row["id"]),
            "run": line.run,
            "kind": put(line.kind),
            "file": put(f"{line.file.parent.name}/{line.file.name}"),
            "step": _step(str(row["id"]), line),
            "status": STATUS.index(row["status"]),
            "env": put(row["env"]),
            "group": int(row.get("group") or 0),
            "agents": [put(agent) for agent in agents],
            "returns": [_number(row["rewards"].get(agent, 0.0)) for agent in agents],
            "turns": len(turns),
            "invalid": sum(not turn["valid"] for turn in turns),
            "tokens": sum(len(turn["completion"]["token_ids"]) for turn in turns if turn["completion"] is not None),
            "notes": [put(note[:80]) for note in _notes(row.get("outcome") or {}, turns)],
            "error": put(error.splitlines()[-1][:200] if error else ""),
            "chunk": self._chunks,
            "slot": slot,
        }
        for name, value in entry.items():
            self.columns[name].append(value)


def _read(lines: Iterable[Line]) -> Iterator[tuple[Line, bytes]]:
    stream, opened = None, None
    try:
        for line in lines:
            if stream is None or line.file != opened:
                if stream is not None:
                    stream.close()
                stream, opened = line.file.open("rb"), line.file
            stream.seek(line.offset)
            yield line, stream.read(line.length)
    finally:
        if stream is not None:
            stream.close()


def _seat(row: Mapping[str, Any], agent: str) -> str:
    """Who sits there: a policy, or what the record calls an opponent."""
    for turn in row["turns"]:
        if turn["agent"] == agent and turn["policy"] is not None:
            return str(turn["policy"])
    return str((row.get("opponents") or {}).get(agent, ""))


def _step(id: str, line: Line) -> int:
    """The training step that it belongs to; -1 where nothing says so."""
    first = id.partition("/")[0]
    if line.kind == "training" and re.fullmatch(r"\d{1,15}", first, re.ASCII):
        return int(first)
    match = re.match(r"step-(\d{1,15})(?!\d)", line.file.name, re.ASCII)
    return int(match[1]) if match else -1


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    return next(place for place in range(size) if one[place] != other[place])


def _ids(values: Iterable[Any]) -> tuple[int, ...]:
    ids = tuple(values)
    if ids and (set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) >= 2**31):
        raise ValueError("token ids are small integers")
    return ids


def _number(value: Any, digits: int = 6) -> float | str:
    """A JSON number; text where it is none that JSON knows."""
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    rounded = float(f"{number:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _notes(outcome: Mapping[str, Any], turns: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What was noted, in short, and penalties; `detail` is whole sentences and stands with the episode."""
    penalty = sum(float(turn["penalty"]) for turn in turns)
    if penalty:
        yield f"penalty {penalty:g}"
    for name, value in outcome.items():
        if isinstance(value, Mapping):
            if name != "detail":
                yield from (f"{name}: {key} {_shown(item)}" for key, item in value.items())
        else:
            yield f"{name}: {_shown(value)}"


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
