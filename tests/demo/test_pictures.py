"""The pictures of the page in the docs: small files, each of them shown, and each can be taken again."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from demo.pictures.png import small_png
from demo.pictures.views import PICTURES
from tests.support.paths import ROOT

IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 150_000
FILES = {one.file(theme): one for one in PICTURES for theme in one.themes}


def read(png: bytes) -> NDArray[np.uint8]:
    """The pixels of a PNG with a palette: lines of red, green and blue."""
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        chunks[kind] = png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (
            zlib.crc32(png[at + 4 : at + 8 + size]),
        )
        at += 12 + size
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any(), "no line has a filter"
    return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[lines[:, 1:]]


def written(pixels: NDArray[np.uint8]) -> bytes:
    height, width, _ = pixels.shape
    opaque = np.dstack([pixels, np.full((height, width), 255, np.uint8)])
    return small_png(width, height, opaque.tobytes())


def test_a_picture_of_few_colours_stays_as_it_is() -> None:
    pixels = np.random.default_rng(1).choice(np.array([3, 90, 250], np.uint8), size=(40, 30, 3))
    assert (read(written(pixels)) == pixels).all()


def test_of_many_colours_plain_areas_stay_and_the_others_are_close() -> None:
    pixels = np.random.default_rng(2).integers(0, 256, size=(200, 300, 3), dtype=np.uint8)
    pixels[:100] = (250, 250, 250)
    pixels[100:120] = (255, 255, 255)
    after = read(written(pixels))
    assert (after[:120] == pixels[:120]).all()
    assert np.abs(after.astype(int) - pixels).max() < 128, "even noise of all colours is near itself"


def test_the_docs_show_each_picture_and_no_other() -> None:
    assert {file.name for file in IMAGES.iterdir()} == set(FILES)
    guide = (ROOT / "docs" / "guide" / "page.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]+\]\(\.\./images/([^)]+)\)", guide)
    assert sorted(shown) == sorted(FILES)
    for name in FILES:
        assert (IMAGES / name).stat().st_size < MOST_BYTES, name


@pytest.mark.storm
@pytest.mark.spark
@pytest.mark.airflow
@pytest.mark.timeout(1800)
def test_each_picture_can_be_taken_of_what_the_demo_has_done(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "demo.pictures", "--home", str(tmp_path / "demo")]
    subprocess.run([*command, "--into", str(tmp_path / "images")], cwd=ROOT, check=True, timeout=1700)
    taken = {file.name: file for file in (tmp_path / "images").iterdir()}
    assert set(taken) == set(FILES)
    for name, picture in FILES.items():
        height, width, _ = read(taken[name].read_bytes()).shape
        assert 100 < height <= picture.highest and width <= picture.width, name
        assert 3_000 < taken[name].stat().st_size < MOST_BYTES, name
