"""An environment in an interpreter of its own: private globals, true parallelism, and it can be killed."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from opentinker.envs.world import World
from opentinker.errors import ConfigError, EnvError, error_text, message_text

_BOOT = """
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from opentinker.envs.process import serve
serve(int(sys.argv[1]))
"""
_GRACE = 2.0
"""Seconds between the end of the conversation and the kill."""


class RemoteTraceback(Exception):
    """The traceback of an error in a child process, as text; it stands as the `__cause__` of the error here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class RemoteError(Exception):
    """An environment in a child process raised; the message is the original's type and text."""


class ProcessEnded(EnvError):
    """The child process is gone, and the environment with it."""


class RemoteWorld:
    """A `World` in a child process, spoken to over a socket. POSIX only.

    The child is a fresh interpreter with this one's `sys.path`; it never imports the `__main__` of its parent. It leads a
    session of its own: a Ctrl-C in the terminal reaches the parent alone, a kill also reaches what the environment started.

    Args:
        build: returns the environment; it is pickled.

    Raises:
        ConfigError: it cannot be pickled.
    """

    def __init__(self, build: Callable[[], Any]) -> None:
        try:
            self._task = pickle.dumps(build)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                "process isolation needs an environment that can be named: use 'package.module:Class' and plain arguments "
                f"({error})"
            ) from error
        here, there = socket.socketpair()
        with there:
            command = [sys.executable, "-c", _BOOT, str(there.fileno()), json.dumps(sys.path)]
            self._process = subprocess.Popen(
                command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._pipe = Connection(here.detach())

    def ask(self, op: str, args: tuple[Any, ...]) -> Any:
        """Calls a method of the child's `World`.

        Raises:
            RemoteError: the method raised; the cause holds the traceback's text.
            ConfigError: the child raised one.
            ProcessEnded: the child is gone.
        """
        if self._pipe.closed:
            if op == "close":
                return None
            raise ProcessEnded("its process has ended")
        try:
            self._pipe.send_bytes(self._task if op == "open" else pickle.dumps((op, args)))
            kind, value, text = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            self._end()
            raise ProcessEnded(f"the environment's process ended by itself with code {self._process.returncode}") from error
        if op == "close":
            self._end()
        if kind == "error":
            raise RemoteError(value) from RemoteTraceback(text)
        if kind == "config":
            raise ConfigError(value) from RemoteTraceback(text)
        return value

    @property
    def ended(self) -> bool:
        """Whether the child is gone; asked from any thread."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends the child and all it has started, at once, from any thread."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self) -> None:
        self._pipe.close()
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()


def serve(fd: int) -> None:
    """The child's main function: makes the environment of the first message, then answers one call after another."""
    pipe = Connection(fd)
    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(pipe, messages), daemon=True).start()
    task = messages.get()
    if task is None:
        return
    world = World(lambda: _loaded(task)())
    pipe.send_bytes(_answer(world.open))
    while (message := messages.get()) is not None:
        pipe.send_bytes(_answer(functools.partial(_ask, world, message)))


def _loaded(task: bytes) -> Callable[[], Any]:
    try:
        build: Callable[[], Any] = pickle.loads(task)
    except (AttributeError, ImportError) as error:
        raise ConfigError(
            f"the environment cannot be imported in a process of its own: {error}; put its class into a module on sys.path"
        ) from error
    return build


def _read(pipe: Connection, messages: queue.SimpleQueue[bytes | None]) -> None:
    """Feeds the main thread. When the parent is gone the child goes too, even if the environment hangs."""
    try:
        while True:
            messages.put(pipe.recv_bytes())
    except (EOFError, OSError):
        messages.put(None)
        time.sleep(_GRACE / 2)
        os._exit(1)


def _ask(world: World, message: bytes) -> Any:
    op, args = pickle.loads(message)
    return world.ask(op, args)


def _answer(call: Callable[[], Any]) -> bytes:
    try:
        return pickle.dumps(("ok", call(), ""))
    except BaseException as error:  # SystemExit too: the parent waits for an answer
        kind = "config" if isinstance(error, ConfigError) else "error"
        message = message_text(error) if kind == "config" else error_text(error)
        return pickle.dumps((kind, message, traceback.format_exc()))
