"""`make check-compose`: docker-compose.yml read by the parser of Compose, in Docker or in a Go program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from demo.places import ROOT

FILE = ROOT / "docker-compose.yml"
VARIABLES = ROOT / ".env.example"
MISSING = (
    "Compose's parser is missing: install Docker with its compose plugin, or Go 1.24 or newer (Debian: "
    "apt-get install golang), which builds docker/check"
)
PASSED_ON = ("PATH", "HOME", "DOCKER_HOST", "GOCACHE", "GOFLAGS", "GOPROXY", "HTTPS_PROXY", "https_proxy")
TIMEOUT_S = 900


def command() -> tuple[Sequence[str], Path] | None:
    """What parses the file, and where it is run; None where neither Docker Compose nor Go is here."""
    docker, go = shutil.which("docker"), shutil.which("go")
    if docker is not None and _works([docker, "compose", "version"]):
        return [docker, "compose", "-f", str(FILE), "--env-file", str(VARIABLES), "config", "--quiet"], ROOT
    if go is not None:
        return [go, "run", ".", str(FILE), str(VARIABLES)], ROOT / "docker" / "check"
    return None


def _works(words: Sequence[str]) -> bool:
    return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0


def main() -> int:
    """Parse it; 0 where it is right, 1 where not, or where nothing here can tell."""
    found = command()
    if found is None:
        print(MISSING, file=sys.stderr)
        return 1
    words, folder = found
    # Neither what this shell has set nor a .env of this checkout is to decide.
    variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    code = subprocess.run(words, cwd=folder, env=variables, timeout=TIMEOUT_S, check=False).returncode
    print(f"{Path(words[0]).name}: {FILE.name} is {'valid' if code == 0 else 'not valid'}")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
