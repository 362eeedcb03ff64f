"""A real Chromium that a test drives by its DevTools protocol: keys, clicks, sizes, themes, pictures."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support.browser import browser

KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    " ": 32,
    "ArrowDown": 40,
}
"""Keys that are no letters, with their codes."""
# What is clicked by its words: the smallest visible control that has them.
FIND = """
(words) => [...document.querySelectorAll("button, a, summary, label, option")]
  .filter((one) => one.getClientRects().length && (one.innerText || one.textContent).trim().includes(words))
  .sort((a, b) => a.textContent.length - b.textContent.length)[0]
"""

# Whether it is where it was two frames ago, and nothing covers it.
STILL = """
(async () => {
  const place = () => {
    const at = FIND.getBoundingClientRect();
    return [at.x + at.width / 2, at.y + at.height / 2];
  };
  const before = place();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const [x, y] = place();
  const there = document.elementFromPoint(x, y);
  return x === before[0] && y === before[1] && !!there && (FIND.contains(there) || there.contains(FIND));
})()
"""


class Chromium:
    """One page of a browser.

    Args:
        socket: To the page's DevTools.

    Attributes:
        errors: What the page has said is wrong: exceptions and errors on its console, in their order.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._last = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            said = json.loads(self._socket.recv(timeout=60))
            if said.get("id") == self._last:
                assert "error" not in said, f"{method}: {said['error']}"
                return dict(said["result"])
            self._note(said)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(
                " ".join(str(one.get("value", one.get("description"))) for one in params["args"])
            )

    def js(self, expression: str) -> Any:
        """The value of an expression in the page; of a promise what it becomes."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def until(self, expression: str, what: str = "", timeout_s: float = 30.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.js(f"(async () => !!(await ({expression})))()"):
            assert time.monotonic() < deadline, (
                f"{what or expression} after {timeout_s:.0f} s: {self.text()[:1500]}"
            )
            time.sleep(0.1)

    def open(self, url: str) -> None:
        """Go to an address, and wait until its document is loaded."""
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def reload(self) -> None:
        """Load the page again, and wait until that has happened."""
        self.js("window.before = true")
        self.call("Page.reload")
        self.until("window.before === undefined && document.readyState === 'complete'")

    def text(self) -> str:
        """All that a reader sees of the page."""
        return str(self.js("document.body ? document.body.innerText : ''"))

    def shows(self, words: str, otherwise: str = "", timeout_s: float = 30.0) -> None:
        """Wait until the page shows some words; `otherwise` is said where it does not."""
        self.until(
            f"!!document.body && document.body.innerText.includes({json.dumps(words)})",
            f"{otherwise or 'the page'}: {words!r} is not shown",
            timeout_s,
        )

    def click(self, words: str, within: str = "body") -> None:
        """Click what has these words, with the mouse, once it is there."""
        place = f"document.querySelector({json.dumps(within)})"
        find = f"({FIND.replace('document', place)})({json.dumps(words)})"
        self.until(f"{place} && {find}", f"nothing says {words!r}")
        self.js(f"{find}.scrollIntoView({{ block: 'center' }})")
        self.until(STILL.replace("FIND", find), f"{words!r} does not stand still")
        x, y = self.js(
            f"(() => {{ const at = {find}.getBoundingClientRect();"
            " return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key and let it go."""
        more = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        for kind in ("keyDown", "keyUp"):
            given = more if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code="Space" if key == " " else key,
                windowsVirtualKeyCode=KEYS[key],
                modifiers=8 if shift else 0,
                **given,
            )

    def type(self, text: str) -> None:
        """Write into what has the focus."""
        self.call("Input.insertText", text=text)

    def focus(self) -> str:
        """What has the focus, by its label or its words."""
        return str(
            self.js(
                "(() => { const one = document.activeElement; return one.getAttribute('aria-label')"
                " || one.labels?.[0]?.innerText || one.innerText || one.tagName; })()"
            )
        ).strip()

    def size(self, width: int, height: int = 900) -> None:
        """Make the window as large as that."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def theme(self, theme: str) -> None:
        """Airflow's theme, `light` or `dark`, from the next page on."""
        self.call(
            "Page.addScriptToEvaluateOnNewDocument",
            source=f"localStorage.setItem('theme', {json.dumps(theme)})",
        )

    def picture(self, path: Path) -> None:
        """Keep what the window shows."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


@contextmanager
def chromium(profile: Path, width: int = 1440, height: int = 900) -> Iterator[Chromium]:
    """A browser without a window, and a page in it, until the end of the `with`.

    Args:
        profile: Its folder; a new one is a new person who is not signed in.
        width: Of the window, in pixels.
        height: Likewise.
    """
    with subprocess.Popen(
        [
            browser(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--remote-debugging-port=0",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            with connect(_page(profile, process), max_size=None, open_timeout=60) as socket:
                page = Chromium(socket)
                page.size(width, height)
                yield page
        finally:
            process.terminate()


def _page(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """The address of the first page's DevTools, once the browser listens."""
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, "the browser has ended"
        assert time.monotonic() < deadline, "the browser does not listen after 60 s"
        try:
            port = (profile / "DevToolsActivePort").read_text(encoding="utf-8").split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=5) as answer:
                pages = [one for one in json.loads(answer.read()) if one["type"] == "page"]
            return str(pages[0]["webSocketDebuggerUrl"])
        except (OSError, IndexError, ValueError):
            time.sleep(0.1)
