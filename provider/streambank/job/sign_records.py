"""Signing a job's records that were made without a key, or elsewhere: somebody vouches for what they say.

So that is shown first, all of it that decides where the job runs, with which code, and what may be removed;
and where a forgery would say the same, nothing is signed without a yes. Signed are the very bytes that were
shown. Of a stream whose newest record alone counts, older ones are not signed: one of them would count if
somebody deleted what came after it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from streambank.code.chosen import CHOSEN, INTERRUPTED, UPGRADES
from streambank.code.code import Code
from streambank.control.control import JobControl
from streambank.control.copies import BEGUN, REFRESHED, queries_of
from streambank.control.generations import Generation, is_generation_of
from streambank.control.records import JsonDict, Record, RecordStream
from streambank.control.rollbacks import taken_back_records
from streambank.control.signed import Identity
from streambank.control.together import TOGETHER
from streambank.core.errors import FormatError, InputError, IntegrityError, NotFoundError, RefusedError
from streambank.core.shape import HIDDEN, JsonObject
from streambank.core.signing import require_keys
from streambank.core.units import say_count
from streambank.declaration.declaration import Job
from streambank.driver.spec import LAUNCHED, decode_launch, launch_key
from streambank.sites.records import Sites
from streambank.storage.store import read_record

_BY_NEWEST = frozenset({CHOSEN, UPGRADES, LAUNCHED, "taken-back", TOGETHER})
"""Streams whose newest record alone counts."""


@dataclass(frozen=True, slots=True)
class Vouched(JsonObject):
    """What records say that are to be signed, or were.

    Attributes:
        records: How many of them the key has not signed as they are; those that were signed, afterwards.
        checkpoints: Where each query's checkpoint is, by these records; none before the first start.
        locations: The directories of all generations of each query, and of outputs that they write instead.
        directories: Those that refreshes fill, and may remove.
        desired: What is meant to be: `running`, `stopped`, or None where nobody said.
        code: What an upgrade chose last instead of the declared code: `application`, `python`, `spark_home`,
            and how many `args` and `settings`; None for nothing.
        upgrade: The newest upgrade: its `name`, `state`, and the codes `before` and `after`, either of which
            may run again; None for none.
        launched: What was launched last, to which an upgrade may go back: `launch_id` and `code` (None where
            that launch is not there); None for nothing.
        site: What says which site is the active one: `state` and `site`; None where nothing does.
        doubts: What a forgery would say as well, in sentences: somebody has to know that it is right.
        seen: The digest of each record that was looked at, by its key.
    """

    job: str
    key: str
    records: int
    checkpoints: Mapping[str, str]
    locations: Mapping[str, tuple[str, ...]]
    directories: tuple[str, ...]
    desired: str | None
    code: Mapping[str, Any] | None
    upgrade: Mapping[str, Any] | None
    launched: Mapping[str, Any] | None
    site: Mapping[str, str] | None
    doubts: tuple[str, ...]
    seen: Annotated[Mapping[str, str], HIDDEN] = field(repr=False)


def look_at_records(job: Job, *, unsigned: bool = False) -> Vouched:
    """What `sign_records` would vouch for. Writes nothing.

    Args:
        unsigned: See `RecordStream.sign`.

    Raises:
        InputError: There is no key (code `bad-signing-key`).
        FormatError: A record is damaged (`damaged-record`).
        StreambankError: See `Job.records`, and `Signer.to_vouch`.
    """
    records = job.records()
    require_keys(records.signer.keys)
    return _look(job, records, records.signer.to_vouch(unsigned=unsigned))


def sign_records(
    job: Job,
    *,
    by: Mapping[str, str],
    unsigned: bool = False,
    yes: bool = False,
    shown: Vouched | None = None,
) -> Vouched:
    """Sign what says which checkpoint counts, what runs, and what is meant to be, with the first key.

    Args:
        unsigned: See `RecordStream.sign`.
        yes: Also where a forgery would say the same (`Vouched.doubts`).
        shown: What `look_at_records` gave, where that was shown: nothing else is signed.

    Raises:
        RefusedError: There are doubts, and no yes (code `not-confirmed`).
        ConflictError: A record has come since it was shown, or was changed (`records-changed`); another
            operation works on the job (`operation-in-progress`).
        IntegrityError: There are several keys, and none has signed a record (`not-signed`); or one was
            changed since (`bad-signature`).
    """
    records = job.records()
    require_keys(records.signer.keys)
    with records.operation("sign-records", by=by, any_site=True):
        vouched = shown or _look(job, records, records.signer.to_vouch(unsigned=unsigned))
        if vouched.records and vouched.doubts and not yes:
            raise RefusedError(
                f"Records of job {job.name} say what a forgery would say as well: {' '.join(vouched.doubts)}",
                code="not-confirmed",
                hint="If you know that it is right, give --yes. If not, look at the records.",
            )
        identity = records.signer.to_vouch(unsigned=unsigned, begin=True)
        for stream in _streams(job, records):
            stream.sign(identity, vouched.seen, unsigned=unsigned, newest=_by_newest(stream))
        records.signer.keep(identity)  # last: until then what was signed by the one before counts
    return vouched


def _streams(job: Job, records: JobControl) -> Iterator[RecordStream]:
    yield from (records.desired_records, *map(records.signed, (CHOSEN, UPGRADES, LAUNCHED)))
    for query in job.queries:
        yield from (records.generations(query).records, records.generations(query).removals)
        yield taken_back_records(records, query)
    yield from (records.signed(TOGETHER), Sites(records).records)
    yield from map(records.signed, (BEGUN, REFRESHED))


def _by_newest(stream: RecordStream) -> bool:
    return stream.prefix.partition("/")[0] in _BY_NEWEST


def _look(job: Job, records: JobControl, identity: Identity) -> Vouched:
    found = {
        one.prefix: list(one.unproven(identity, newest=_by_newest(one))) for one in _streams(job, records)
    }
    said = {prefix: [one.record for one in each] for prefix, each in found.items()}
    generations = {
        query: [one.decode(Generation) for one in said[records.generations(query).records.prefix]]
        for query in job.queries
    }
    current = {query: each[-1].location for query, each in generations.items() if each}
    for record in said[REFRESHED]:
        for query, one in queries_of(record).items():
            generations.setdefault(query, []).append(one.generation)
    chosen, upgrade, launched = (_last(said, one) for one in (CHOSEN, UPGRADES, LAUNCHED))
    ran, state = _ran(records, launched), _last(said, "desired").get("state")
    signed = {prefix for prefix, each in found.items() if each and each[-1].signed}
    codes = (
        ("chosen", "An upgrade has chosen", chosen.get("code")),
        ("upgrades", f"The upgrade {upgrade.get('name')} may go back to", upgrade.get("before")),
        ("upgrades", f"The upgrade {upgrade.get('name')} has brought", upgrade.get("after")),
        ("launched", "An upgrade may go back to what was launched last:", ran if launched else None),
    )
    return Vouched(
        job.name,
        records.signer.keys[0].id,
        sum(not one.signed for each in found.values() for one in each),
        current,
        {
            query: tuple(dict.fromkeys(place for one in each for place in one.places()))
            for query, each in generations.items()
        },
        tuple(str(one) for record in said[BEGUN] for one in _several(record.data.get("directories"))),
        None if state is None else str(state),
        _code(chosen.get("code")),
        {**_only(upgrade, "name", "state"), **{one: _code(upgrade.get(one)) for one in ("before", "after")}}
        if upgrade
        else None,
        {**_only(launched, "launch_id"), "code": _code(ran)} if launched else None,
        _only(_last(said, "sites"), "state", "site") if said["sites"] else None,
        (
            *_code_doubts(job, [(what, code) for of, what, code in codes if of not in signed]),
            *_doubts(job, generations, upgrade),
        ),
        {one.key: one.digest for each in found.values() for one in each},
    )


def _ran(records: JobControl, launched: JsonDict) -> Mapping[str, Any]:
    """The code of a launch; nothing in it where the launch is not there, or is not what the record says."""
    name = str(launched.get("launch_id"))
    try:
        data = read_record(records.store, launch_key(name))
        return decode_launch(data, name, str(launched.get("digest"))).code or {}
    except (InputError, NotFoundError, FormatError, IntegrityError):
        return {}


def _code_doubts(job: Job, codes: Sequence[tuple[str, object]]) -> Iterator[str]:
    """What is said of codes that are not the declared one."""
    declared = Code.declared(job).to_dict()
    for what, said in codes:
        if said == {}:
            yield f"{what} code that is not there to be looked at."
        code = _code(said)
        if code is None or said == declared:
            continue
        python = code["python"] or "the interpreter that is declared"
        yield (
            f"{what} the code of {code['application']}, with {python}, "
            f"{say_count(code['args'], 'argument')} and {say_count(code['settings'], 'setting')}."
        )


def _doubts(job: Job, generations: Mapping[str, Sequence[Generation]], upgrade: JsonDict) -> Iterator[str]:
    if str(upgrade.get("state")) in INTERRUPTED:
        yield f"The upgrade {upgrade.get('name')} was interrupted ({upgrade.get('state')}): the next goes on."
    for query, each in generations.items():
        for location in dict.fromkeys(one.location for one in each):
            if not is_generation_of(job.queries.get(query, ""), location):
                yield f"{location}, of query {query}, is not at its declared checkpoint."


def _last(said: Mapping[str, Sequence[Record]], prefix: str) -> JsonDict:
    return said[prefix][-1].data if said[prefix] else {}


def _only(data: JsonDict, *names: str) -> dict[str, str]:
    return {name: str(data.get(name)) for name in names}


def _several(said: object) -> Collection[object]:
    """What a record says where it says several things; a forged one may say anything."""
    return said if isinstance(said, list | dict) else ()


def _code(said: object) -> dict[str, Any] | None:
    """What a chosen code is, without its arguments, which may be long, and its settings."""
    if not said or not isinstance(said, dict):
        return None
    counted = {"args": len(_several(said.get("args"))), "settings": len(_several(said.get("spark")))}
    return _only(said, "application") | {name: said.get(name) for name in ("python", "spark_home")} | counted
