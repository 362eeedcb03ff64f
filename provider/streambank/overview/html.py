"""The page as one file that needs neither Airflow nor a network: its modules and styles, React, and the data.

Names and reasons come from directories, logs and records, so nothing of them is trusted: data is JSON that
cannot end its script, the page's modules show texts as texts, and its policy lets no other script run and
nothing be loaded from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from streambank.core.text import visible
from streambank.storage import open_store

_OWN_STYLE = """
body { margin: 0; font-family: system-ui, sans-serif; }
.sb-page { min-height: 100vh; height: auto; overflow: visible; }
"""
_MAIN = "main.js"
STANDS_FOR = ("api.js", "actions.js", "route.js")
"""What asks Airflow, and is not in a file: `source.js` has the same names."""
_IMPORT = re.compile(r'^import (?:(\w+) from |(\{[^}]+\}) from )?"\./([\w.-]+)";$', re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?:((?:async function|function|class|const) (\w+))"
    r"|(const \{([^}]+)\})"
    r"|\{ (\w+) as default \};)",
    re.MULTILINE,
)


def write_page(
    location: str, name: str, at: str, line: Mapping[str, Any] | None, parts: Mapping[str, Any]
) -> None:
    """Write the page, whole or not at all.

    Args:
        location: The file: a path or a URI.
        line: The line of a snapshot; None where only verdicts and charts are shown.
        parts: The parts of a snapshot; the page says of others that they were left out.
    """
    folder, slash, file = location.rpartition("/")
    store = open_store((folder or "/") if slash else ".")
    store.write(file, page_html(name, at, line, parts).encode())


def page_html(name: str, at: str, line: Mapping[str, Any] | None, parts: Mapping[str, Any]) -> str:
    """The HTML of the page; see `write_page`."""
    held = _json({"name": visible(name), "at": at, "line": line, "parts": parts})
    script = _script()
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(visible(name))}</title>
<style>{_text("static", "uPlot.min.css")}{_text("static", "style.css")}{_OWN_STYLE}</style>
</head>
<body>
<div id="sb-page"></div>
<noscript>This page needs JavaScript. It loads nothing and sends nothing.</noscript>
<script type="application/json" id="sb-held">{held}</script>
<script>{script}</script>
</body>
</html>
"""


@cache
def _script() -> str:
    modules = {
        file.name: _module(file.read_text("utf-8"))
        for folder in ("static", "file")
        for file in sorted(files("streambank.overview").joinpath(folder).iterdir(), key=lambda one: one.name)
        if file.name.endswith(".js")
    }
    table = ",\n".join(f'"{name}": () => {{\n{text}\n}}' for name, text in modules.items())
    same = ", ".join(f'"{name}": "source.js"' for name in STANDS_FOR)
    return f"""
const modules = {{
{table}
}};
const same = {{ {same} }}, needed = {{}};
function need(name) {{
  const module = same[name] || name;
  return needed[module] ||= modules[module]() || {{}};
}}
need("{_MAIN}");
"""


def _module(text: str) -> str:
    """A module as the body of a function that returns what it exports.

    Args:
        text: Each import and export begins a line, as `test_html.py` checks.
    """
    exported: list[str] = []

    def export(found: re.Match[str]) -> str:
        declared, name, several, names, default = found.groups()
        if default:  # the last line of a library, which has commented out exports, too
            exported[:] = [f"default: {default}"]
            return ""
        exported.append(name or names.strip().rstrip(","))
        return str(declared or several)

    def needed(found: re.Match[str]) -> str:
        default, names, module = found.groups()
        if default:
            names = f"{{ default: {default} }}"
        return f'const {names} = need("{module}");' if names else f'need("{module}");'

    body = _EXPORT.sub(export, _IMPORT.sub(needed, text))
    return f"{body}\nreturn {{ {', '.join(exported)} }};" if exported else body


def _text(folder: str, name: str) -> str:
    return files("streambank.overview").joinpath(folder).joinpath(name).read_text("utf-8")


def _json(data: Any) -> str:
    """JSON that can stand in a script element: it holds nothing that HTML would read."""
    found = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return found.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
