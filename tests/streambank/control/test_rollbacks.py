from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.rollbacks import check_not_rolled_back, note_rollback
from streambank.core.errors import FormatError, RefusedError
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store

BY = {"user": "test"}
JOURNAL = "_streambank_aside/b000002-1/_rollback.json"
"""What a rollback of a file sink writes first (`streambank/sinks/file/rollback.py`)."""


@pytest.fixture
def sink(tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "out", fsync=False)


@pytest.fixture
def generation(control: JobControl) -> Generation:
    return control.generations(None).ensure_first("memory://ck", by=BY)


def note(control: JobControl, *sinks: Store) -> None:
    note_rollback(control, None, sinks, (), savepoint="b000002", batch=2, location="memory://new", by=BY)


def begin(sink: Store) -> None:
    sink.write(JOURNAL, b'{"format": 1, "files_aside": []}')
    sink.write(JOURNAL.replace("_rollback", "_done"), b"{}")


def test_a_note_alone_refuses_nothing(control: JobControl, generation: Generation, sink: Store) -> None:
    check_not_rolled_back(control, None, generation)
    note(control, sink)
    check_not_rolled_back(control, None, generation)


def test_an_older_checkpoint_does_not_go_on_behind_its_output(
    control: JobControl, generation: Generation, sink: Store
) -> None:
    note(control, sink)
    begin(sink)
    with pytest.raises(RefusedError) as caught:
        check_not_rolled_back(control, None, generation)
    assert caught.value.code == "sinks-taken-back"
    assert sink.uri in caught.value.message and "restore b000002 --job flights" in caught.value.hint
    check_not_rolled_back(control, "other", generation)  # another query


def test_a_second_note_does_not_hide_what_the_first_one_knows(
    control: JobControl, generation: Generation, sink: Store
) -> None:
    """The restore that left the first one rolled the output back and ended; the next one ended at once."""
    note(control, sink)
    begin(sink)
    note(control, sink)
    with pytest.raises(RefusedError) as caught:
        check_not_rolled_back(control, None, generation)
    assert caught.value.code == "sinks-taken-back"


def test_it_is_over_with_the_generation_that_it_names(
    control: JobControl, generation: Generation, sink: Store
) -> None:
    note(control, sink)
    begin(sink)
    later = replace(generation, number=generation.number + 1, location="memory://new")
    check_not_rolled_back(control, None, later)


def test_rollbacks_before_the_note_do_not_count(
    control: JobControl, generation: Generation, sink: Store
) -> None:
    begin(sink)
    note(control, sink)
    check_not_rolled_back(control, None, generation)


def test_without_a_generation_or_a_sink_nothing_is_noted(control: JobControl, sink: Store) -> None:
    note(control, sink)
    control.generations(None).ensure_first("memory://ck", by=BY)
    note(control)
    assert control.store.names("taken-back/main") == []


def test_a_note_that_cannot_be_read_refuses(control: JobControl, generation: Generation, sink: Store) -> None:
    note(control, sink)
    (name,) = control.store.names("taken-back/main")
    control.store.write(f"taken-back/main/{name}", b'{"generation": "x"}')
    with pytest.raises(FormatError) as caught:
        check_not_rolled_back(control, None, generation)
    assert caught.value.code == "damaged-record"
