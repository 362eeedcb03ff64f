"""A clone on a bare Debian: README's own line of packages is all that the suite and the demo need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.timeout(3 * 3600)

# A bare Debian beside this machine: a root of its own, in which only what the README names is installed.
#
# What reaches it of this machine is how packages are fetched (apt's sources, certificates, the name server),
# and nothing else: no cache, no package, no variable. Its processes end with the script that is run in it.

PERSON = "newcomer"
HOME = f"/home/{PERSON}"
CLONE = f"{HOME}/streambank"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_INSIDE_CERTIFICATES = "/etc/ssl/of-this-machine.crt"
"""Where they are inside: a package there writes the usual file again, without those of this machine."""
_FROM_HERE = ("/etc/resolv.conf", "/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources")
_OF_CERTIFICATES = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A command within the root, with its own /proc and /dev, and a host name of its own.
_INSIDE = """
set -e
mount --bind "$0" "$0" && cd "$0"
mount -t proc proc "$0/proc"
mount --rbind /dev "$0/dev" && mount --make-rslave "$0/dev"
mount -t tmpfs -o size=512m tmpfs "$0/dev/shm"
hostname newcomers-machine
exec chroot "$0" /usr/bin/env -i "$@"
"""


class NoBareDebianError(AssertionError):
    """This machine cannot make one; the message says why."""


@dataclass(frozen=True, slots=True)
class BareDebian:
    folder: Path

    @classmethod
    def make(cls, folder: Path) -> BareDebian:
        """Fetch one, with a clone of this checkout's commit in the home of a person."""
        if os.geteuid() != 0:
            raise NoBareDebianError("a bare Debian is made by root")
        if shutil.which("debootstrap") is None:
            raise NoBareDebianError("debootstrap is missing: apt-get install debootstrap")
        command = ["debootstrap", "--variant=minbase", "bookworm", str(folder), *_mirror()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name in _FROM_HERE:
            (folder / name.lstrip("/")).unlink(missing_ok=True)
            if Path(name).exists():
                shutil.copy(name, folder / name.lstrip("/"))
        own = folder / _INSIDE_CERTIFICATES.lstrip("/")
        own.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_CERTIFICATES, own)
        with (folder / "etc" / "hosts").open("a", encoding="utf-8") as hosts:
            # As Debian's installer does.
            hosts.write("127.0.0.1 localhost\n127.0.1.1 newcomers-machine\n::1 localhost ip6-localhost\n")
        subprocess.run(["chroot", str(folder), "useradd", "--create-home", PERSON], check=True)
        clone = folder / CLONE.lstrip("/")
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        subprocess.run(["chroot", str(folder), "chown", "-R", f"{PERSON}:{PERSON}", CLONE], check=True)
        return cls(folder)

    def copy(self, folder: Path) -> BareDebian:
        subprocess.run(["cp", "-a", str(self.folder), str(folder)], check=True)
        return BareDebian(folder)

    def run(self, script: str, log: Path, *, root: bool = False) -> int:
        """Run a script in the clone, and end whatever it leaves behind.

        Args:
            root: As root, and not as the person.

        Returns:
            Its exit code.
        """
        given = [f"{name}={_INSIDE_CERTIFICATES}" for name in _OF_CERTIFICATES]
        who = "root" if root else PERSON
        home = "/root" if root else HOME
        become = [] if root else ["setpriv", f"--reuid={who}", f"--regid={who}", "--init-groups"]
        shell = [*become, "sh", "-c", f"cd {CLONE} && {{ {script}\n}}"]
        space = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc"]
        given += [_PATH, f"HOME={home}", "LANG=C.UTF-8"]
        command = [*space, "sh", "-c", _INSIDE, str(self.folder), *given, *shell]
        with log.open("ab") as output:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False
            ).returncode


def _mirror() -> list[str]:
    """Where this machine's own apt fetches Debian from; nothing where it does not say."""
    for name in _FROM_HERE[1:]:
        file = Path(name)
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            words = line.split()
            if words[:1] in (["URIs:"], ["deb"]):
                return [words[1]]
    return []


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> BareDebian:
    return BareDebian.make(tmp_path_factory.mktemp("debian") / "pristine")


@pytest.fixture
def debian(pristine: BareDebian, tmp_path: Path) -> Iterator[BareDebian]:
    yield pristine.copy(tmp_path / "root")


def packages() -> str:
    """README's line."""
    found = re.search(r"`(apt-get install [^`]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None
    return found[1].replace("apt-get install", "apt-get install --yes --quiet")


def test_a_person_with_the_packages_of_the_readme_plays_the_demo_and_passes_the_suite(
    debian: BareDebian, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    assert debian.run(f"apt-get update --quiet && {packages()}", log, root=True) == 0, log.read_text()[-5000:]
    assert debian.run("make demo && make test", log) == 0, log.read_text()[-20000:]
    assert debian.run('test -z "$(git status --porcelain)"', log) == 0, log.read_text()[-2000:]


def test_ci_installs_what_it_needs(debian: BareDebian, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert debian.run("bash .ci/run", log, root=True) == 0, log.read_text()[-20000:]
