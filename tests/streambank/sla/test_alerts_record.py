"""What each teller has told is kept beside the job, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from streambank.control.control import JobControl
from streambank.control.pruning import Retention, prune_records
from streambank.control.records import RecordStream
from streambank.core.errors import ConflictError, FormatError, InputError
from streambank.sla import alerts
from streambank.sla.alerts import Open, OpenAlerts
from tests.support.refuses import refuses

AT = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
BROKEN = OpenAlerts.of(Open("flights", "main", "state_bytes", "breach", AT, AT))


def test_what_was_told_is_kept_for_each_teller_by_itself(control: JobControl) -> None:
    before = alerts.read(control, "mail")
    assert before == OpenAlerts()
    alerts.keep(control, "mail", BROKEN, before)
    assert alerts.read(control, "mail").to_dict() == BROKEN.to_dict()
    assert alerts.read(control, "pager") == OpenAlerts()
    alerts.keep(control, "mail", OpenAlerts(), BROKEN)
    assert alerts.read(control, "mail") == OpenAlerts()


def test_nothing_is_written_where_there_is_nothing_new(control: JobControl) -> None:
    alerts.keep(control, "mail", OpenAlerts(), OpenAlerts())
    assert control.store.names("sla/told/mail") == []
    alerts.keep(control, "mail", BROKEN, OpenAlerts())
    alerts.keep(control, "mail", BROKEN, alerts.read(control, "mail"))
    assert len(control.store.names("sla/told/mail")) == 1


def test_of_two_that_tell_at_once_one_is_told_to_judge_again(control: JobControl) -> None:
    one, two = alerts.read(control, "mail"), alerts.read(control, "mail")
    alerts.keep(control, "mail", BROKEN, one)
    with refuses(ConflictError, "told-meanwhile"):
        alerts.keep(control, "mail", BROKEN, two)


def test_a_teller_has_a_name_and_its_record_is_what_it_was(control: JobControl) -> None:
    with pytest.raises(InputError):
        alerts.read(control, "../desired")
    control.store.write("sla/told/mail/0000000001.json", b'{"format": 9}')
    with refuses(FormatError, "bad-told"):
        alerts.read(control, "mail")


def test_old_records_of_tellers_go_and_the_newest_stays(control: JobControl) -> None:
    for number in range(8):
        before = alerts.read(control, "mail")
        alerts.keep(control, "mail", BROKEN if number % 2 == 0 else OpenAlerts(), before)
    prune_records(control, Retention(3, datetime.now(UTC) + timedelta(days=1)))
    stream = RecordStream(control.store, "sla/told/mail")
    assert stream.numbers() == [6, 7, 8]
    assert alerts.read(control, "mail") == OpenAlerts()
