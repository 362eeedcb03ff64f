"""The files of the page, by where they are used: in Airflow, in a page that is a file, or in both."""

from __future__ import annotations

from pathlib import Path

from tests.support.paths import ROOT

AIRFLOW = ROOT / "provider" / "streambank_airflow" / "page" / "static"
SHARED = ROOT / "provider" / "streambank" / "overview" / "static"
FILE = ROOT / "provider" / "streambank" / "overview" / "file"
VENDORED = {
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "react.production.min.js": "d949f1c3687aedadcedac85261865f29b17cd273997e7f6b2bfc53b2f9d4c4dd",
    "react-dom.production.min.js": "35f4f974f4b2bcd44da73963347f8952e341f83909e4498227d4e26b98f66f0d",
    "react.LICENSE.txt": "52412d7bc7ce4157ea628bbaacb8829e0a9cb3c58f57f99176126bc8cf2bfc85",
}
"""uPlot 1.6.32, React 18.3.1 and its DOM, all under the MIT licence: their files as they were published."""


def own_files(*folders: Path) -> list[Path]:
    """What is not vendored, of these folders."""
    return sorted(path for folder in folders for path in folder.iterdir() if path.name not in VENDORED)


def own_modules(*folders: Path) -> list[Path]:
    """The modules among these."""
    return [path for path in own_files(*folders) if path.suffix == ".js"]
