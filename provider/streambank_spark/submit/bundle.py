"""What a cluster gets from this installation, as zips: exactly the code that is installed here.

* `write_bundle`: the engine and the Spark face, for `--py-files`. A zip, since executors refuse wheels.
* `write_packages`: the installed packages that the engine imports where it works, for `--archives`, which
  Spark unpacks: native code cannot be imported out of a zip.

Both are sorted and have fixed times, so the same code gives the same bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path

from streambank.core.errors import StorageError
from streambank.driver.bundle import package_files, zipped

PACKAGES = "streambank_packages"
"""The folder that the packages are unpacked into, below an executor's working directory."""

# botocore describes every service of Amazon; these are what S3 and its credentials need.
_SERVICES = frozenset({"s3", "sts", "sso", "sso-oidc", "signin"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def write_bundle(target: Path) -> Path:
    """Write the zip; its name must end in `.zip`, or Spark does not put it on the path."""
    return _write_zip(target, package_files())


def write_packages(target: Path, names: Iterable[str]) -> Path:
    """Write installed packages, and those that they ask for.

    Args:
        target: Where; must end in `.zip`, or Spark does not unpack it.
        names: Distributions, as `pip` knows them.

    Raises:
        StorageError: One is not installed here either (code `missing-package`).
    """
    found: dict[str, Path] = {}
    for distribution in _needed(names):
        for file in distribution.files or ():
            parts = file.parts
            if parts[0] == ".." or "__pycache__" in parts or _is_other_service(parts):
                continue
            found[file.as_posix()] = Path(str(distribution.locate_file(file)))
    return _write_zip(target, found)


def _is_other_service(parts: tuple[str, ...]) -> bool:
    return len(parts) > 3 and parts[:2] == ("botocore", "data") and parts[2] not in _SERVICES


def _needed(names: Iterable[str]) -> Iterator[metadata.Distribution]:
    seen: set[str] = set()
    waiting = [(name, False) for name in names]
    while waiting:
        asked_name, only_sometimes = waiting.pop()
        name = re.sub(r"[-_.]+", "-", asked_name).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            if only_sometimes:
                continue  # for another Python or system: pip would have installed it here too
            raise StorageError(
                f"The package {name}, which executors need, is not installed here ({sys.executable}).",
                code="missing-package",
                hint=f"pip install {name}",
            ) from error
        yield distribution
        for asked in distribution.requires or ():
            requirement, _, marker = asked.partition(";")
            if "extra" not in marker and (match := _NAME.match(requirement)):
                waiting.append((match[0], bool(marker)))


def _write_zip(target: Path, files: Mapping[str, Path]) -> Path:
    partial = target.with_name(f".{target.name}.tmp")
    partial.write_bytes(zipped(files))
    partial.replace(target)
    return target
