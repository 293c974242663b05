"""A browser without a window, driven over its own pipe: no driver, no port, nothing left behind."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE_SECONDS = 60

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root has none, and it opens our own pages only
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--mute-audio",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """The path of a Chromium or Chrome."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One page of one browser, spoken to by the DevTools protocol: JSON objects that end with a null character.

    Attributes:
        path: of the program.
        folder: its home, profile and scratch; removed at the end.
        events: every event of the page so far, as the browser told them.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        pipes = [os.pipe(), os.pipe()]  # commands to the browser; answers from it
        reads, writes = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (pipes[0][0], pipes[1][1]))
        for end in (pipes[0][0], pipes[1][1]):
            os.close(end)
        # short, for it holds a socket, and names of sockets are: a test's own folder may be too deep
        self.folder = Path(tempfile.mkdtemp(prefix="browser-", dir="/tmp" if os.access("/tmp", os.W_OK) else None))
        environment = {**os.environ, "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        for name in [name for name in environment if name.startswith(("XDG_", "DBUS_"))]:
            del environment[name]
        start = f'exec "$@" 3<&{reads} 4>&{writes}'  # where the browser looks for its pipe
        self._process = subprocess.Popen(
            ["bash", "-c", start, "bash", path, *FLAGS, f"--user-data-dir={self.folder / 'profile'}", "about:blank"],
            env=environment,
            pass_fds=(reads, writes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(reads)
        os.close(writes)
        self._out, self._in = pipes[0][1], pipes[1][0]
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """Ends the browser and everything it started."""
        try:
            self._session = None
            self.send("Browser.close")
            self._process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # its helpers are of its group
        except ProcessLookupError:
            pass
        self._process.wait(10)
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method: str, **params: Any) -> Any:
        """A command and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], PATIENCE_SECONDS)[0]:
                raise TimeoutError(f"the browser said nothing for {PATIENCE_SECONDS} seconds")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise EOFError("the browser ended")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        if "method" in answer:
            self.events.append(answer)
        return answer

    def eval(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 20) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.eval(f"(v => v instanceof Node ? true : v)({script})")):
            assert time.monotonic() < deadline, f"never true: {script}\n{self.eval('document.body.innerText')[:2000]}"
            time.sleep(0.02)
        return value

    def open(self, file: Path, hash: str = "") -> float:
        """Opens a page of ours and gives the seconds until it is ready."""
        self.send("Page.navigate", url="about:blank")
        self.events.clear()
        start = time.monotonic()
        self.send("Page.navigate", url=file.resolve().as_uri() + hash)
        self.wait("document.documentElement && document.documentElement.dataset.ready === 'yes'")
        return time.monotonic() - start

    def size(self, width: int, height: int) -> None:
        """The size of the window, in CSS pixels."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, on: bool) -> None:
        """What the user prefers."""
        value = "dark" if on else "light"
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def centre(self, selector: str) -> tuple[float, float]:
        """Where an element is, scrolled into sight."""
        self.eval(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'nearest'}})")
        middle = "(b => [b.x + b.width / 2, b.y + b.height / 2])"
        x, y = self.eval(f"{middle}(document.querySelector({json.dumps(selector)}).getBoundingClientRect())")
        return x, y

    def hover(self, selector: str) -> None:
        """Moves the pointer over an element."""
        x, y = self.centre(selector)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Presses and releases the first button over an element."""
        x, y = self.centre(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def settle(self) -> None:
        """Waits until the page has drawn what the last event led to."""
        self.eval("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def key(self, name: str) -> None:
        """A key: one character, or a name such as `ArrowDown`."""
        text = {"text": name} if len(name) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=name, code=name)
        self.settle()

    def type(self, selector: str, text: str) -> None:
        """Writes into a field."""
        self.eval(f"document.querySelector({json.dumps(selector)}).focus()")
        self.send("Input.insertText", text=text)

    def text(self, selector: str) -> str:
        """What an element shows; empty where there is none."""
        return str(self.eval(f"(document.querySelector({json.dumps(selector)}) || {{innerText: ''}}).innerText"))

    def picture(self, file: Path) -> Path:
        """A PNG of the window."""
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))
        return file

    def complaints(self) -> list[str]:
        """Errors, warnings and exceptions of the page since it was opened."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
                found.append(str(params["entry"]["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error", "assert"):
                found.append(str(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Every address that the page asked for, itself included."""
        return [event["params"]["request"]["url"] for event in self.events if event["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Chromium]:
    """One browser for all tests of a process; skips where there is none."""
    path = find_browser()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH (on Debian: apt-get install chromium)")
    browser = Chromium(path)
    yield browser
    browser.close()


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Chromium]:
    """The browser at the size of a desktop; no page of ours may complain or ask a network for anything."""
    chromium.size(1280, 800)
    chromium.dark(False)
    chromium.events.clear()
    yield chromium
    assert chromium.complaints() == []
    assert [address for address in chromium.requests() if not address.startswith(("file:", "about:", "data:"))] == []
