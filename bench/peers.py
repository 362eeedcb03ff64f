"""Other tools that copy or save a directory, from Debian's packages, and how each is asked to do it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

SETTINGS = {"RESTIC_PASSWORD": "bench", "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}


@dataclass(frozen=True, slots=True)
class Peer:
    """A tool.

    Attributes:
        name: What the tables call it.
        package: Debian's package of it.
        program: Its program.
        prepare: Arguments that make its repository, which are not timed; empty where there is none.
        save: Arguments that save `{source}` to `{target}`; `{turn}` is a number that goes up.
        again: Whether a second save moves only what is new.
    """

    name: str
    package: str
    program: str
    save: Sequence[str]
    prepare: Sequence[str] = ()
    again: bool = True

    @property
    def there(self) -> bool:
        """Whether it is installed."""
        return shutil.which(self.program) is not None

    def run(
        self,
        arguments: Sequence[str],
        source: Path,
        target: Path | str,
        turn: int,
        home: Path,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Run it with the places filled in.

        Args:
            arguments: What it is asked, with the names of places.
            source: What is saved.
            target: Where to.
            turn: A number that goes up.
            home: A folder for what it remembers.
            settings: More environment variables.

        Raises:
            RuntimeError: It failed.
        """
        filled = [part.format(source=source, target=target, turn=turn) for part in arguments]
        own = {"HOME": str(home), "XDG_CACHE_HOME": f"{home}/cache", "BORG_BASE_DIR": f"{home}/borg"}
        done = subprocess.run(
            [self.program, *filled],
            env={**os.environ, **own, **SETTINGS, **settings},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name} failed: {done.stderr.decode(errors='replace')[-500:]}")


CP = Peer("cp -r", "coreutils", "cp", ["-r", "{source}", "{target}"], again=False)
# What a copy costs that is on the disk when it is done, as a savepoint is.
FLUSHED = 'cp -r "$0" "$1" && sync -f "$1"'
PEERS = (
    Peer("cp -r && sync -f", "coreutils", "sh", ["-c", FLUSHED, "{source}", "{target}"], again=False),
    Peer("cp -rl", "coreutils", "cp", ["-rl", "{source}", "{target}"], again=False),
    Peer("rsync -a", "rsync", "rsync", ["-a", "{source}/", "{target}"]),
    Peer(
        "restic backup",
        "restic",
        "restic",
        ["-q", "-r", "{target}", "backup", "{source}"],
        prepare=["-q", "-r", "{target}", "init"],
    ),
    Peer(
        "borg create",
        "borgbackup",
        "borg",
        ["create", "{target}::{turn}", "{source}"],
        prepare=["init", "--encryption=none", "{target}"],
    ),
    Peer("rclone sync", "rclone", "rclone", ["-q", "sync", "{source}", "{target}"]),
)


def missing(peers: Sequence[Peer] = PEERS) -> str:
    """In one line which peers are not installed and how to get them; empty where all are."""
    absent = [peer for peer in peers if not peer.there]
    if not absent:
        return ""
    names = ", ".join(peer.program for peer in absent)
    packages = " ".join(sorted({peer.package for peer in absent}))
    return f"Not installed, so not measured: {names} (Debian: apt-get install {packages})."
