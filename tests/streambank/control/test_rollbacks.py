from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streambank.control.control import JobControl
from streambank.control.generations import Generation
from streambank.control.rollbacks import RollbackNote, check_not_rolled_back
from streambank.core.errors import ConflictError, FormatError, RefusedError, StorageError, StreambankError
from streambank.storage.local.store import LocalStore
from streambank.storage.store import Store
from tests.support.refuses import refuses

BY = {"user": "test"}
JOURNAL = "_streambank_aside/b000002-1/_rollback.json"
"""What a rollback of a file sink writes first (`streambank/sinks/file/rollback.py`)."""


@pytest.fixture
def sink(tmp_path: Path) -> Store:
    return LocalStore(tmp_path / "out", fsync=False)


@pytest.fixture
def generation(control: JobControl) -> Generation:
    return control.generations(None).ensure_first("memory://ck", by=BY)


def noted(control: JobControl) -> RollbackNote:
    return RollbackNote(control, None, savepoint="b000002", batch=2, location="memory://new", by=BY)


def note(control: JobControl, *sinks: Store) -> None:
    noted(control).files(sinks)


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
    with refuses(RefusedError, "sinks-taken-back") as caught:
        check_not_rolled_back(control, None, generation)
    assert sink.uri in caught.value.message and "restore b000002 --job flights" in caught.value.hint
    check_not_rolled_back(control, "other", generation)  # another query


def test_a_second_note_does_not_hide_what_the_first_one_knows(
    control: JobControl, generation: Generation, sink: Store
) -> None:
    """The restore that left the first one rolled the output back and ended; the next one ended at once."""
    note(control, sink)
    begin(sink)
    note(control, sink)
    with refuses(RefusedError, "sinks-taken-back"):
        check_not_rolled_back(control, None, generation)


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


def test_a_restore_before_the_first_start_is_noted_too(control: JobControl, sink: Store) -> None:
    note(control, sink)
    begin(sink)
    first = control.generations(None).ensure_first("memory://ck", by=BY)
    with pytest.raises(RefusedError):
        check_not_rolled_back(control, None, first)
    check_not_rolled_back(control, None, replace(first, number=2, location="memory://new"))


def test_without_a_sink_nothing_is_noted(control: JobControl) -> None:
    control.generations(None).ensure_first("memory://ck", by=BY)
    note(control)
    assert control.store.names("taken-back/main") == []


def test_a_note_that_cannot_be_read_refuses(control: JobControl, generation: Generation, sink: Store) -> None:
    note(control, sink)
    (name,) = control.store.names("taken-back/main")
    control.store.write(f"taken-back/main/{name}", b'{"generation": "x"}')
    with refuses(FormatError, "damaged-record"):
        check_not_rolled_back(control, None, generation)


TABLE = "Delta table lake"


def changes(control: JobControl, error: StreambankError | None, table: str = TABLE) -> None:
    """A restore changes a table, and that ends with an error, or well."""
    try:
        with noted(control).table(table):
            if error is not None:
                raise error
    except StreambankError as raised:
        assert raised is error


@pytest.mark.parametrize("kind", [RefusedError, ConflictError])
def test_a_refused_change_of_a_table_is_none(
    control: JobControl, generation: Generation, kind: type[StreambankError]
) -> None:
    changes(control, kind("injected fault"))
    check_not_rolled_back(control, None, generation)


@pytest.mark.parametrize("error", [None, StorageError("injected fault")])
def test_what_may_have_changed_refuses_a_start(
    control: JobControl, generation: Generation, error: StreambankError | None
) -> None:
    changes(control, error)
    with pytest.raises(RefusedError, match=TABLE):
        check_not_rolled_back(control, None, generation)


def test_a_refusal_hides_nothing_that_an_earlier_restore_may_have_changed(
    control: JobControl, generation: Generation
) -> None:
    """The same table by an earlier restore, and another one by this."""
    changes(control, StorageError("injected fault"))
    changes(control, RefusedError("injected fault"))
    with pytest.raises(RefusedError, match=TABLE):
        check_not_rolled_back(control, None, generation)
    later = replace(generation, number=generation.number + 1)
    control.generations(None).records.create(later.number, later.to_dict())
    changes(control, None, "ledger")
    changes(control, RefusedError("injected fault"))
    with pytest.raises(RefusedError, match="ledger"):
        check_not_rolled_back(control, None, later)
    check_not_rolled_back(control, None, replace(later, number=later.number + 1))


def test_a_refusal_of_a_table_keeps_the_outputs(
    control: JobControl, generation: Generation, sink: Store
) -> None:
    note(control, sink)
    begin(sink)
    changes(control, RefusedError("injected fault"))
    with pytest.raises(RefusedError, match="output"):
        check_not_rolled_back(control, None, generation)
