"""The reference of all configuration keys, made from the tree itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from opentinker.config.strict_yaml import dump_yaml
from opentinker.config.tree import RunConfig, Window, is_named, settings_in
from opentinker.config.values import Schedule, Settings


def describe_config() -> str:
    """One line a key, with its default and meaning. It is YAML: `NAME` stands where you choose the name."""
    return "\n".join(_lines(RunConfig, ""))


PAGE = """# Configuration

Made from the tree itself by `opentinker config --markdown`; `opentinker config` prints the same as one YAML.

A run is one YAML file, a mapping in Python or both of these with `key.path=value` overrides. Unknown keys, wrong types and
settings that do not fit together are told before anything starts, each with the nearest valid key. `NAME` stands where you
choose the name. `required` keys have no default; a section that is null unless given is not there until you write it.
"""


def configuration_page() -> str:
    """The same as a page of Markdown: a table for each section, named by its path."""
    return PAGE + "".join(_sections(RunConfig, "")) + "\n"


def _sections(model: type[Settings], path: str) -> Iterator[str]:
    """This section, then those within it, depth first."""
    plain = {name: field for name, field in model.model_fields.items() if _inner(field) is None}
    if plain:
        yield f"\n## {path or 'The run'}\n\n| key | default | meaning |\n|---|---|---|"
        yield "".join(_row(name, field) for name, field in plain.items()) + "\n"
    for name, field in model.model_fields.items():
        inner = _inner(field)
        if inner is None:
            continue
        deeper = f"{path}.{name}".lstrip(".") + (".NAME" if is_named(field.annotation) else "")
        first, *rest = _sections(inner, deeper)
        title, _, table = first.lstrip("\n").partition("\n\n")
        yield f"\n{title}\n\n{_capital(_meaning(field, section=True))}.\n\n{table}"
        yield from rest


def _row(name: str, field: FieldInfo) -> str:
    default = "" if field.is_required() else f"`{_show(field.default)}`"
    return f"\n| `{name}` | {default} | {_meaning(field)} |"


def _meaning(field: FieldInfo, section: bool = False) -> str:
    return "; ".join(_notes(field, section)).replace("|", "\\|").replace("*", "\\*")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _inner(field: FieldInfo) -> type[Settings] | None:
    """The section that a key opens; schedules and windows are written as one value."""
    inner = settings_in(field.annotation)
    return None if inner in (Schedule, Window) else inner


def _lines(model: type[Settings], indent: str) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        inner = _inner(field)
        lines.append(_line(f"{indent}{name}:", field, inner))
        if inner is not None:
            deeper = indent + "  "
            if is_named(field.annotation):
                lines.append(f"{deeper}NAME:")
                deeper += "  "
            lines += _lines(inner, deeper)
    return lines


def _line(head: str, field: FieldInfo, inner: type[Settings] | None) -> str:
    if inner is None and not field.is_required():
        head += f" {_show(field.default)}"
    return f"{head}  # {'; '.join(_notes(field, inner is not None))}"


def _notes(field: FieldInfo, section: bool) -> list[str]:
    """Whether it must be given, what it means, which words it takes."""
    notes = ["required"] if field.is_required() else ["null unless given"] if section and field.default is None else []
    choices = [] if settings_in(field.annotation) else _choices(field.annotation)  # else the words are not all there is
    return [*notes, field.description or "", *([f"one of {', '.join(choices)}"] if len(choices) > 1 else [])]


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
