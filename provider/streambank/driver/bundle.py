"""What a driver gets where Streambank is not installed: a zip with what it can reach.

It is a program, too: `python streambank.zip --launch SPEC` is what `run_query.py` is elsewhere.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path

from streambank.control.control import JobControl
from streambank.core.errors import InputError
from streambank.storage import local_path

NAME = "streambank.zip"
FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""The same code gives the same bytes."""

SHIPPED = (
    *("checkpoint/", "code/", "control/", "core/", "declaration/", "driver/", "inputs/", "kafka/"),
    *("repository/", "retention/", "savepoint/", "sinks/", "sites/", "storage/", "work/"),
    *("cleaning/left_directory.py", "job/health.py"),
    *("sla/fact.py", "sla/skew/hot_key_record.py", "sla/skew/traffic.py"),
)
"""Rooms and single modules of the engine that a driver or an executor can reach, on Python 3.10 too."""

_MAIN = b"""import sys

from streambank_spark.runner.entry import main

if __name__ == "__main__":
    sys.exit(main())
"""


def package_files() -> dict[str, Path]:
    """The installed files of what is shipped, by their names below the root of a zip.

    Raises:
        InputError: One is not installed here (code `not-installed`).
    """
    found = {}
    for package in ("streambank", "streambank_spark"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise InputError(
                f"The package {package} is not installed here.",
                code="not-installed",
                hint="Install airflow-provider-streambank.",
            )
        folder = Path(spec.origin).resolve().parent
        for path in folder.rglob("*"):
            name = f"{package}/{path.relative_to(folder).as_posix()}"
            if (path.suffix == ".py" or path.name == "py.typed") and is_shipped(name):
                found[name] = path
    return found


def is_shipped(name: str) -> bool:
    """Whether a file of the packages comes along, by its name below the root of the zip."""
    package, _, inside = name.partition("/")
    if package == "streambank_spark":
        return not inside.startswith(("commands/", "stand_in/"))
    around = inside.removesuffix("__init__.py") if inside.endswith("__init__.py") else None
    if around is not None and any(shipped.startswith(around) for shipped in SHIPPED):
        return True
    return inside == "py.typed" or inside.startswith(SHIPPED)


def zipped(files: Mapping[str, Path], more: Mapping[str, bytes] | None = None) -> bytes:
    """Files as a zip, sorted, with fixed times."""
    contents = {name: path.read_bytes() for name, path in files.items()} | dict(more or {})
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bundle:
        for name, content in sorted(contents.items()):
            info = zipfile.ZipInfo(name, FIXED_TIME)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(info, content)
    return data.getvalue()


def program() -> bytes:
    """The zip that Python can run."""
    return zipped(package_files(), {"__main__.py": _MAIN})


def ship(control: JobControl) -> str:
    """Lay the program beside the job's records, once for each version of it.

    Returns:
        Its URI as Hadoop takes it; every machine that may run the driver must see it there.
    """
    data = program()
    key = f"bundles/{hashlib.sha256(data).hexdigest()}/{NAME}"
    if not _holds(control, key, data):
        control.store.write(key, data)
    root = local_path(control.store.uri)
    if root is not None:
        return (root / key).as_uri()
    uri = f"{control.store.uri}/{key}"
    return f"s3a://{uri.removeprefix('s3://')}" if uri.startswith("s3://") else uri


def _holds(control: JobControl, key: str, data: bytes) -> bool:
    """Whether the program lies there, and not something that another has put there under its name."""
    info = control.store.stat(key) if control.store.exists(key) else None
    return info is not None and info.size_bytes == len(data) and control.store.read(key) == data


def lay_beside(folder: Path) -> Path:
    """Lay the program into a folder of this machine, once for each version of it; where it is."""
    data = program()
    bundle = folder / f"streambank-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not bundle.exists() or bundle.read_bytes() != data:
        begun = bundle.with_name(f"{bundle.name}.{uuid.uuid4().hex}")
        begun.write_bytes(data)
        begun.replace(bundle)
    return bundle


if __name__ == "__main__":  # for `make lint`, which types for Python 3.10 what is shipped, and no more
    print(*sorted(str(path) for path in package_files().values() if path.suffix == ".py"), sep="\n")
