"""Asks a database for known weaknesses of what the lock pins: `python -m supply.vulnerabilities [OPTIONS]`.

Options are those of pip-audit. 0 where there are none, 1 where there are some, 2 where the database did not
answer for all: no answer is not "none known".
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from supply.lock import LOCKS, ROOT

UNKNOWN = 2
_COMMAND = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")


def audit(options: Sequence[str] = ()) -> tuple[int, str]:
    """Exit code and what there is to say."""
    named = [part for lock in LOCKS for part in ("--requirement", str(ROOT / lock))]
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "pip_audit", *named, *_COMMAND, "--output", str(answer), *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        try:
            found: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))["dependencies"]
        except (OSError, ValueError, KeyError):
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            return UNKNOWN, f"The database of known vulnerabilities did not answer: {said}"
    unknown = [one["name"] for one in found if "skip_reason" in one]
    weak = [f"{one['name']} {one['version']}: {bug['id']}" for one in found for bug in one.get("vulns", ())]
    if unknown:
        of = f"{len(unknown)} of {len(found)} packages"
        weak.append(f"The database of known vulnerabilities did not answer for {of}.")
        return UNKNOWN, "\n".join(weak)
    return (1, "\n".join(weak)) if weak else (0, f"{len(found)} packages: no vulnerability is known.")


if __name__ == "__main__":
    code, text = audit(sys.argv[1:])
    print(text, file=sys.stderr if code else sys.stdout)
    sys.exit(code)
