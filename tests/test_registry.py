import math

import pytest

from opentinker.errors import ConfigError, DuplicateId, UnknownId
from opentinker.registry import Registry, load_object


def test_what_is_registered_is_found():
    registry = Registry("game")
    registry.register("b", 1)
    registry.register("a", 2)
    assert (registry.get("a"), registry.get("b")) == (2, 1)
    assert list(registry) == ["a", "b"]
    assert "a" in registry and "c" not in registry


def test_a_text_is_imported_on_first_use_only(tmp_path, monkeypatch):
    (tmp_path / "ot_lazy_probe.py").write_text("LOADS = []\nclass Game:\n    inner = 3\nthing = Game()\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry("game")
    registry.register("lazy", "ot_lazy_probe:thing")
    registry.register("broken", "ot_no_such_module:thing")
    assert list(registry) == ["broken", "lazy"]  # looking imports nothing
    assert registry.get("lazy").inner == 3
    assert registry.get("lazy") is registry.get("lazy")
    assert load_object("ot_lazy_probe:Game.inner") == 3
    with pytest.raises(ConfigError, match="cannot import 'ot_no_such_module'"):
        registry.get("broken")


def test_a_second_entry_of_an_id_is_refused_and_changes_nothing():
    registry = Registry("game")
    registry.register("a", 1)
    with pytest.raises(DuplicateId, match="game 'a' is already registered"):
        registry.register("a", 2)
    assert registry.get("a") == 1


def test_an_unknown_id_suggests_near_ones():
    registry = Registry("game")
    registry.register("kuhn_poker", 1)
    with pytest.raises(UnknownId, match=r"^unknown game 'kuhn_pokr'; did you mean 'kuhn_poker'\? \(or module:Class\)$"):
        registry.get("kuhn_pokr", "or module:Class")


@pytest.mark.parametrize("path", ["", "math", ":sqrt", "math:", "math.:sqrt", ".math:sqrt", "math:a..b", "a..b:c"])
def test_a_path_has_a_module_and_a_name(path):
    with pytest.raises(ConfigError, match="is not of the form 'package.module:Name'"):
        load_object(path)


def test_what_a_module_lacks_is_told_with_a_near_name():
    assert load_object("math:sqrt") is math.sqrt
    with pytest.raises(ConfigError, match=r"module 'math' has no 'sqr' \(asked for as 'math:sqr'\); did you mean 'sqrt'\?"):
        load_object("math:sqr")
    with pytest.raises(ConfigError, match="module 'os' has no 'path.jion'.*did you mean 'join'"):
        load_object("os:path.jion")
    with pytest.raises(ConfigError, match=r"no 'zzzzzz' \(asked for as 'math:zzzzzz'\)$"):
        load_object("math:zzzzzz")


def test_a_module_that_cannot_be_read_is_told_with_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "ot_broken_module.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot import 'ot_broken_module'.*SyntaxError"):
        load_object("ot_broken_module:f")
