"""The other site of a job (`[jobs.NAME.standby]`), and the job as it is there.

Checkpoint, savepoints and records of each site are in separate places; the name of the job is the same, so
savepoints that were replicated to the standby's repository are those of the job there, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from streambank.control.place import SUFFIX, beside
from streambank.declaration.credentials import refuse_credentials
from streambank.declaration.fields import Fields
from streambank.declaration.kafka import read_kafka
from streambank.declaration.launch import LaunchPolicy, read_launch_policy
from streambank.declaration.policy import File, Interpreter, read_policy
from streambank.declaration.sinks import read_sinks
from streambank.kafka.settings import KafkaConnection
from streambank.sinks.declared import DeclaredSink
from streambank.storage import is_inside


def _outputs(fields: Fields, name: str) -> dict[str, str]:
    table = fields.table(name)
    found = {table.as_location(old, old): table.required(old, table.location(old)) for old in table.data}
    for old, new in found.items():
        if is_inside(new, old) or is_inside(old, new):
            raise fields.mistake(name, f"{old} and {new} are not apart", "Name another directory.")
    if len(set(found.values())) < len(found):
        raise fields.mistake(name, "two of them go on in one directory", "Name one for each.")
    return found


@dataclass(frozen=True, slots=True)
class Standby:
    """`[jobs.NAME.standby]`: what is another there than at the primary; None for the same.

    Attributes:
        repository: Its repository of savepoints, one of `replicate.to` of the primary.
        outputs: Output directories of file sinks of the primary, each with the one that is used here instead.
        approve: Whether `<job>.failover` shows its plan, and waits for a person's approval.
    """

    checkpoint: str
    repository: str
    control: str
    application: File | None = None
    args: tuple[str, ...] | None = None
    env: tuple[str, ...] | None = None
    python: Interpreter | None = None
    spark_home: File | None = None
    launch: LaunchPolicy | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    kafka: KafkaConnection | None = None
    sinks: tuple[DeclaredSink, ...] | None = None
    outputs: Annotated[Mapping[str, str], _outputs] = field(default_factory=dict)
    approve: bool = True


@dataclass(frozen=True, slots=True)
class PrimaryPlaces:
    """What of a job's primary its standby is held against.

    Attributes:
        control: The declared place of the records; None for the usual one.
    """

    checkpoint: str
    queries: Mapping[str, str]
    repository: str
    control: str | None
    replicas: tuple[str, ...]
    spark: Mapping[str, str]


def read_standby(fields: Fields, primary: PrimaryPlaces, *, env: tuple[str, ...] | None) -> Standby | None:
    """Of `[jobs.NAME.standby]`; None where there is none.

    Args:
        env: What the table says of environment variables, checked.

    Raises:
        InputError: Something in it is wrong (code `bad-declaration`).
    """
    if not fields.data:
        return None
    spark = fields.settings("spark")
    refuse_credentials(spark, fields)
    checkpoint = fields.required("checkpoint", fields.location("checkpoint"))
    repository = fields.required("repository", fields.location("repository"))
    control = fields.location("control")
    if control is None:
        # Not beside a bucket, and not by what is mounted on this machine, which the other site may not have.
        rest = repository.partition("://")[2].strip("/")
        if not rest or ("/" not in rest and not repository.startswith("file:")):
            raise fields.mistake("control", "it is missing, and nothing is beside a whole bucket", "Name it.")
        control = f"{repository}{SUFFIX}"
    master, launch = fields.text("master"), None
    if master is not None or "launch" in fields.data:
        launch = read_launch_policy(fields.table("launch"), master, {**primary.spark, **spark})
    found = read_policy(
        fields,
        Standby,
        checkpoint=checkpoint,
        repository=repository,
        control=control,
        env=env,
        launch=launch,
        spark=spark,
        kafka=read_kafka(fields.table("kafka")) if "kafka" in fields.data else None,
        sinks=read_sinks(fields, primary.queries) if "sinks" in fields.data else None,
    )
    _check_apart(fields, primary, found)
    return found


def _check_apart(fields: Fields, primary: PrimaryPlaces, standby: Standby) -> None:
    """Make sure that nothing of one site is in anything of the other, and that savepoints get to the standby.

    Raises:
        InputError: Something is (code `bad-declaration`).
    """
    control = primary.control or beside(primary.repository) or primary.repository
    theirs = {"checkpoint": primary.checkpoint, "repository": primary.repository, "control": control}
    own = {
        "checkpoint": standby.checkpoint,
        "repository": standby.repository,
        "control": standby.control,
    }
    for name, place in own.items():
        for other, there in theirs.items():
            if is_inside(place, there) or is_inside(there, place):
                raise fields.mistake(
                    name,
                    f"{place} is not apart from the {other} {there} of the primary",
                    "Name a place of the other site.",
                )
    for name in ("repository", "control"):
        if is_inside(own[name], standby.checkpoint):
            raise fields.mistake(
                name, f"{own[name]} is inside the standby's checkpoint", "Name a directory elsewhere."
            )
    if standby.repository not in primary.replicas:
        raise fields.mistake(
            "repository",
            f"{standby.repository} is not in replicate.to of the job, so no savepoint would get there",
            "Add it to replicate.to.",
        )
