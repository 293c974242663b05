"""The reference of all configuration keys, made from the tree itself."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from opentinker.config.strict_yaml import dump_yaml
from opentinker.config.tree import RunConfig, Window, is_named, settings_in
from opentinker.config.values import Schedule, Settings


def describe_config() -> str:
    """One line a key, with its default and meaning. It is YAML: `NAME` stands where you choose the name."""
    return "\n".join(_lines(RunConfig, ""))


def _lines(model: type[Settings], indent: str) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        inner = settings_in(field.annotation)
        if inner in (Schedule, Window):  # written as one value
            inner = None
        lines.append(_line(f"{indent}{name}:", field, inner))
        if inner is not None:
            deeper = indent + "  "
            if is_named(field.annotation):
                lines.append(f"{deeper}NAME:")
                deeper += "  "
            lines += _lines(inner, deeper)
    return lines


def _line(head: str, field: FieldInfo, inner: type[Settings] | None) -> str:
    notes = [field.description or ""]
    choices = _choices(field.annotation)
    if len(choices) > 1:
        notes.append(f"one of {', '.join(choices)}")
    if field.is_required():
        notes.insert(0, "required")
    elif inner is None:
        head += f" {_show(field.default)}"
    elif field.default is None:
        notes.insert(0, "null unless given")
    return f"{head}  # {'; '.join(note for note in notes if note)}"


def _choices(annotation: Any) -> list[str]:
    """The words a field allows, where it allows some."""
    if get_origin(annotation) is Literal:
        return [word for word in get_args(annotation) if isinstance(word, str)]
    return [word for inner in get_args(annotation) for word in _choices(inner)]


def _show(value: Any) -> str:
    if isinstance(value, Schedule):
        return str(value.start) if value.start == value.end else f"{{start: {value.start}, end: {value.end}}}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_show, value)) + "]"
    return "{}" if value == {} else dump_yaml(value).removesuffix("...\n").strip()
