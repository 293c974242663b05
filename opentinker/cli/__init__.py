"""The command. Bad input ends with one clear message and exit code 2; `--debug` shows the traceback.

One file per command; each imports what it needs when it is called, so that `--help` costs nothing.
"""

from opentinker.cli import envs, eval, export, play, reference, resume, runs, show, train
from opentinker.cli.app import main

__all__ = ["envs", "eval", "export", "main", "play", "reference", "resume", "runs", "show", "train"]
