"""A real Chromium, driven by its DevTools protocol: keys, clicks, sizes, themes, pictures."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from demo.job import WaitedTooLongError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
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

# All pixels of a picture, from its top.
PIXELS = """
(async () => {
  const image = await createImageBitmap(await (await fetch(DATA)).blob());
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  const reader = new FileReader();
  const read = new Promise((done) => { reader.onload = done; });
  reader.readAsDataURL(new Blob([canvas.getImageData(0, 0, width, height).data]));
  await read;
  return [width, height, reader.result.split(",")[1]];
})()
"""


class BrowserError(WaitedTooLongError):
    """There is no browser, or what a page should show is not there; the message says which."""


def browser() -> str:
    """The path of a Chromium.

    Raises:
        BrowserError: None is installed.
    """
    found = next((path for name in BROWSERS if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise BrowserError("This needs a browser: install it (Debian: apt-get install chromium).")
    return found


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
                if "error" in said:
                    raise BrowserError(f"{method}: {said['error']}")
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
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression[:500]}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression: str, what: str = "", timeout_s: float = 30.0) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.js(f"(async () => !!(await ({expression})))()"):
            if time.monotonic() > deadline:
                raise BrowserError(f"{what or expression} after {timeout_s:.0f} s: {self.text()[:1500]}")
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
        self.click_on(f"({place} && ({FIND.replace('document', place)})({json.dumps(words)}))", words)

    def click_on(self, find: str, what: str, timeout_s: float = 30.0) -> None:
        """Click what an expression finds, with the mouse, once it is there and can be used.

        Args:
            find: The expression.
            what: What it is, as an error says it.
            timeout_s: How long it is waited for.
        """
        self.until(f"{find} && !{find}.disabled", f"there is no {what!r}", timeout_s)
        self.js(f"{find}.scrollIntoView({{ block: 'center' }})")
        self.until(STILL.replace("FIND", find), f"{what!r} does not stand still")
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

    @contextmanager
    def window(self, width: int = 1440, height: int = 900) -> Iterator[Chromium]:
        """Another window of the same browser, so for the same person, until the end of the `with`."""
        target = self.call("Target.createTarget", url="about:blank", newWindow=True)["targetId"]
        host, port = self._socket.remote_address[:2]
        with _devtools(f"ws://{host}:{port}/devtools/page/{target}") as socket:
            page = Chromium(socket)
            page.size(width, height)
            yield page

    def picture(self, clip: Mapping[str, float] | None = None) -> bytes:
        """What the window shows, as PNG.

        Args:
            clip: Only this part of it: `x`, `y`, `width` and `height` in pixels.
        """
        part = {} if clip is None else {"clip": {**clip, "scale": 1}}
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", **part)["data"])

    def pixels(self, png: bytes) -> tuple[int, int, bytes]:
        """Width and height of a picture, and four bytes of each pixel: red, green, blue, opacity.

        The page that was open is left: another one may forbid its scripts to read a picture.
        """
        self.open("about:blank")
        data = json.dumps(f"data:image/png;base64,{base64.b64encode(png).decode()}")
        width, height, said = self.js(PIXELS.replace("DATA", data))
        return int(width), int(height), base64.b64decode(said)


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
            with _devtools(_page(profile, process)) as socket:
                page = Chromium(socket)
                page.size(width, height)
                yield page
        finally:
            process.terminate()


def _devtools(address: str) -> ClientConnection:
    """A connection that stays although what the page says is not read for minutes."""
    return connect(address, max_size=None, open_timeout=60, ping_interval=None)


def _page(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """The address of the first page's DevTools, once the browser listens."""
    deadline = time.monotonic() + 60
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            raise BrowserError("the browser has ended, or does not listen after 60 s")
        try:
            port = (profile / "DevToolsActivePort").read_text(encoding="utf-8").split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=5) as answer:
                pages = [one for one in json.loads(answer.read()) if one["type"] == "page"]
            return str(pages[0]["webSocketDebuggerUrl"])
        except (OSError, IndexError, ValueError):
            time.sleep(0.1)
