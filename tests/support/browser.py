"""A headless Chromium, driven over WebDriver's HTTP by nothing but the standard library.

with Browser(width=1400, height=900) as browser:
    browser.open(page, "tab=graph")
    browser.click("[data-section='3']")
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

# Nothing here reaches a network: the pages are files.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-color-profile=srgb", "--lang=en"),
)
MISSING = next(
    (
        f"{program} is not installed (Debian: apt-get install chromium chromium-driver)"
        for program in ("chromium", "chromedriver")
        if shutil.which(program) is None
    ),
    "",
)
"""Why there is no browser; empty if there is one."""
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of references in WebDriver's JSON
_STARTING = 60.0  # seconds


class Browser:
    """A window of its own, with an empty profile that goes with it."""

    def __init__(self, width: int = 1400, height: int = 900) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="browser")
        log = Path(self._profile.name) / "driver.log"
        self._driver = subprocess.Popen(
            ["chromedriver", "--port=0", f"--log-path={log}"], stdout=subprocess.PIPE, text=True
        )
        self._base = f"http://localhost:{self._port()}/session"
        flags = (
            *FLAGS,
            f"--user-data-dir={self._profile.name}/data",
            f"--window-size={width},{height}",
        )
        wanted = {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._post("", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/{made['sessionId']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait()
            assert self._driver.stdout is not None
            self._driver.stdout.close()
            self._profile.cleanup()

    def _port(self) -> int:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip(".\n").rpartition(" ")[2])
        raise RuntimeError("chromedriver did not start")

    def open(self, page: Path, fragment: str = "") -> None:
        """Load `page` anew, with what stands behind its #; complaints so far are forgotten."""
        self._post("/url", {"url": "about:blank"})
        self.complaints()
        self._post("/url", {"url": f"{page.as_uri()}#{fragment}"})

    def run(self, script: str, *arguments: object) -> Any:
        """Return what the body of a JavaScript function returns; WebDriver is above the policy."""
        return self._post("/execute/sync", {"script": script, "args": arguments})

    def text(self, selector: str) -> str:
        """Return the text of all elements that `selector` means, as it is shown."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".map(e => e.innerText ?? e.textContent)"  # what is drawn has no innerText
        )
        return "\n".join(self.run(script, selector))

    def count(self, selector: str) -> int:
        """Return how many elements there are."""
        return int(self.run("return document.querySelectorAll(arguments[0]).length", selector))

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + _STARTING
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < end, f"still not so: {condition}"
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Click in the middle of the first element, as the mouse does."""
        self._post(f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type into an element."""
        self._post(f"/element/{self._find(selector)}/value", {"text": text})

    def drag(self, selector: str, x: int, y: int) -> None:
        """Press in the middle of an element, move and let go."""
        start = {"type": "pointerMove", "origin": {_ELEMENT: self._find(selector)}, "x": 0, "y": 0}
        move = {"type": "pointerMove", "origin": "pointer", "x": x, "y": y, "duration": 50}
        steps = [
            start,
            {"type": "pointerDown", "button": 0},
            move,
            {"type": "pointerUp", "button": 0},
        ]
        self._post("/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": steps}]})

    def wheel(self, selector: str, down: int) -> None:
        """Turn the wheel over the middle of an element."""
        step = {"type": "scroll", "origin": {_ELEMENT: self._find(selector)}, "x": 0, "y": 0}
        turn = {**step, "deltaX": 0, "deltaY": down, "duration": 50}
        self._post("/actions", {"actions": [{"type": "wheel", "id": "wheel", "actions": [turn]}]})

    def prefer(self, scheme: str) -> None:
        """Let the system prefer `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._post(
            "/goog/cdp/execute",
            {"cmd": "Emulation.setEmulatedMedia", "params": {"features": [feature]}},
        )

    def resize(self, width: int, height: int) -> None:
        """Make the window as large as that."""
        self._post("/window/rect", {"width": width, "height": height})

    def complaints(self) -> list[str]:
        """Return what the console has been told since it was last asked."""
        return [entry["message"] for entry in self._post("/se/log", {"type": "browser"})]

    def screenshot(self) -> bytes:
        """Return the window as a PNG."""
        return base64.b64decode(self._call("GET", "/screenshot"))

    def _find(self, selector: str) -> str:
        found = self._post("/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def _post(self, path: str, body: object) -> Any:
        return self._call("POST", path, body)

    def _call(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self._base + path,
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=_STARTING) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                said = json.load(error)["value"]
            raise RuntimeError(f"{said['error']}: {said['message'].splitlines()[0]}") from None
