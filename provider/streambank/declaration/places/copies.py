"""Copies of a job's production state (`[jobs.NAME.copies.COPY]`), and the job as it runs on one.

A copy is a second query beside the first: its checkpoint, records, savepoints and outputs are apart from
those of the job, and its query ids are new ones. `JOB@COPY` names the job on the copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from streambank.control.place import SUFFIX
from streambank.core.choices import SourceChoice
from streambank.core.names import MAIN, SITES, check_name
from streambank.declaration.fields import Fields
from streambank.declaration.places.standby import PrimaryPlaces
from streambank.declaration.policy import Location, Schedule, read_policy
from streambank.declaration.state import HotKeysPolicy, read_hot_keys
from streambank.storage import is_inside, same_place

NEAREST = "nearest"
"""What stands for the nearest of the job's repository and its replicas that has the savepoint undamaged."""
KEEP = 2
"""How many copies stay where no number is declared: the one in use and the one before it."""
SAVEPOINTS = ".savepoints"
"""Savepoints of a copy with its checkpoint in `x` are in `x.savepoints`, and its records beside them."""
_GENERATION = re.compile(r"\.g[0-9]{4,}(?:[./].*)?")
_NUMBER = re.compile(r"\.g[0-9]{4,}(?:\..*)?$")


def _repository(fields: Fields, name: str) -> str | None:
    return NEAREST if fields.text(name) == NEAREST else fields.location(name)


def _outputs(fields: Fields, name: str) -> dict[str, str]:
    """A key with a slash or a scheme is a location; any other is the name of a table or a topic."""
    table = fields.table(name)
    found: dict[str, str] = {}
    for old in table.data:
        key = table.as_location(old, old) if "/" in old else old
        if any(key == one or ("/" in key and "/" in one and same_place(key, one)) for one in found):
            raise table.mistake(old, f"{key} is named twice", "Name each output once.")
        found[key] = table.required(old, table.location(old))
    return found


@dataclass(frozen=True, slots=True)
class CopyPolicy:
    """`[jobs.NAME.copies.COPY]`: a copy of the job's state, with its outputs elsewhere.

    Attributes:
        checkpoint: Where its state is, a URI. Each refresh has a directory beside it, such as
            `<checkpoint>.g0002`.
        outputs: Outputs of the job, each with the directory that the application writes to on the copy. An
            output is the URI of a directory, or the name of a table or a topic. None: the copy is of the
            state alone, for people who look at it, and no application may run on it.
        repository: The repository or replica that savepoints come from, or `nearest`; None for the job's own.
        source: What a refresh does where the sources have not all of what the copy would read next:
            `refuse` or `accept`.
        keep: How many copies stay, the one in use among them.
        hot_keys: How the keys with the most traffic are sampled on the copy; None for not at all, whatever
            the job itself declares.
    """

    name: str
    checkpoint: Location
    outputs: Annotated[Mapping[str, str], _outputs] = field(default_factory=dict)
    repository: Annotated[str, _repository] | None = None
    control: Location | None = None
    source: SourceChoice = "refuse"
    schedule: Schedule | None = None
    keep: int = KEEP
    hot_keys: HotKeysPolicy | None = None

    @property
    def savepoints(self) -> str:
        """The repository of savepoints that are taken of the copy itself."""
        return f"{self.checkpoint}{SAVEPOINTS}"

    @property
    def records(self) -> str:
        """The control location of the copy."""
        return self.control or f"{self.savepoints}{SUFFIX}"

    @property
    def state_only(self) -> bool:
        """Whether no application may run on it."""
        return not self.outputs

    def queries(self, names: Iterable[str]) -> dict[str, str]:
        """Where each query has its declared checkpoint."""
        return {one: self.checkpoint if one == MAIN else f"{self.checkpoint}/{one}" for one in names}

    def places(self) -> Iterator[tuple[str, str]]:
        """What is written for the copy: each location, with the field of the declaration."""
        yield "checkpoint", self.checkpoint
        yield "checkpoint", self.savepoints
        yield "control", self.records
        for output in self.outputs.values():
            yield "outputs", output


def read_copies(fields: Fields, live: PrimaryPlaces) -> dict[str, CopyPolicy]:
    """Of `[jobs.NAME.copies]`.

    Raises:
        InputError: Something in it is wrong (code `bad-declaration`).
    """
    found: dict[str, CopyPolicy] = {}
    for name in fields.data:
        table = fields.table(name)
        fields.checked(name, partial(check_name, name, "copy"))
        if name in SITES:
            raise fields.mistake(name, "this is the name of a site", "Give the copy another name.")
        copy = _read_copy(name, table)
        _check_apart(table, copy, live, list(found.values()))
        found[name] = copy
    return found


def _read_copy(name: str, fields: Fields) -> CopyPolicy:
    copy = read_policy(fields, CopyPolicy, name=name, hot_keys=read_hot_keys(fields))
    if copy.hot_keys is not None and copy.state_only:
        raise fields.mistake(
            "hot_keys",
            "no application runs on a copy of the state alone",
            "Name its outputs, or leave it out.",
        )
    return copy


def _check_apart(fields: Fields, copy: CopyPolicy, live: PrimaryPlaces, others: Sequence[CopyPolicy]) -> None:
    """Make sure that nothing of the copy is in anything of the job or of another copy, or the other way.

    Raises:
        InputError: Something is (code `bad-declaration`).
    """
    theirs = {
        **{place: "the checkpoint" for place in (live.checkpoint, *live.queries.values())},
        live.repository: "the repository",
        live.control or f"{live.repository}{SUFFIX}": "the control location",
        **{place: "a replica" for place in live.replicas},
        **{old: "an output" for old in copy.outputs if "/" in old},
        **{place: f"the copy {other.name}" for other in others for _, place in other.places()},
    }
    own = list(copy.places())
    for at, (name, place) in enumerate(own):
        for there, what in theirs.items():
            if not are_apart(place, there):
                raise fields.mistake(
                    name, f"{place} is not apart from {what} {there}", "Name a directory elsewhere."
                )
        for _, other in own[:at]:
            if not are_apart(place, other):
                raise fields.mistake(
                    name, f"{place} is not apart from {other} of the same copy", "Name a directory elsewhere."
                )


def copy_name(job: str, copy: str) -> str:
    """What the drivers of a job are called that run on a copy."""
    return f"{job}-{copy}"


def are_apart(one: str, other: str) -> bool:
    """Whether neither of two locations holds the other, the directories of its generations included."""
    return not (
        is_inside(one, other)
        or is_inside(other, one)
        or _GENERATION.fullmatch(one.removeprefix(other))
        or _GENERATION.fullmatch(other.removeprefix(one))
    )


def without_generation(name: str) -> str:
    """The name of the directory that a generation is beside: `orders` for `orders.g0002`."""
    return _NUMBER.sub("", name) or name
