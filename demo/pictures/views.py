"""Which pictures there are, and how each is taken."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from demo.pictures.chapters import FAILED, WELL
from demo.pictures.chromium import BrowserError, Chromium, chromium
from demo.pictures.png import small_png
from demo.places import ROOT
from demo.rest import Airflow
from demo.screen import Screen

WIDTH = 1280
HEIGHT = 760
"""Of a window, at first: it is made as high as what it shows, within a picture's limit."""
SESSION = "_token"
"""The cookie by which Airflow's UI is signed in."""
SAVEPOINT = "SAVEPOINT"
"""Stands in addresses for the newest savepoint of the job that is well."""
BOTH = ("light", "dark")
# The page scrolls inside of Airflow's own; a dialog is over it.
NEEDED = """
(() => {
  const page = document.querySelector(".sb-page");
  return page ? innerHeight - page.clientHeight + page.scrollHeight : innerHeight;
})()
"""
FOLDER, PROGRAMS = "/srv/demo", "/opt/streambank"
"""The folders of the demo and of the project are shown as these: pictures depend on no machine."""
RENAMED = """
(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const renamed = (text) => text.replaceAll(HOME, FOLDER).replaceAll(ROOT, PROGRAMS);
  while (texts.nextNode()) texts.currentNode.data = renamed(texts.currentNode.data);
})()
"""
DRAWN = "!document.querySelector('.sb-loading') && document.fonts.status === 'loaded'"
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass(frozen=True, slots=True)
class Picture:
    """One view of the page.

    Attributes:
        name: Of its file, between `page-` and its theme.
        view: Its address below that of the page; from Airflow's own root if it begins with `/`.
        shows: Words that are on it once it is drawn.
        click: Words of a button that is clicked then.
        then: Words that are shown after that.
        clip: A selector of what the picture is of; the whole window if empty.
        width: Of the window, in pixels.
        highest: The most pixels that the window is made high.
        themes: Airflow's.
    """

    name: str
    view: str
    shows: str
    click: str = ""
    then: str = ""
    clip: str = ""
    width: int = WIDTH
    highest: int = 1500
    themes: tuple[str, ...] = BOTH

    def file(self, theme: str) -> str:
        """The name of its file."""
        return f"page-{self.name}{'' if theme == self.themes[0] else f'-{theme}'}.png"


LIGHT, DARK = ("light",), ("dark",)
PICTURES = (
    Picture("list", "", FAILED),
    Picture("job", WELL, "Partitions by size", highest=1075),
    Picture("down", FAILED, "Restarts were given up", highest=900),
    Picture("log", f"{FAILED}/log", "FAILED_READ_FILE", highest=1100),
    Picture("savepoints", f"{WELL}/savepoints", "Time line"),
    Picture("savepoint", f"{WELL}/savepoints/{SAVEPOINT}", "Manifest"),
    Picture("events", f"{WELL}/events", "Restored", highest=640),
    Picture("recovery", f"{WELL}/recovery", "RTO"),
    Picture("repository", f"{WELL}/repository", "Replicas"),
    Picture("findings", WELL, "Problems ahead", clip=".sb-two", themes=LIGHT),
    Picture(
        "restore",
        f"{WELL}/savepoints/{SAVEPOINT}",
        "Manifest",
        click="Restore this savepoint",
        then="Show the plan",
        clip="dialog",
        themes=LIGHT,
    ),
    Picture("home", "/", "Streaming jobs", clip=".sb-home", themes=LIGHT),
    Picture("tab", f"/dags/{WELL}.run/plugin/streambank-job", "At a glance", highest=900, themes=LIGHT),
    Picture("narrow", FAILED, "Restarts were given up", width=400, highest=900, themes=DARK),
)


def take(airflow: Airflow, home: Path, into: Path, screen: Screen, only: Collection[str] = ()) -> list[Path]:
    """Take all pictures of the page of an Airflow.

    Args:
        airflow: It has the jobs of the chapters.
        home: The folder of everything that the jobs have.
        into: The folder that they are kept in.
        screen: Says which one is taken.
        only: Names of pictures; all if empty.

    Returns:
        The files.

    Raises:
        BrowserError: There is no browser, or a view does not show what it should.
        RestError: Airflow does not answer.
    """
    chosen = [one for one in PICTURES if one.name in only or not only]
    into.mkdir(parents=True, exist_ok=True)
    savepoint = _newest_savepoint(airflow)
    files: list[Path] = []
    with (
        screen.step(f"Pictures of {len(chosen)} views are taken") as step,
        tempfile.TemporaryDirectory(prefix="streambank-pictures-") as profile,
        chromium(Path(profile), WIDTH, HEIGHT) as page,
    ):
        page.call("Emulation.setScrollbarsHidden", hidden=True)
        page.call("Network.setCookie", name=SESSION, value=airflow.token, url=airflow.url)
        for one in chosen:
            for theme in one.themes:
                page.theme(theme)
                file = into / one.file(theme)
                file.write_bytes(_taken(page, one, airflow.url, savepoint, home))
                files.append(file)
                screen.say(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")
        step.detail = f"{len(files)} files in {into}"
    return files


def _taken(page: Chromium, one: Picture, url: str, savepoint: str, home: Path) -> bytes:
    """One picture, as PNG."""
    page.size(one.width, HEIGHT)
    view = one.view.replace(SAVEPOINT, savepoint)
    page.open(url + view if view.startswith("/") else f"{url}/plugin/streambank/{view}".rstrip("/"))
    page.shows(one.shows, one.name)
    page.until(DRAWN)
    if one.click:
        page.size(one.width, one.highest)
        page.click(one.click)
        page.shows(one.then, one.name)
        page.until(DRAWN)
    else:
        page.size(one.width, min(max(int(page.js(NEEDED)), HEIGHT // 2), one.highest))
    renamed = RENAMED
    for name, path in {"HOME": home, "FOLDER": FOLDER, "ROOT": ROOT, "PROGRAMS": PROGRAMS}.items():
        renamed = renamed.replace(name, json.dumps(str(path)))
    page.js(renamed)
    page.js(TWO_FRAMES)
    time.sleep(0.4)  # plots follow the size of their place, and colours fade over
    clip = page.js(_place(one.clip)) if one.clip else None
    own = [each for each in page.errors if "streambank" in each]
    if own:
        raise BrowserError(f"{one.name}: {own}")
    return small_png(*page.pixels(page.picture(clip)))


def _place(selector: str) -> str:
    """Where something is in the window, with a margin."""
    return f"""(() => {{
      const part = document.querySelector({json.dumps(selector)});
      part.scrollIntoView({{ block: "center" }});
      const at = part.getBoundingClientRect();
      const [x, y] = [Math.max(0, at.x - 16), Math.max(0, at.y - 16)];
      const width = Math.min(innerWidth - x, at.width + 32);
      return {{ x, y, width, height: Math.min(innerHeight - y, at.height + 32) }};
    }})()"""


def _newest_savepoint(airflow: Airflow) -> str:
    """The id of the newest verified savepoint of the job that is well."""
    return str(airflow.call("GET", f"/streambank/jobs/{WELL}")["line"]["savepoint"]["id"])
