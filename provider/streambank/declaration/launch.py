"""Where a job's driver runs, and in which way it is started there: `[jobs.NAME.launch]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from streambank.core.errors import InputError
from streambank.core.names import check_job_name
from streambank.declaration.credentials import refuse_credentials
from streambank.declaration.fields import Fields

Place = Literal["local", "standalone", "yarn", "kubernetes"]
PLACES: tuple[Place, ...] = get_args(Place)
"""Streambank's own. Any other name is that of a launcher which an installed package registers."""
DeployMode = Literal["client", "cluster"]
DEPLOY_MODES: tuple[DeployMode, ...] = get_args(DeployMode)
Wrong = Callable[[str, str, str], InputError]
"""Makes the error for a field: its name, what is wrong, and what helps."""

LOCAL_MASTER = "local[*]"
NAMESPACE = "spark.kubernetes.namespace"
IMAGE = "spark.kubernetes.container.image"
UPLOAD_PATH = "spark.kubernetes.file.upload.path"
ATTEMPTS = "spark.yarn.maxAppAttempts"

TAG_PREFIX = "streambank-"
"""Before a job's name, in what a cluster finds its drivers by."""
_LONGEST_YARN_TAG = 100
_LONGEST_KUBERNETES_LABEL = 63

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
"""What the name of a registered launcher looks like."""
_ADDRESSES = ("rest", "web", "resource_manager")
_OF_PLACE: Mapping[str, tuple[str, ...]] = {
    "local": (),
    "standalone": ("rest", "web", "supervise"),
    "yarn": ("queue", "principal", "keytab", "resource_manager"),
    "kubernetes": ("namespace", "image", "context", "entry"),
}
_REGISTERED = "a registered launcher"
_OF_REGISTERED = ("supervise", "settings")


def is_local(master: str | None) -> bool:
    """Whether Spark with a master runs on this machine alone; None is the default, which does."""
    return (master or LOCAL_MASTER).startswith("local")


@dataclass(frozen=True, slots=True)
class LaunchPolicy:
    """`[jobs.NAME.launch]`, with the job's `master`.

    Attributes:
        on: What runs its executors: `local` (this machine alone), `standalone`, `yarn` or `kubernetes`; or
            the name of a launcher that a package registers (driver/launchers/registered.py).
        deploy_mode: Where the driver is: `client` (on the machine that starts it), or `cluster`. Always
            `cluster` with a registered launcher.
        master: Spark's master; None where only the connection, or a registered launcher, tells.
        rest: Web address of the standalone master's REST server, without a path; None for the usual one.
        supervise: Whether the standalone master, or the registered launcher's place, brings back a driver
            that failed.
        resource_manager: Web address of YARN's resource manager; None for what Hadoop's configuration says.
        entry: Where `run_query.py` is in the image, such as `local:///opt/streambank/run_query.py`.
        settings: What a registered launcher is told, by name.
        connection: The Airflow connection that says what is not declared.
        spark_home: The distribution of Spark that the connection names, for a job that names none.
    """

    on: str = "local"
    deploy_mode: DeployMode = "client"
    master: str | None = LOCAL_MASTER
    rest: str | None = None
    web: str | None = None
    supervise: bool = False
    queue: str | None = None
    principal: str | None = None
    keytab: str | None = None
    resource_manager: str | None = None
    namespace: str | None = None
    image: str | None = None
    context: str | None = None
    entry: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    connection: str | None = None
    declared: Mapping[str, Any] = field(default_factory=dict)
    spark_home: str | None = None

    @property
    def in_cluster(self) -> bool:
        """Whether the driver itself runs in the cluster, on whichever machine that likes."""
        return self.deploy_mode == "cluster"

    @property
    def is_registered(self) -> bool:
        return self.on not in PLACES

    def comes_back(self, spark: Mapping[str, str]) -> bool:
        """Whether the cluster starts the same driver again by itself where it failed."""
        attempts = spark.get(ATTEMPTS, "1")
        repeated = self.on == "yarn" and not (attempts.isdigit() and int(attempts) <= 1)
        return self.in_cluster and (self.supervise or repeated)


def place_of(master: str) -> Place | None:
    """What a master URL belongs to; None for what nobody here knows."""
    begins: Mapping[str, Place] = {"spark://": "standalone", "k8s://": "kubernetes", "local": "local"}
    if master == "yarn":
        return "yarn"
    return next((place for begin, place in begins.items() if master.startswith(begin)), None)


def read_launch_policy(
    fields: Fields, master: str | None, spark: Mapping[str, str], *, defaults: bool = False
) -> LaunchPolicy:
    """Of `[jobs.NAME.launch]`.

    Args:
        defaults: The table is that of all jobs: only what is wrong in itself is a mistake.

    Raises:
        InputError: Something in it is wrong (code `bad-declaration`).
    """
    names = ("rest", "web", "queue", "principal", "resource_manager", "namespace", "image", "context")
    found: dict[str, Any] = {
        "master": master,
        "on": _on(fields),
        "deploy_mode": fields.choice("deploy_mode", DEPLOY_MODES),
        **{name: fields.text(name) for name in names},
        "supervise": fields.boolean("supervise"),
        "keytab": fields.file("keytab"),
        "entry": fields.text("entry"),
        "settings": fields.settings("settings") or None,
    }
    refuse_credentials(found["settings"] or {}, fields, "settings")
    connection = fields.text("connection")
    fields.done()
    # What a job has from the defaults of all may belong to another place than its own.
    if defaults:
        return LaunchPolicy(master=master or LOCAL_MASTER)
    own = {name: value for name, value in found.items() if value is not None}
    inherited = {name for name in own if not fields.source.has((*fields.path, name))}
    if connection is not None and "master" not in own and "on" not in own:
        return LaunchPolicy(master=None, connection=connection, declared=own)
    more = {} if connection is None else {"connection": connection, "declared": own}
    policy = settle(fields.path[1], own, spark, fields.mistake, inherited, **more)
    if policy.is_registered and connection is not None:
        hint = "Name it in launch.settings, if the launcher reads connections."
        raise fields.mistake("connection", f"{policy.on!r} does not get a Spark connection", hint)
    return policy


def _on(fields: Fields) -> str | None:
    """A place of ours, or what may be the name of a launcher: whether it is installed shows at a launch.

    The other verbs of the job, and all other jobs of the file, do without it.
    """
    value = fields.text("on")
    if value is None or _NAME.fullmatch(value):
        return value
    hint = f"One of: {', '.join(PLACES)}; or the name of an installed launcher."
    raise fields.mistake("on", f"{value!r} is not one of its values", hint)


def settle(
    job: str,
    values: Mapping[str, Any],
    spark: Mapping[str, str],
    wrong: Wrong,
    inherited: set[str] | frozenset[str] = frozenset(),
    **more: Any,
) -> LaunchPolicy:
    """A policy from its fields, each that is not given by its default, and checked as a whole.

    Args:
        values: By name, `master` among them.
        inherited: Fields that may belong to another place; they are then left out.

    Raises:
        InputError: As `wrong` makes it.
    """
    master = values.get("master")
    said: str | None = None if master is not None and "on" in inherited else values.get("on")
    place: str = said or (place_of(master) if master else None) or "local"
    if master is None and place in ("standalone", "kubernetes"):
        raise wrong("on", f"{place!r} needs the job's master", 'Such as "spark://host:7077" or "k8s://...".')
    if place not in PLACES:
        return _registered(place, master, values, wrong, inherited, more)
    if master is not None and place_of(master) not in (place, None):
        raise wrong("on", f"{place!r} does not fit the master {master!r}", "Leave one of them out.")
    mode: DeployMode = values.get("deploy_mode") or "client"
    if mode == "cluster" and place == "local":
        if "deploy_mode" not in inherited:
            raise wrong("deploy_mode", "a driver on this machine does not use a cluster", "Leave it out.")
        mode = "client"
    _check_name(job, place, mode, wrong)
    known = _own_fields(values, place, wrong, inherited)
    for name in _ADDRESSES:
        if name in known:
            known[name] = _address(name, known[name], wrong)
    if (known.get("principal") is None) != (known.get("keytab") is None):
        name = "principal" if known.get("keytab") is None else "keytab"
        raise wrong(name, "principal and keytab go together", "Declare both, or neither.")
    if known.get("supervise") and mode != "cluster":
        raise wrong("supervise", "only a driver in the cluster can be supervised", 'deploy_mode = "cluster".')
    if place == "kubernetes":
        known["namespace"] = known.get("namespace") or spark.get(NAMESPACE) or "default"
    if place == "kubernetes" and mode == "cluster":
        if known.get("image") is None and IMAGE not in spark:
            raise wrong("image", "it is missing", f"Name the container image, here or as {IMAGE}.")
        if known.get("entry") is None and UPLOAD_PATH not in spark:
            hint = f"Name run_query.py in the image (local:///...), or {UPLOAD_PATH} among Spark's settings."
            raise wrong("entry", "nothing says how Streambank's code gets to the driver", hint)
    master = master or ("yarn" if place == "yarn" else LOCAL_MASTER)
    return LaunchPolicy(place, mode, master, **known, **more)


def _registered(
    place: str,
    master: str | None,
    values: Mapping[str, Any],
    wrong: Wrong,
    inherited: set[str] | frozenset[str],
    more: Mapping[str, Any],
) -> LaunchPolicy:
    """The policy of a launcher that a package registers. Its driver counts as one in a cluster everywhere.

    So whoever restores or starts does not take a heartbeat that stood still for a driver that is gone.
    """
    if values.get("deploy_mode") == "client" and "deploy_mode" not in inherited:
        raise wrong("deploy_mode", f"{place!r} decides where its drivers run", "Leave it out.")
    known = _own_fields(values, place, wrong, inherited)
    return LaunchPolicy(place, "cluster", master, **known, **more)


def _check_name(job: str, place: str, mode: DeployMode, wrong: Wrong) -> None:
    """Whether the cluster takes a job's name as the tag, or label, by which drivers are found."""
    tag = f"{TAG_PREFIX}{job}"
    if place == "yarn" and len(tag) > _LONGEST_YARN_TAG:
        most = _LONGEST_YARN_TAG - len(TAG_PREFIX)
        raise wrong(
            "on", f"YARN's tags leave {most} characters for the name {job!r}", "Give it a shorter one."
        )
    if place == "kubernetes" and mode == "cluster":
        most = _LONGEST_KUBERNETES_LABEL - len(TAG_PREFIX)
        if len(job) > most:
            raise wrong(
                "on",
                f"Kubernetes' labels leave {most} characters for the name {job!r}",
                "Give it a shorter one.",
            )
        if not job[-1].isalnum():
            raise wrong(
                "on",
                f"a label of Kubernetes ends with a letter or a digit, and so must the name {job!r}",
                "Give it another one.",
            )


def _own_fields(
    values: Mapping[str, Any], place: str, wrong: Wrong, inherited: set[str] | frozenset[str]
) -> dict[str, Any]:
    own = _OF_REGISTERED if place not in PLACES else _OF_PLACE[place]
    found = {name: values[name] for name in own if values.get(name) is not None}
    for other, names in {**_OF_PLACE, _REGISTERED: _OF_REGISTERED}.items():
        for name in names:
            if values.get(name) is None or name in own:
                continue
            if name not in inherited and values[name] is not False:
                raise wrong(name, f"it is for {other}, and this job runs on {place}", "Leave it out.")
    return found


def _address(name: str, text: str, wrong: Wrong) -> str:
    """One web address or several, with commas between them, each without a slash at its end."""
    found = []
    for one in text.split(","):
        try:
            parts = urlsplit(one.strip())
            good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        except ValueError:
            good = False
        if not good or parts.query or parts.fragment:
            raise wrong(name, "it is not a web address", "Write http://host:port.")
        if parts.username is not None or parts.password is not None:
            raise wrong(
                name, "it contains a login, and logins must not be in this file", "Write http://host:port."
            )
        found.append(one.strip().rstrip("/"))
    return ",".join(found)


def check_cluster_name(job: str, policy: LaunchPolicy, fields: Fields) -> None:
    """Whether the declared cluster takes the name of a job that is derived, such as that of a copy.

    Args:
        fields: The table that makes the name.

    Raises:
        InputError: It does not (code `bad-declaration`).
    """

    def wrong(name: str, what: str, hint: str) -> InputError:
        return fields.source.mistake(fields.path, what, hint)

    fields.source.checked(fields.path, lambda: check_job_name(job))
    _check_name(job, policy.on, policy.deploy_mode, wrong)
