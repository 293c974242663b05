"""`opentinker envs`: what there is, and whether an environment is sound."""

from __future__ import annotations

from opentinker.cli import main
from opentinker.envs.registry import _FAMILIES

BROKEN = "opentinker.testing.broken"


def _run(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_every_family_is_listed(capsys):
    assert _run("envs", "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"kuhn_poker", "gomoku", "negotiation"} <= {*lines}
    assert {family for family in _FAMILIES if any(line.startswith(f"{family}/") for line in lines)} == {*_FAMILIES}


def test_a_finding_is_told_with_its_cure_on_a_line_of_its_own(capsys):
    assert _run("envs", "check", f"{BROKEN}:NothingLegalAECEnv") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mask: when bob is to act, the action mask leaves no legal action; ")
    assert lines[-1] == f"{BROKEN}:NothingLegalAECEnv: 2 finding(s)"


def test_a_bound_for_steps(capsys):
    assert _run("envs", "check", f"{BROKEN}:SlowStepEnv") == 0
    assert _run("envs", "check", f"{BROKEN}:SlowStepEnv", "--slowest", "0.001") == 1
    assert "\nslow: step 3 took 0." in f"\n{capsys.readouterr().out}"
    assert _run("envs", "check", "kuhn_poker", "--slowest", "0") == 2
    assert "slowest must be above 0 seconds" in capsys.readouterr().err
    assert _run("envs", "check", "kuhn_poker", "--slowest", "soon") == 2
