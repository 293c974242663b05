import re
import subprocess
import sys
from pathlib import Path

from opentinker.config import RunConfig, Schedule, Window, configuration_page, describe_config, parse_yaml
from opentinker.config.tree import settings_in

ROOT = Path(__file__).parents[2]


def expected(model):
    """What the reference should hold, from the tree itself."""
    tree = {}
    for name, field in model.model_fields.items():
        inner = settings_in(field.annotation)
        if inner in (None, Schedule, Window):
            default = None if field.is_required() else field.default
            if isinstance(default, Schedule):
                assert default.start == default.end
                default = default.start
            tree[name] = list(default) if isinstance(default, tuple) else default
        else:
            tree[name] = {"NAME": expected(inner)} if name in ("agents", "policies") else expected(inner)
    return tree


def test_the_reference_is_yaml_and_holds_every_key_with_its_default():
    assert parse_yaml(describe_config()) == expected(RunConfig)


def test_every_line_but_the_places_for_names_says_what_it_means():
    lines = describe_config().splitlines()
    assert [line for line in lines if "  # " not in line] == ["  NAME:", "  NAME:"]


def test_what_must_be_given_is_marked():
    marked = [line.split(":")[0].strip() for line in describe_config().splitlines() if "# required" in line]
    assert marked == ["env", "id", "coordinator", "id", "agents", "model", "rank", "player", "steps", "figure", "goal"]
    page = [key for _, key, default in rows(configuration_page()) if not default]
    assert page == ["id", "id", "model", "rank", "player", "steps", "figure", "goal"]


def test_what_is_absent_unless_given_is_marked():
    marked = [line.split(":")[0].strip() for line in describe_config().splitlines() if "# null unless given" in line]
    assert marked == ["adapter", "warm_start", "keep_best"]


def test_the_configuration_needs_nothing_heavy():
    code = (
        "import sys, opentinker.config;"
        "print([name for name in ('torch', 'verl', 'ray', 'numpy', 'gymnasium', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def rows(page):
    """(section, key, default) of every line of the page's tables."""
    found, section = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| `"):
            key, default, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|")))
            found.append((section, key.strip("`"), default.strip("`")))
    return found


def leaves(tree):
    """Keys that hold a value; a section is a mapping that holds keys."""
    return sum(leaves(value) if isinstance(value, dict) and value else 1 for value in tree.values())


def test_the_page_holds_every_key_with_its_default():
    found = rows(configuration_page())
    assert len(set(found)) == len(found) == leaves(expected(RunConfig))
    for section, key, default in found:
        node = expected(RunConfig)
        for name in [] if section == "The run" else section.split("."):
            node = node[name]
        assert node[key] == (parse_yaml(default) if default else None), (section, key)


def test_the_page_in_docs_is_this_one():
    assert (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8") == configuration_page(), (
        "run: opentinker config --markdown > docs/configuration.md"
    )


def test_the_command_prints_the_page():
    command = [sys.executable, "-m", "opentinker.cli", "config", "--markdown"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == configuration_page()
