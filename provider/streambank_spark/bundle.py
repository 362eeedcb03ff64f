"""The engine and the Spark face as one zip for `--py-files`: a cluster runs exactly what is installed here.

A zip, since executors refuse wheels; sorted and with fixed times, so the same code gives the same bytes.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import streambank
import streambank_spark

_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


def write_bundle(target: Path) -> Path:
    """Write the zip.

    Args:
        target: Where; must end in `.zip`, or Spark does not put it on the path.

    Returns:
        The target.
    """
    partial = target.with_name(f".{target.name}.tmp")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, path in sorted(_sources().items()):
            info = zipfile.ZipInfo(name, _FIXED_TIME)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(info, path.read_bytes())
    partial.replace(target)
    return target


def _sources() -> dict[str, Path]:
    found = {}
    for package in (streambank, streambank_spark):
        folder = Path(str(package.__file__)).resolve().parent
        for path in folder.rglob("*"):
            if path.suffix == ".py" or path.name == "py.typed":
                found[f"{folder.name}/{path.relative_to(folder).as_posix()}"] = path
    return found
