"""Where a query reads and writes files: nothing of ours may lie there, or it is taken for input.

Spark's file source reads what lies in a folder that a pattern such as `in/*` names, and with
`recursiveFileLookup` all below its directory: a checkpoint, a repository or a job's records in there are rows
of the next batch. Beside partitions they make it fail (CONFLICTING_DIRECTORY_STRUCTURES). The source's log
names the files that were read, not the directory that the application names, nor how. So their folders count.

* A folder of partitions (`day=2026-11-28`) stands for the one that holds it.
* Spark passes over what begins with `_` or `.`, so a checkpoint in `in/_checkpoint` is no input.
* What holds all folders of one source is only guessed to be read itself: `data` of `data/*/in` is not, that
  of `recursiveFileLookup` is. A file of the checkpoint that was read tells.
* If the query's own checkpoint lies in such a folder and no file of it was ever read, the application reads
  that folder by a pattern, as `in/*.json`: nothing else in there is read either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath
from urllib.parse import unquote

from streambank.checkpoint.compactible import parse_log_name
from streambank.core.errors import InputError, StreambankError
from streambank.inputs.files import files_after
from streambank.repository.header import HEADER_KEY, check_apart
from streambank.repository.manifest import Manifest
from streambank.repository.repository import Repository
from streambank.sinks.file.capture import KIND
from streambank.sinks.unguarded import sink_from_description
from streambank.storage import followed, is_inside
from streambank.storage.store import Store, chunks

_MOST_FILES = 20_000
"""Of so many files of each entry of a source's log the folders are looked at."""
_MOST_ENTRIES = 200
_MANY = 2
"""So many folders that one source has read show a pattern, or a directory with directories."""


@dataclass(frozen=True, slots=True)
class DataFolders:
    """Where a query reads and writes files; `guessed` holds all folders of a source, and may be read too."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()

    def refusal(self, place: str, what: str) -> InputError | None:
        """Why something of ours, such as `target`, must not be written to a place; None where it may."""
        for code, folders, of in (
            ("inside-input", self.inputs, "input"),
            ("inside-output", self.outputs, "output"),
        ):
            folder = next((one for one in folders if _is_listed(place, one)), None)
            if folder is not None:
                effect = "Spark may read its files as rows." if of == "input" else "Readers may list it."
                return InputError(
                    f"The {what} {place} lies in {folder}, the query's {of}. {effect}",
                    code=code,
                    hint="Name a location elsewhere, beside the query's input and output.",
                )
        return None

    def doubt(self, place: str, what: str) -> str | None:
        """Why something of ours had better not be written to a place; None where nothing is against it."""
        folder = next((one for one in self.guessed if _is_listed(place, one)), None)
        return folder and (
            f"The {what} {place} lies in {folder}, which holds all folders that the query has read. If its "
            "source reads whatever folder comes in there, Spark reads these files as rows."
        )

    def without(self, places: Iterable[str]) -> DataFolders:
        """The same, but for the folders in which one of some places lies already."""
        known = list(places)

        def left(folders: Iterable[str]) -> tuple[str, ...]:
            return tuple(one for one in folders if not any(_is_listed(place, one) for place in known))

        return DataFolders(left(self.inputs), left(self.outputs), left(self.guessed))

    def check(self, place: str, what: str) -> None:
        """Make sure that a place is apart from both.

        Raises:
            InputError: It is not (codes `inside-input`, `inside-output`).
        """
        if (refused := self.refusal(place, what)) is not None:
            raise refused


def _is_listed(place: str, folder: str) -> bool:
    try:
        if not is_inside(place, folder):
            return False
        below = PurePosixPath(followed(place)).relative_to(PurePosixPath(followed(folder)))
    except (InputError, ValueError):
        return False  # what a log or a manifest says is a text, which need not be a location of this machine
    return not any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in below.parts)


def folders_of(
    checkpoint: str, logs: Iterable[Iterable[Iterator[str]]], outputs: Iterable[str] = ()
) -> DataFolders:
    """The folders of a query, by what its sources have read (the entries of their logs), and its outputs."""
    found: dict[str, None] = {}
    guessed: dict[str, None] = {}
    for entries in logs:
        own = dict.fromkeys(
            folder for entry in entries for file in islice(entry, _MOST_FILES) if (folder := _folder(file))
        )
        found.update(own)
        if len(own) >= _MANY and (above := _common(own)) is not None:
            guessed[above] = None
    if any(_is_inside(one, checkpoint) for one in found):
        read = DataFolders((*found, *guessed))
    else:
        read = DataFolders(tuple(found), guessed=tuple(guessed)).without([checkpoint])
    return replace(read, outputs=tuple(dict.fromkeys(outputs)))


def _is_inside(place: str, other: str) -> bool:
    try:
        return is_inside(place, other)
    except InputError:
        return False


def _folder(uri: str) -> str | None:
    """The folder of a file, above its partitions; Spark writes paths percent-encoded."""
    encoded = "://" in uri or uri.startswith("file:")
    folder = (unquote(uri) if encoded else uri).rpartition("/")[0]
    while "=" in folder.rpartition("/")[2]:
        folder = folder.rpartition("/")[0]
    try:
        return followed(folder)
    except InputError:
        return None


def _common(folders: Iterable[str]) -> str | None:
    """What holds all of them; None where that is a whole bucket, server or file system."""
    parts = [one.split("/") for one in folders]
    shared = next(
        (place for place, names in enumerate(zip(*parts, strict=False)) if len(set(names)) > 1),
        min(map(len, parts)),
    )
    return "/".join(parts[0][:shared]) if shared > 3 else None


def folders_of_savepoint(
    repository: Repository, manifest: Manifest, outputs: Iterable[str] = ()
) -> DataFolders:
    """The folders of a savepoint's query, and outputs that it does not name."""
    digests = {one.path: one.digest for one in manifest.files}
    logs = _logs(manifest.sources, lambda path: repository.objects.chunks(digests[path]))
    named = [path for one in manifest.sinks if (path := _output(one)) is not None]
    return folders_of(manifest.checkpoint, logs, [*named, *outputs])


def folders_of_live(checkpoint: Store, outputs: Iterable[str] = ()) -> DataFolders:
    """The folders of a live query, by the newest entries of its sources' logs. Reads only."""
    sources = []
    for source in checkpoint.names("sources"):
        names = filter(None, map(parse_log_name, checkpoint.names(f"sources/{source}")))
        newest = sorted(names)[-_MOST_ENTRIES:]
        sources.append({"kind": "file", "files": [f"sources/{source}/{name}" for name in newest]})

    def read(path: str) -> Iterator[bytes]:
        with checkpoint.open(path) as reader:
            yield from chunks(reader)

    return folders_of(checkpoint.uri, _logs(sources, read), outputs)


def check_new_repository(repository: Store, checkpoint: Store, outputs: Iterable[str] = ()) -> None:
    """Make sure that no new repository is made where the query has its checkpoint, input or output.

    One that is there already goes on being used: savepoints in a bad place are better than none.

    Raises:
        InputError: It would lie in one of them (codes `inside-checkpoint`, `inside-input`, `inside-output`).
    """
    check_apart(repository, checkpoint.uri)
    if not repository.exists(HEADER_KEY):
        folders_of_live(checkpoint, outputs).check(repository.uri, "repository")


def _logs(
    sources: Iterable[object], read: Callable[[str], Iterable[bytes]]
) -> Iterator[Iterator[Iterator[str]]]:
    for source in sources:
        files = source.get("files") if isinstance(source, Mapping) and source.get("kind") == "file" else None
        if isinstance(files, list | tuple):
            yield (_files(read, str(path)) for path in files)


def _files(read: Callable[[str], Iterable[bytes]], path: str) -> Iterator[str]:
    try:
        yield from files_after(read(path), path, -1)
    except (StreambankError, KeyError):
        return  # what cannot be read is said by whoever verifies it


def _output(record: Mapping[str, object]) -> str | None:
    path = record.get("path")
    if not isinstance(path, str):
        return None
    if record.get("kind") == KIND:
        return path
    if record.get("kind") == "FileSink":
        return sink_from_description(path).path
    return None
