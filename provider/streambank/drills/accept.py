"""Ends the rejection of a savepoint whose rehearsal had not passed, once a drill of it has."""

from __future__ import annotations

from streambank.core.errors import StreambankError
from streambank.drills.report import DrillReport, StillRejected
from streambank.drills.request import DrillRequest
from streambank.repository.catalog import glimpse, is_rejected
from streambank.repository.repository import Repository
from streambank.storage import open_store


def accept(request: DrillRequest, report: DrillReport) -> tuple[StillRejected, ...]:
    """Let references mean savepoints again whose rehearsal had not passed: this drill of them has.

    Of a drill from a replica that counts in the job's repository, too, where that has the same savepoint; the
    next `replicate` carries it on. A location that refuses does not keep the others from it.

    Returns:
        The savepoints that are still rejected, each with the location that refused, such as a replica that
            can only be read.
    """
    refused = []
    drilled = open_store(report.repository)
    for one in report.queries:
        place = request.job.savepoint_name(one.query)
        try:
            head = glimpse(drilled, place, one.savepoint)
            rejected = head is not None and is_rejected(drilled, head)
        except StreambankError as error:
            refused.append(StillRejected(one.query, one.savepoint, report.repository, error.message))
            continue
        if head is None or head.derived_from is None:
            continue
        for location in dict.fromkeys((request.job.repository, report.repository)):
            try:
                repository = Repository.open(open_store(location))
                there = glimpse(repository.store, place, one.savepoint)
                if there is not None and there == head and is_rejected(repository.store, there):
                    rejected = True
                    repository.mark_rehearsal(place, one.savepoint, passed=True, by=request.by)
            except StreambankError as error:
                if rejected:
                    refused.append(StillRejected(one.query, one.savepoint, location, error.message))
    return tuple(refused)
