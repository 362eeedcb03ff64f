"""Postgres of the system's packages, as a part: data in a folder of the stack, TCP on loopback only."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from demo.parts import Part
from demo.ports import HOST
from demo.stack.places import StackPlaces

USER = "airflow"
DATABASE = "airflow"
SYSTEM_USER = "postgres"
INSTALLED = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
MISSING = "Postgres is missing: install it (Debian: apt-get install postgresql), and try again"
REQUIRED = ("initdb", "postgres", "createdb")


class MissingError(Exception):
    """Something has to be installed, or put elsewhere, before the stack can start; says what."""


def binaries() -> Path:
    """The folder of the newest Postgres' programs: Debian has them outside of the path.

    Raises:
        MissingError: There is none.
    """
    folders = [Path(found).parent] if (found := shutil.which("initdb")) else []
    folders += [folder for pattern in INSTALLED for folder in Path("/").glob(pattern.lstrip("/"))]
    whole = [folder for folder in folders if all((folder / name).is_file() for name in REQUIRED)]
    if not whole:
        raise MissingError(MISSING)
    return max(whole, key=_version)


def _version(folder: Path) -> int:
    return int((re.findall(r"\d+", str(folder)) or ["0"])[-1])


def url(port: int, password: str) -> str:
    """How Airflow reaches it."""
    return f"postgresql+psycopg2://{USER}:{password}@{HOST}:{port}/{DATABASE}"


def parts(places: StackPlaces, port: int, password: str, environment: Mapping[str, str]) -> list[Part]:
    """Make the database where it is new, and keep the server.

    Args:
        places: The stack's folders.
        port: Where it listens.
        password: Of its one user.
        environment: What every part gets.

    Raises:
        MissingError: It is not installed, or its system user cannot get to the folder.
    """
    programs = binaries()
    data = places.postgres / "data"
    new = not (data / "PG_VERSION").exists()
    places.postgres.mkdir(parents=True, exist_ok=True)
    as_user: tuple[str, ...] = ()
    if os.geteuid() == 0:
        as_user = _as_system_user(places.postgres)
    own = {**environment, "HOME": str(places.postgres)}
    here = str(places.postgres)
    found: list[Part] = []
    if new:
        shutil.rmtree(data, ignore_errors=True)  # of a first start that was interrupted
        secret = places.postgres / "password"
        secret.touch(mode=0o600)
        secret.write_text(password)
        if as_user:
            shutil.chown(secret, SYSTEM_USER, SYSTEM_USER)
        options = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions")
        command = (str(programs / "initdb"), "-D", str(data), "-U", USER, f"--pwfile={secret}", *options)
        found.append(Part("initdb", (*as_user, *command), own, here, once=True))
    # No socket in the file system: its path may be too long, and it would be one more thing to leave behind.
    settings = ("unix_socket_directories=", f"listen_addresses={HOST}", "shared_buffers=32MB")
    configured = [word for one in settings for word in ("-c", one)]
    found.append(
        Part(
            "postgres",
            (*as_user, str(programs / "postgres"), "-D", str(data), "-p", str(port), *configured),
            own,
            here,
            ready=f"postgres://{HOST}:{port}/postgres",
            ends_last=True,
        )
    )
    if new:
        where = ("-h", HOST, "-p", str(port), "-U", USER)
        client = {**own, "PGPASSWORD": password}
        found.append(
            Part(
                "createdb",
                (str(programs / "createdb"), *where, "--no-password", DATABASE),
                client,
                here,
                once=True,
            )
        )
    return found


def _as_system_user(folder: Path) -> tuple[str, ...]:
    """What runs a program as Postgres' own user, since it refuses to run as root; it gets the folder."""
    try:
        user = pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise MissingError(f"The user {SYSTEM_USER} does not exist: {MISSING}") from None
    for parent in folder.parents:
        mode = parent.stat().st_mode
        if not mode & stat.S_IXOTH and user.pw_uid != parent.stat().st_uid:
            raise MissingError(
                f"The user {SYSTEM_USER} may not pass through {parent}, so Postgres cannot have its data in "
                f"{folder}: choose another folder with --home"
            )
    shutil.chown(folder, SYSTEM_USER, SYSTEM_USER)
    folder.chmod(0o700)
    return (
        "setpriv",
        f"--reuid={SYSTEM_USER}",
        f"--regid={SYSTEM_USER}",
        "--init-groups",
        "--pdeathsig=TERM",
    )
