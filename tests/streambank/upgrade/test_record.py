"""The record of an upgrade, as it is read again."""

from __future__ import annotations

import pytest

from streambank.code.code import Code
from streambank.control.records import Record
from streambank.core.errors import FormatError
from streambank.upgrade.record import Upgrade


@pytest.mark.parametrize("name", ["changes", "broken_before", "started_at", "at"])
def test_a_record_must_say_what_a_new_upgrade_has_a_default_for(name: str) -> None:
    record = Upgrade("u1", "flights", "stopping", None, Code("a.py", (), {}), broken_before=None).to_record()
    assert Upgrade.of(Record(1, record, "upgrades/1")).to_record() == record
    del record[name]
    with pytest.raises(FormatError, match=name) as caught:
        Upgrade.of(Record(1, record, "upgrades/1"))
    assert caught.value.code == "damaged-record"
