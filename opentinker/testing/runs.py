"""Run folders without a run: made-up games, figures and a tokenizer of bytes, for tests of what reads them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opentinker.report.record import episode_to_json
from opentinker.types import Completion, Episode, EpisodeStatus, FinishReason, Turn

START, END = 1, 2
"""Ids of the marks around a message."""

_FIRST = 3
"""Id of the byte 0."""


def byte_ids(text: str) -> tuple[int, ...]:
    """The ids of a text, one a byte; a lone surrogate becomes the three bytes it would have."""
    return tuple(_FIRST + byte for byte in text.encode("utf-8", "surrogatepass"))


def chat_ids(*messages: tuple[str, str]) -> tuple[int, ...]:
    """The prompt that follows messages (role, text), up to where the assistant answers."""
    ids: list[int] = []
    for role, text in messages:
        ids += [START, *byte_ids(f"{role}\n{text}"), END, *byte_ids("\n")]
    return (*ids, START, *byte_ids("assistant\n"))


def write_tokenizer(file: Path) -> None:
    """The `tokenizer.json` that `byte_ids` goes with."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # type: ignore[import-untyped]

    marks = ("<pad>", "<|im_start|>", "<|im_end|>")
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    letter = {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(rest)}
    vocabulary = {mark: place for place, mark in enumerate(marks)} | {letter[byte]: _FIRST + byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    file.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(file))


def write_run(
    folder: Path,
    config: Mapping[str, Any],
    rows: Iterable[Mapping[str, Any]],
    episodes: Iterable[Episode],
    advantages: Mapping[str, Sequence[float]] | None = None,
) -> Path:
    """A run's folder with these contents, a tokenizer for each policy that played, and no weights.

    Args:
        folder: where; it is made.
        config: written as `config.yaml`.
        rows: lines of `metrics.jsonl`.
        episodes: with ids `step/group/member`; they go into the file of their step.
        advantages: one per turn, by the episode's id; for episodes that have any.
    """
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    (folder / "run.json").write_text('{"format": 1}', encoding="utf-8")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "episodes").mkdir()
    policies = set()
    files: dict[str, Any] = {}
    try:
        for episode in episodes:
            step = episode.id.partition("/")[0]
            if step not in files:
                files[step] = (folder / "episodes" / f"step-{step}.jsonl").open("w", encoding="utf-8")
            files[step].write(json.dumps(episode_to_json(episode, (advantages or {}).get(episode.id))) + "\n")
            policies |= {turn.policy for turn in episode.turns if turn.policy is not None}
    finally:
        for file in files.values():
            file.close()
    for policy in policies:
        write_tokenizer(folder / "checkpoints" / "step-000001" / "policies" / policy / "weights" / "tokenizer.json")
    return folder


def made_up_turn(
    agent: str,
    prompt_ids: Sequence[int],
    reply: str,
    *,
    index: int = 0,
    logprobs: Sequence[float] | None = None,
    reward: float = 0.0,
    **fields: Any,
) -> Turn:
    """A turn of the policy `learner` that drew a reply byte for byte; further fields as of `Turn`."""
    ids = byte_ids(reply)
    drawn = tuple(logprobs) if logprobs is not None else (-0.1,) * len(ids)
    values: dict[str, Any] = {
        "agent": agent,
        "role": agent,
        "policy": "learner",
        "version": 0,
        "index": index,
        "attempt": 0,
        "phase": "",
        "prompt_ids": tuple(prompt_ids),
        "completion": Completion(ids, drawn, reply, FinishReason.LENGTH, "learner", 0),
        "observation": "",
        "action": reply,
        "valid": True,
        "n_legal": 2,
        "trainable": True,
        "reward": reward,
        "penalty": 0.0,
        "reply": reply,
    }
    return Turn(**{**values, **fields})


def made_up_games(count: int, per_step: int = 200, seed: int = 0) -> Iterator[Episode]:
    """Games in the shape of Kuhn poker (two or three turns) and of tic-tac-toe (five to nine turns) by turns.

    About one in a hundred failed, and one in twenty-five was forfeited after an invalid reply.
    """
    draw = random.Random(seed)
    for number in range(count):
        step, group = 10 * (number // per_step + 1), number % per_step
        turns = _kuhn(draw) if number % 2 else _board(draw)
        last = turns[-1].agent
        failed, forfeit = draw.random() < 0.01, draw.random() < 0.04
        sign = draw.choice((-1, 1))
        yield Episode(
            id=f"{step:06d}/{group:04d}/00",
            env="kuhn_poker" if number % 2 else "pettingzoo/classic/tictactoe_v3",
            seed=draw.getrandbits(31),
            group=group,
            member=0,
            roles={"player_0": "player_0", "player_1": "player_1"},
            opponents={},
            turns=tuple(turns),
            messages=(),
            final_prompts={},
            rewards={"player_0": float(sign), "player_1": float(-sign)},
            status=EpisodeStatus.FAILED if failed else EpisodeStatus.TERMINATED,
            error="Traceback (most recent call last):\n  File 'env.py', line 7\nRuntimeError: made up" if failed else "",
            outcome={"forfeit": last, "out": {last: "forfeit"}} if forfeit else {},
            timings={"env": draw.random() / 1000, "seats": draw.random() / 10, "total": draw.random()},
        )


def _kuhn(draw: random.Random) -> list[Turn]:
    cards, moves, turns = draw.sample("JQK", 2), "", []
    for number in range(draw.choice((2, 3))):
        seen = f"Card {cards[number % 2]}. Moves {moves or '-'}. p/b?"
        turns.append(_sampled(draw, number, seen, draw.choice("pb")))
        moves += str(turns[-1].action)
    return turns


def _board(draw: random.Random) -> list[Turn]:
    cells, turns = ["."] * 9, []
    for number in range(draw.randint(5, 9)):
        rows = "\n".join("".join(cells[place : place + 3]) for place in (0, 3, 6))
        free = [place for place, cell in enumerate(cells) if cell == "."]
        turns.append(_sampled(draw, number, f"You are {'XO'[number % 2]}.\n{rows}\nFree cell?", str(draw.choice(free))))
        cells[int(turns[-1].action)] = "XO"[number % 2]
    return turns


def _sampled(draw: random.Random, number: int, seen: str, reply: str) -> Turn:
    chance = math.log(draw.uniform(0.002, 1.0))
    prompt = chat_ids(("user", seen))
    return made_up_turn(f"player_{number % 2}", prompt, reply, index=number // 2, logprobs=[chance], observation=seen)
