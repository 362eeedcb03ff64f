"""Writes what the project is made of, by the lock: `python -m supply.sbom FILE`, CycloneDX 1.6 as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from supply.lock import Pin, pins

PROJECT = "airflow-provider-streambank"


def sbom(found: Iterable[Pin]) -> str:
    """The list as CycloneDX's JSON.

    Args:
        found: The packages; those of test and build are among them.
    """
    own = version(PROJECT)
    bom = Bom()
    root = Component(name=PROJECT, version=own, bom_ref=PROJECT)
    bom.metadata.component = root
    for pin in found:
        address = PackageURL("pypi", name=pin.name, version=pin.version)
        bom.components.add(
            Component(
                name=pin.name,
                version=pin.version,
                purl=address,
                bom_ref=str(address),
                hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in pin.hashes],
                properties=[Property(name="marker", value=pin.marker)] if pin.marker else [],
            )
        )
    bom.register_dependency(root, bom.components)
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    known = list(pins())
    target.write_text(sbom(known) + "\n", encoding="utf-8")
    print(f"{target}: {len(known)} packages")
