"""From a file, a mapping or a tree, and overrides, to a validated configuration; every fault told in the user's terms."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from opentinker.config.strict_yaml import parse_yaml
from opentinker.config.tree import RunConfig, is_named, settings_in
from opentinker.config.values import Settings, plain_copy
from opentinker.errors import ConfigError

WORDS = {
    "missing": "missing",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_unicode": "must hold no half of a surrogate pair, which is no character",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "invalid_key": "keys must be text; put it in quotes",
    "string_pattern_mismatch": "must start with a letter or digit, then letters, digits, '.', '_' or '-'",
}
"""pydantic's error types in the words of somebody who writes YAML; its own text where there is none."""

_PYDANTIC_START = re.compile(r"^(?:Input|String|List|Tuple|Dictionary) should ")


def load_config(source: str | Path | Mapping[str, Any] | RunConfig, overrides: Sequence[str] = ()) -> RunConfig:
    """A validated configuration from a YAML file, a mapping or a tree, with `key.path=value` overrides applied.

    A value is read as YAML. Where a name holds dots (`agents.team.1.memory=last`), the longest key that is there counts.

    Raises:
        ConfigError: every fault at once, each with its key, what was given and the nearest valid name.
    """
    data = _data(source)
    if not isinstance(data, dict):
        what = "empty" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"a configuration is a mapping of keys, this one is {what}; `opentinker config` prints all keys")
    for item in overrides:
        _override(data, item)
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(dict.fromkeys(map(_explain, error.errors(include_url=False))))) from error


def _data(source: str | Path | Mapping[str, Any] | RunConfig) -> Any:
    if isinstance(source, RunConfig):
        return source.dump()
    read = source if isinstance(source, Mapping) else parse_yaml(_read(Path(source)), str(source))
    try:
        return plain_copy(read)  # also parts what YAML aliases share, so that an override changes one place
    except RecursionError as error:
        raise ConfigError("the configuration is nested too deeply, or holds itself") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read the configuration {str(path)!r}: it is not UTF-8 text ({error})") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        beside = [str(file) for file in path.parent.glob("*.y*ml")] if isinstance(error, FileNotFoundError) else []
        near = difflib.get_close_matches(str(path), beside, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"cannot read the configuration {str(path)!r}: {error}{hint}") from error


def _override(data: dict[Any, Any], item: str) -> None:
    path, equals, text = item.partition("=")
    rest = path.strip().split(".")
    if not equals or not all(rest):
        raise ConfigError(f"override {item!r} is not of the form key.path=value")
    node = data
    while True:
        key, rest = _next_key(node, rest)
        if not rest:
            node[key] = parse_yaml(text, f"override {item!r}")
            return
        if node.get(key) is None:
            node[key] = {}
        node = node[key]
        if not isinstance(node, dict):
            whole = path[: -len(".".join(rest)) - 1]
            raise ConfigError(
                f"override {item!r}: {whole} holds {reprlib.repr(node)}, which has no keys; give it whole, as {whole}=…"
            )


def _next_key(node: Mapping[Any, Any], keys: list[str]) -> tuple[str, list[str]]:
    for length in range(len(keys), 1, -1):
        key = ".".join(keys[:length])
        if key in node:
            return key, keys[length:]
    return keys[0], keys[1:]


def _explain(fault: Any) -> str:
    parts, owner, annotation = _trace(fault["loc"])
    key = re.sub(r"[\x00-\x1f]", lambda mark: repr(mark[0])[1:-1], ".".join(parts))
    given = fault.get("input")
    kind = fault["type"]
    if kind == "extra_forbidden":
        return f"{key}: unknown key; {_advice(parts[-1], owner.valid_keys() if owner else [])}"
    if kind == "model_type":
        known = settings_in(annotation)
        message = "must be a mapping" + (f" with keys {', '.join(known.valid_keys())}" if known else " of keys to values")
    elif kind == "literal_error":
        expected = fault["ctx"]["expected"]
        message = f"must be {expected}"
        near = difflib.get_close_matches(str(given), re.findall(r"'([^']+)'", expected), n=1)
        message += f"; did you mean {near[0]!r}?" if near and " or " in expected else ""
    else:
        message = fault["msg"].removeprefix("Value error, ").replace(" after validation", "")
        message = WORDS.get(kind) or _PYDANTIC_START.sub("must ", message)
        if kind == "string_type" and isinstance(given, (bool, int, float)):
            message += "; put it in quotes"
        if kind == "string_type" and fault["loc"][-1] == "[key]":
            message = WORDS["invalid_key"]
    told = isinstance(given, (dict, Settings)) or kind == "missing" or (kind == "value_error" and repr(given) in message)
    shown = "" if told else f" (given: {reprlib.repr(given)})"
    return f"{key}: {message}{shown}" if key else message + shown


def _advice(given: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"valid here: {', '.join(sorted(known))}"


def _trace(loc: Sequence[Any]) -> tuple[list[str], type[Settings] | None, Any]:
    """The keys of a place, the settings that hold its last one, and what belongs there."""
    annotation: Any = RunConfig
    parts: list[str] = []
    owner: type[Settings] | None = None
    for part in loc[:-1] if loc and loc[-1] == "[key]" else loc:  # pydantic's mark for a fault in a key itself
        parts.append(str(part))
        if is_named(annotation):
            owner, annotation = None, get_args(annotation)[1]
            continue
        owner = settings_in(annotation)
        field = owner.model_fields.get(str(part)) if owner else None
        annotation = field.annotation if field else None
    return parts, owner, annotation
