"""A look for the file sink of a query near its checkpoint, where nothing says what the query writes to.

A directory with a `_spark_metadata` counts as the query's output only on evidence: its entries were written
while the query ran the batches of their numbers (`fits.py`), at least `LEAST_BATCHES` of them; its newest
entry is neither behind what is committed nor ahead of what is planned; the owner of the checkpoint owns it;
and neither another log near fits this query, nor another query near that log. Two queries of one driver often
run in step, so the last two matter most. Whatever may be the output, and is not proven to be, is a candidate:
a person decides about it.

The look is bounded in number, depth and time. It follows no link, and never leaves the file system of the
checkpoint. Names and times are all that it reads.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from streambank.checkpoint.compactible import parse_log_name
from streambank.checkpoint.files import read_query_id
from streambank.checkpoint.position import is_batch
from streambank.core.errors import StreambankError
from streambank.sinks.file.capture import FileSinkCapture
from streambank.sinks.file.comparison import ASIDE_DIRECTORY
from streambank.sinks.file.fits import Windows, fit_of, windows_of
from streambank.sinks.file.log import LOG_DIRECTORY
from streambank.storage import local_path, normalize_location, open_store

LEAST_BATCHES = 3
"""So many entries have to fit: fewer may do so by chance."""
_MOST_DIRECTORIES = 3000
_MOST_S = 2.0
_LEVELS_UP, _LEVELS_DOWN = 2, 3
_MOST_CANDIDATES = 3


@dataclass(frozen=True, slots=True)
class Nearby:
    """What a look came to.

    Attributes:
        candidates: URIs of others that may be, the nearest first.
        why_not: Why there was no look; empty where there was one.
    """

    sink: str | None = None
    candidates: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(slots=True)
class _Seen:
    outputs: list[Path] = field(default_factory=list)
    checkpoints: list[Path] = field(default_factory=list)
    whole: bool = True


def look_nearby(checkpoint: str, saved: Windows | None = None) -> Nearby:
    """Look for the output of the query of a checkpoint. Never raises for what it finds.

    Args:
        checkpoint: The checkpoint, which may be gone.
        saved: When batches of a savepoint ran, of which `checkpoint` was the place: then there are only
            candidates.
    """
    there = local_path(checkpoint)
    if there is None:
        return Nearby(why_not="outputs are looked for on this machine's disks only")
    place = Path(os.path.realpath(there))
    try:
        seen = _look(place)
    except OSError:
        return Nearby(why_not="the directories near the checkpoint cannot be listed")
    if saved is not None:
        return Nearby(candidates=_uris(output for output in seen.outputs if _may_be_of(output, saved)))
    judged = {output: _judge(output, place) for output in seen.outputs}
    fitting = [one for one, fits in judged.items() if fits == "fits"]
    if len(fitting) == 1 and seen.whole and not _of_another(fitting[0], place, seen.checkpoints):
        (uri,) = _uris(fitting)
        if _can_be_saved(uri, place):
            return Nearby(uri)
    return Nearby(candidates=_uris(one for one, fits in judged.items() if fits != "not"))


def may_be_of(output: str, checkpoint: str) -> bool:
    """Whether nothing that is on this machine speaks against an output being that of a checkpoint's query."""
    log, place = local_path(output), local_path(checkpoint)
    return log is None or place is None or _judge(log, place) != "not"


def skipped_by(checkpoint: str, outputs: Iterable[str], first: int, last: int) -> str | None:
    """The output whose log had some batches of a query before the query planned them: Spark skipped those.

    Without `outputs` one is looked for near the checkpoint. None where none is known, or several may be it.
    """
    place = local_path(checkpoint)
    if place is None:
        return None
    named = [one for one in map(local_path, outputs) if one is not None]
    try:
        planned = {int(name): at for name, at in _times(place / "offsets") if is_batch(name)}
        found = [
            one
            for one in named or _look(Path(os.path.realpath(place))).outputs
            if _had(one, {batch: planned[batch] for batch in range(first, last + 1) if batch in planned})
        ]
    except OSError:
        return None
    return _uris(found)[0] if len(found) == 1 else None


def _had(output: Path, planned: Mapping[int, int]) -> bool:
    """Whether each of some batches that a log has an entry of was written before it was planned."""
    try:
        entries = dict(_entries(output))
    except OSError:
        return False
    both = [entries[batch] < at for batch, at in planned.items() if batch in entries]
    return bool(both) and all(both) and max(entries) >= max(planned)


def _uris(found: Iterable[Path]) -> tuple[str, ...]:
    return tuple(normalize_location(one) for one in islice(found, _MOST_CANDIDATES))


def _judge(output: Path, checkpoint: Path) -> Literal["fits", "may", "not"]:
    """Whether the log of an output is proven to be that of a query, may be it, or is not."""
    try:
        committed = max(_batches(checkpoint / "commits"), default=-1)  # before the log, which has it then
        entries = list(_entries(output))
        planned = max(_batches(checkpoint / "offsets"), default=-1)  # after the log: it has nothing later
        fit = fit_of(_windows(checkpoint), entries)
        same_owner = _owner(output / LOG_DIRECTORY) == _owner(checkpoint / "offsets")
    except OSError:
        return "not"
    newest = max((batch for batch, _ in entries), default=-1)
    if fit.against or not 0 <= committed <= newest <= planned:
        return "not"
    return "fits" if same_owner and len(fit.agree) >= LEAST_BATCHES else "may"


def _may_be_of(output: Path, saved: Windows) -> bool:
    """Whether the times of a log are those of a savepoint's query."""
    try:
        entries = list(_entries(output))
    except OSError:
        return False
    fit = fit_of(saved, entries)
    return bool(fit.agree) and not fit.against


def _of_another(output: Path, checkpoint: Path, checkpoints: Iterable[Path]) -> bool:
    """Whether another query near may have written the log, such as one that runs in step."""
    own = _query_id(checkpoint)
    return any(
        _judge(output, checkpoint) != "not" for checkpoint in checkpoints if _query_id(checkpoint) != own
    )


def _query_id(checkpoint: Path) -> str | None:
    try:
        return read_query_id(open_store(checkpoint))
    except StreambankError:
        return None


def _can_be_saved(output: str, checkpoint: Path) -> bool:
    try:
        FileSinkCapture(output).capture(max(_batches(checkpoint / "commits"), default=-1))
    except StreambankError:
        return False
    return True


def _owner(place: Path) -> int:
    return place.stat().st_uid


def _windows(checkpoint: Path) -> Windows:
    times: dict[str, int] = {}
    for folder in ("commits", "offsets"):
        times |= {f"{folder}/{name}": written for name, written in _times(checkpoint / folder)}
    times["metadata"] = (checkpoint / "metadata").stat().st_mtime_ns
    return windows_of(times.items())


def _entries(output: Path) -> Iterator[tuple[int, int]]:
    for name, written in _times(output / LOG_DIRECTORY):
        if (parsed := parse_log_name(name)) is not None:
            yield parsed.batch, written


def _batches(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in folder.iterdir() if is_batch(path.name)]
    except FileNotFoundError:
        return []


def _times(folder: Path) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as found:
        for one in found:
            try:
                if one.is_file(follow_symlinks=False):
                    yield one.name, one.stat(follow_symlinks=False).st_mtime_ns
            except FileNotFoundError:
                continue  # Spark has deleted it meanwhile


def _look(checkpoint: Path) -> _Seen:
    """Every output and checkpoint near: around it and its parents, breadth first."""
    seen, until = _Seen(), time.monotonic() + _MOST_S
    around = list(checkpoint.parents)[:_LEVELS_UP]
    device = around[0].stat().st_dev
    for one in (checkpoint, *list(checkpoint.parents)[: _LEVELS_UP + 1]):
        if _is_folder(one / LOG_DIRECTORY):  # a checkpoint may lie below its output
            seen.outputs.append(one)
    queue = deque((one, _LEVELS_DOWN) for one in around)
    done = {checkpoint, *around, *seen.outputs}
    looked = 0
    while queue:
        folder, levels = queue.popleft()
        looked += 1
        if looked > _MOST_DIRECTORIES or time.monotonic() > until:
            seen.whole = False
            break
        for child in _folders(folder, device):
            if child in done:
                continue
            done.add(child)
            if _is_folder(child / LOG_DIRECTORY):
                seen.outputs.append(child)
            elif _is_folder(child / "offsets") and _is_folder(child / "commits"):
                seen.checkpoints.append(child)
            elif levels > 1:
                queue.append((child, levels - 1))
    return seen


def _is_folder(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _folders(folder: Path, device: int) -> list[Path]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or "=" in entry.name or entry.name in _NEVER:
                    continue
                if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_dev == device:
                    found.append(Path(entry.path))
    except OSError:
        return []
    return sorted(found)


_OURS = {LOG_DIRECTORY, "_delta_log", ASIDE_DIRECTORY, "objects"}
_SYSTEM = {"bin", "boot", "dev", "etc", "lib", "lib64", "node_modules", "proc", "sbin", "snap", "sys", "usr"}
_NEVER = frozenset(_OURS | _SYSTEM)
