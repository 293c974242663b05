import subprocess
import sys

from opentinker.config import RunConfig, Schedule, Window, describe_config, parse_yaml
from opentinker.config.tree import settings_in


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
    assert marked == ["env", "id", "coordinator", "id", "agents", "model", "rank", "player", "steps"]


def test_what_is_absent_unless_given_is_marked():
    marked = [line.split(":")[0].strip() for line in describe_config().splitlines() if "# null unless given" in line]
    assert marked == ["adapter", "warm_start"]


def test_the_configuration_needs_nothing_heavy():
    code = (
        "import sys, opentinker.config;"
        "print([name for name in ('torch', 'verl', 'ray', 'numpy', 'gymnasium', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
