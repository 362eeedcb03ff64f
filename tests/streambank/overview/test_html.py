"""The page as a file: whole by itself, with the data in it, and nothing in that is taken for markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from streambank.declaration.objectives import PROMISES
from streambank.overview.html import _module, _script, page_html
from streambank.sla.objectives import HISTORY
from tests.support.page import story
from tests.support.page.modules import FILE, SHARED, own_modules

EVIL = "</script><script>alert(1)</script><!--<script><img src=x onerror=alert(1)>\x1b[2J\u2028"


class Elements(HTMLParser):
    """The elements of a page, with their attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data


def page(name: str = "orders", **parts: Any) -> str:
    line = story.line("orders")
    return page_html(name, line["at"], line, {**story.parts(), **parts})


def test_a_page_is_whole_by_itself() -> None:
    found = Elements(page())
    assert not [tag for tag, _ in found.tags if tag in ("link", "img", "iframe", "object", "embed")]
    assert not [one for _, one in found.tags if {"src", "href", "onclick", "onload"} & one.keys()]
    data, script = found.scripts
    held = json.loads(data)
    assert held["name"] == held["line"]["job"] == "orders" and held["parts"].keys() == story.parts().keys()
    assert script == _script() and "createRoot" in script and "uPlot" in script
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(one["content"] for _, one in found.tags if "http-equiv" in one)
    assert policy is not None and policy.startswith(f"default-src 'none'; script-src 'sha256-{allowed}';")


def test_the_data_cannot_leave_its_script() -> None:
    text = page(EVIL, log={"at": story.ago(1), "lines": [EVIL], EVIL: EVIL})
    found = Elements(text)
    assert len(found.scripts) == 2 and [tag for tag, _ in found.tags].count("img") == 0
    data = found.scripts[0]
    assert not re.search("[<>&\u2028\x1b]", data) and json.loads(data)["parts"]["log"]["lines"] == [EVIL]
    around = text.replace(found.scripts[1], "")
    assert "alert(1)</script>" not in around and "<!--" not in around and "<img" not in around


def test_the_script_ends_where_it_should() -> None:
    assert not re.search("</script|<!--", _script(), re.IGNORECASE)


def test_nothing_that_asks_airflow_is_in_it() -> None:
    for words in ("dagRuns", "api/v2", "fetch(", "XMLHttpRequest", "sendBeacon", "WebSocket"):
        assert words not in _script(), words


@pytest.mark.parametrize("path", own_modules(SHARED, FILE), ids=lambda path: path.name)
def test_every_module_is_translated_whole(path: Path) -> None:
    body = _module(path.read_text(encoding="utf-8"))
    assert not re.findall(r"^\s*(?:import|export)\b.*", body, re.MULTILINE)


def test_exports_and_imports_of_each_form_become_names() -> None:
    text = """import uPlot from "./uPlot.esm.js";
import { a, b } from "./h.js";
import "./react.js";
export const x = 1;
export async function y() {}
export class Z {}
export const {
  one, two,
} = x;
"""
    body = _module(text)
    assert 'const { default: uPlot } = need("uPlot.esm.js");' in body
    assert 'const { a, b } = need("h.js");\nneed("react.js");\nconst x = 1;' in body
    assert body.endswith("return { x, y, Z, one, two };")


def test_the_page_has_words_and_ways_out_for_objectives_that_there_are() -> None:
    text = (SHARED / "trouble.js").read_text("utf-8")
    tables = re.findall(r"const (?:HELPS|NO_LIMIT) = table\(\{(.*?)\}\)", text, re.DOTALL)
    named = {name for table in tables for name in re.findall(r"^  (\w+):", table, re.MULTILINE)}
    assert len(tables) == 2 and named > {"alive", "drill_age"}
    assert named <= {*PROMISES, HISTORY}
