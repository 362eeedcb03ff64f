"""Signing a job's records that were made without a key: somebody vouches for what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streambank.code.chosen import chosen_records, upgrade_records
from streambank.control.copies import begun_records, refreshed_records
from streambank.control.generations import together_records
from streambank.control.rollbacks import taken_back_records
from streambank.core.signing import require_keys
from streambank.declaration.declaration import Job
from streambank.driver.spec import launched_records
from streambank.sites.records import Sites


@dataclass(frozen=True, slots=True)
class SignedRecords:
    """What was vouched for.

    Attributes:
        job: The job.
        key: The id of the key.
        records: How many records were signed; those that were before are not counted.
        checkpoints: Where each query's checkpoint is, by these records; none before the first start.
        desired: What is meant to be: `running`, `stopped`, or None where nobody said.
    """

    job: str
    key: str
    records: int
    checkpoints: Mapping[str, str]
    desired: str | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def sign_records(job: Job, *, by: Mapping[str, str], unsigned: bool = False) -> SignedRecords:
    """Sign what says which checkpoint counts and what is meant to be, with the first key.

    Args:
        job: The declared job.
        by: Who vouches for them.
        unsigned: See `RecordStream.sign`.

    Raises:
        InputError: There is no key (code `bad-signing-key`).
        ConflictError: Another operation works on the job (`operation-in-progress`).
        FormatError: A record is damaged (`damaged-record`).
        IntegrityError: There are several keys, and none has signed a record (`not-signed`); or one was
            changed since (`bad-signature`).
        StreambankError: See `Job.records`.
    """
    records = job.records()
    require_keys(records.signer.keys)
    with records.operation("sign-records", by=by, any_site=True):
        streams = [
            records.desired_records,
            chosen_records(records),
            upgrade_records(records),
            launched_records(records),
            *(records.generations(one).records for one in job.queries),
            *(records.generations(one).removals for one in job.queries),
            *(taken_back_records(records, one) for one in job.queries),
            together_records(records),
            Sites(records).records,
            begun_records(records),
            refreshed_records(records),
        ]
        identity = records.signer.to_vouch(unsigned=unsigned)
        signed = sum(stream.sign(identity, unsigned=unsigned) for stream in streams)
        records.signer.keep(identity)  # last: until then what was signed before counts
    current = {query: records.generation(query) for query in job.queries}
    desired = records.desired()
    return SignedRecords(
        job.name,
        records.signer.keys[0].id,
        signed,
        {query: one.location for query, one in current.items() if one is not None},
        None if desired is None else desired.state,
    )
