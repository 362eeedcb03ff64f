"""What a savepoint lacks: unknown files; sinks and sources that were not asked, or give no row twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streambank.checkpoint.sources import cannot_repeat
from streambank.core.units import say_count
from streambank.repository.manifest import Manifest
from streambank.savepoint.sinks import MISSING, Captured

_MOST_SHOWN = 8


def first_said(manifest: Manifest, captured: Sequence[Captured], before: Manifest | None) -> Iterator[str]:
    """What a restore will not be able to do about sinks and sources, unless the savepoint before said it.

    What a guarded sink says is of this very savepoint, such as a catalog that was away.
    """
    known = {sink.get("kind") for sink in before.sinks} if before is not None else set()
    for sink in captured:
        if sink.warning and (sink.record.get("guarded") is True or sink.record.get("kind") not in known):
            yield sink.warning
    said = set(_unrepeatable(before)) if before is not None else set()
    for name, what in _unrepeatable(manifest):
        if (name, what) not in said:
            yield (
                f"Source {name} ({what}) cannot be repeated: it gives each row only once, so a query that "
                "continues from this savepoint loses rows, or fails. A restore needs --source accept."
            )


def _unrepeatable(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for source in manifest.sources:
        if isinstance(source, Mapping) and (what := cannot_repeat(source)) is not None:
            yield str(source.get("source")), what


def lacks(manifest: Manifest) -> Iterator[str]:
    """Everything that a savepoint does not hold, and a restore will miss."""
    yield from _no_sink(manifest)
    yield from not_asked(manifest)
    yield from _missing_output(manifest)
    if (files := left_out(manifest)) is not None:
        yield files


def other_note(manifest: Manifest, note: str) -> Iterator[str]:
    """What becomes of a note where the savepoint was there with another one, which stays."""
    if note and note != manifest.note:
        has = f"has the note {manifest.note!r}, which stays" if manifest.note else "has no note"
        yield (
            f"Savepoint {manifest.savepoint} was there already and {has}: the new note is not kept. "
            "`pin` can add one."
        )


def _missing_output(manifest: Manifest) -> Iterator[str]:
    """Data files of its output that were gone when a savepoint was taken: a restore will be refused."""
    for sink in manifest.sinks:
        found = sink.get(MISSING)
        if isinstance(found, Mapping) and isinstance(found.get("files"), int):
            some = ", ".join(map(str, found.get("such_as") or ()))
            checked = found.get("checked")
            of = f" of {checked} that were looked for" if checked != sink.get("data_files") else ""
            yield (
                f"The file sink {sink.get('path')} lacks {say_count(found['files'], 'data file')}{of} "
                f"({some}): a restore of this savepoint is refused until the files are back, or somebody "
                "accepts that they are gone."
            )


def _no_sink(manifest: Manifest) -> Iterator[str]:
    """That a restore cannot protect the output of a query whose sinks are not known, or not all of them."""
    found = ", ".join(manifest.sink_candidates)
    if not manifest.sinks:
        some = f" ({found} may be it)" if found else ""
        yield f"No sink is known: a restore cannot protect the output; add --file-sink DIR{some}"
    elif found:
        yield f"{found} may be a sink, too: a restore cannot protect it; add --file-sink DIR"


def not_asked(manifest: Manifest) -> tuple[str, ...]:
    """What sources and sinks would have had to be asked when a savepoint was taken, and could not be.

    Not that rows of a sink name their topics themselves: that can never be asked.
    """
    found = []
    for source in manifest.sources:
        told = source.get("kafka") if isinstance(source, Mapping) else None
        if isinstance(told, Mapping) and told.get("not_asked"):
            names = ", ".join(told.get("topics") or ())
            found.append(
                f"Kafka could not be asked about source {source.get('source')} ({names}): "
                f"{str(told['not_asked']).rstrip('.')}. The savepoint has no topic ids, so a restore cannot "
                "notice a topic that was created again."
            )
    found += [
        f"The sink {sink.get('path')} could not be asked how far it is: {str(sink['not_asked']).rstrip('.')}."
        for sink in manifest.sinks
        if sink.get("not_asked") and sink.get("topics")
    ]
    return tuple(found)


def left_out(manifest: Manifest) -> str | None:
    """Which files of its checkpoint a savepoint lacks because they are not understood; None for none."""
    files, examples = 0, []
    for one in manifest.left_out:
        count, example = one.get("files"), one.get("example")
        if isinstance(count, int) and isinstance(example, str):
            files += count
            examples.append(example)
    if not examples:
        return None
    shown = ", ".join(examples[:_MOST_SHOWN]) + (", ..." if len(examples) > _MOST_SHOWN else "")
    return (
        f"{say_count(files, 'file')} of the checkpoint {'is' if files == 1 else 'are'} not understood, and "
        f"not in the savepoint: {shown}. If a connector wrote {'it' if files == 1 else 'them'}, a restored "
        "query may fail at its start, or read other rows."
    )
