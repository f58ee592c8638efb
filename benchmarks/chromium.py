"""Drive a local Chromium over a pipe: no port is opened, and nothing is installed.

`CHROMIUM` names the program where it is not on the path.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--remote-debugging-pipe"),
)
PATIENCE_S = 120
"""Seconds to wait for an answer."""
COMMAND_FD, ANSWER_FD = 3, 4
"""Where Chromium reads commands and writes answers."""
KEY_CODES = {
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "ArrowLeft": 37,
    "ArrowRight": 39,
    "Tab": 9,
    "/": 191,
}


def find_chromium() -> str | None:
    """Return the program. None if there is none."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


class Tab:
    """The one tab of a browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._unread, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        """What the browser told meanwhile."""
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            if not select.select([self._answers], [], [], PATIENCE_S)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._answers, 1 << 20)
            if not data:
                raise EOFError("Chromium ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\0")
        return json.loads(line)

    def run(self, script: str) -> Any:
        """Evaluate a script in the page. A promise is awaited."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"].get("exception", done)))
        return done["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until a condition holds in the page."""
        end = time.monotonic() + PATIENCE_S
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition}: {self.problems()}")
            # Between two questions the page may run.
            self.run("new Promise((resolve) => { setTimeout(resolve, 20); })")

    def open(self, page: Path) -> None:
        """Open a page of `trimtab inspect`, and wait for its first screen."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait("document.body && document.body.dataset.ready === 'yes'")

    def show(self, fragment: str) -> None:
        """Go to a place of the page, such as `call=3`, and wait for it."""
        place = json.dumps(fragment)
        self.run(f"location.hash = {place}")
        self.wait(f"document.body.dataset.shown === ({place} || 'overview')")

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def use_scheme(self, scheme: str) -> None:
        """Choose `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def click(self, selector: str) -> None:
        """Click on the first element that matches, where it is on the screen."""
        place = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); "
            "one.scrollIntoView({block: 'center'}); const box = one.getBoundingClientRect(); "
            "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=place[0],
                y=place[1],
                button="left",
                clickCount=1,
            )

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            code = KEY_CODES.get(key) or (ord(key.upper()) if len(key) == 1 else 0)
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            down = {"type": "keyDown", "key": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", **down, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def cpu_ms(self) -> float:
        """Return the CPU time of the page's thread until now, in milliseconds."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return 1000 * next(one["value"] for one in metrics if one["name"] == "TaskDuration")

    def problems(self) -> list[str]:
        """Return what the page did wrong: errors, and messages about its policy."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        return [
            json.dumps(event["params"]) for event in self.events if event.get("method") in kinds
        ]

    def requests(self) -> list[str]:
        """Return the addresses outside the page that it asked for."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(("file:", "data:", "about:"))]


@contextmanager
def open_tab(program: str) -> Generator[Tab]:
    """Start a Chromium with a profile of its own, and end it."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    # Away from the two numbers that the browser uses.
    commands, answers = (_move_up(one) for one in (commands, answers))

    def connect() -> None:
        os.dup2(commands, COMMAND_FD)
        os.dup2(answers, ANSWER_FD)

    with tempfile.TemporaryDirectory(
        prefix="trimtab-chromium-", ignore_cleanup_errors=True
    ) as folder:
        process = subprocess.Popen(  # noqa: S603 - the browser of this machine
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=connect,  # noqa: PLW1509 - no thread runs yet
            pass_fds=(COMMAND_FD, ANSWER_FD, commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        try:
            yield Tab(to_browser, from_browser)
        finally:
            os.close(to_browser)
            os.close(from_browser)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _move_up(descriptor: int) -> int:
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20)
    os.close(descriptor)
    return moved
