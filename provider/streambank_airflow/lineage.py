"""What operators read and write, as OpenLineage's datasets: savepoints, checkpoints, sources and sinks.

Names are those of OpenLineage's naming specification (https://openlineage.io/docs/spec/naming), so that a
topic or a table is the same dataset here as where another integration names it. The savepoints of a query are
one dataset, with the id of the savepoint as its version. A name never has a user, a password or a query
string in it.

OpenLineage is imported only where its provider calls: without the provider nothing of it is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from streambank.core.errors import InputError
from streambank.driver.failure import redacted
from streambank.repository.catalog import glimpse
from streambank.repository.manifest import Manifest
from streambank.storage import normalize_location, open_store

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from streambank_airflow.hooks.declared import DeclaredJobs

ICEBERG = "iceberg"
"""The namespace of tables whose catalog a savepoint does not name."""
_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/+(?P<rest>.*)", re.DOTALL)
_PORTS = {"kafka": 9092, "postgres": 5432, "mysql": 3306}
_DATABASES = {"postgresql": "postgres", "mysql": "mysql", "mariadb": "mysql"}
Verb = Literal["took", "verified", "restored", "made"]
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
"""Schemes whose authority is `container@account`."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """One dataset.

    Attributes:
        namespace: Where it is: `s3://bucket`, `file`, `kafka://host:port`.
        name: What it is called there.
        version: Which version of it: the id of a savepoint; empty for none.
        size_bytes: How many bytes were written; None where that is not known.
        files: How many files; likewise.
    """

    namespace: str
    name: str
    version: str = ""
    size_bytes: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class SavepointWork:
    """What a task did with one savepoint.

    Attributes:
        job: `job` or `job/query` of the savepoint.
        savepoint: Its id; where one was made, that one's.
        repository: Where it is; None for the job's repository.
        location: Where it was restored to.
        of: The savepoint that this one was made of.
    """

    verb: Verb
    job: str
    savepoint: str
    repository: str | None = None
    location: str = ""
    of: str = ""

    @classmethod
    def of_result(cls, verb: Verb, result: Mapping[str, Any]) -> Self:
        """By what the engine says of it.

        Args:
            result: Its report, as JSON.
        """
        made = verb == "made"
        job, _, of = str(result["of"]).rpartition("/") if made else (str(result["job"]), "", "")
        return cls(
            verb,
            job,
            str(result["savepoint"]),
            repository=result.get("repository") if verb == "restored" else None,
            location=str(result.get("location") or ""),
            of=of,
        )


@dataclass(frozen=True, slots=True)
class Touched:
    """What a task has read and written."""

    inputs: Sequence[Dataset] = ()
    outputs: Sequence[Dataset] = ()


def dataset_of(location: str) -> Dataset | None:
    """The dataset at a location; None for what is not a location.

    Args:
        location: A path or URI.
    """
    try:
        found = _URI.fullmatch(normalize_location(location))
    except InputError:
        return None
    if found is None:
        return None
    scheme, rest = found["scheme"].lower(), found["rest"]
    if scheme == "file":
        return _dataset("file", "/" + rest)
    authority, _, path = rest.partition("?")[0].partition("/")
    where = _without_login(authority, container=scheme in _CONTAINERS)
    if scheme in ("s3", "s3a", "s3n", "gs"):
        return _dataset(f"{'gs' if scheme == 'gs' else 's3'}://{where}", path or "/")
    return _dataset(f"{scheme}://{where}", "/" + path)


def topics_of(bootstrap: object, topics: Mapping[str, Any]) -> Iterator[Dataset]:
    """The topics of a cluster of Kafka; nothing where its servers are not known.

    Args:
        bootstrap: Its servers, `host:port,...`, of which the first by name names it.
    """
    named = (one.rpartition("//")[2].strip() for one in str(bootstrap or "").split(","))
    servers = sorted(_host(one, _PORTS["kafka"]) for one in named if one)
    if servers:
        yield from (_dataset(f"kafka://{servers[0]}", topic) for topic in sorted(topics))


def sources_of(manifest: Manifest) -> Iterator[Dataset]:
    """The sources that a savepoint names: topics of Kafka. Of other sources it keeps only offsets.

    Args:
        manifest: The savepoint, without its files.
    """
    for source in manifest.sources:
        kafka = source.get("kafka") if isinstance(source, Mapping) else None
        if isinstance(kafka, Mapping):
            yield from topics_of(kafka.get("bootstrap"), kafka.get("topics") or {})


def sinks_of(manifest: Manifest) -> Iterator[Dataset]:
    """The sinks that a savepoint names: directories, tables and topics.

    Args:
        manifest: The savepoint, without its files.
    """
    for sink in manifest.sinks:
        kind, path = str(sink.get("kind")), str(sink.get("path") or "")
        found: Dataset | None = None
        if kind == "kafka":
            yield from topics_of(sink.get("bootstrap"), sink.get("topics") or {})
        elif kind == "ledger":
            found = _table_of(*path.rpartition("#")[::2])
        elif kind == "iceberg":
            found = dataset_of(path) if "/" in path else _dataset(ICEBERG, path)
        elif kind in ("file", "delta"):
            found = dataset_of(path)
        if found is not None:
            yield found


def savepoint_dataset(repository: str, manifest: Manifest) -> Dataset | None:
    """A savepoint: a version of what a repository has of a query.

    Args:
        manifest: The savepoint, without its files.
    """
    found = dataset_of(f"{repository.rstrip('/')}/savepoints/{manifest.job}")
    if found is None:
        return None
    return Dataset(
        found.namespace, found.name, manifest.savepoint, manifest.bytes, manifest.file_count or None
    )


def touched_by(declared: DeclaredJobs, work: Sequence[SavepointWork]) -> Touched:
    """What a task has read and written. Reads the manifests of its savepoints.

    Raises:
        StreambankError: A repository cannot be reached.
    """
    inputs: list[Dataset] = []
    outputs: list[Dataset] = []
    with declared.access():
        for one in work:
            store = (
                declared.repository_store(one.job) if one.repository is None else open_store(one.repository)
            )
            manifest = glimpse(store, one.job, one.savepoint)
            savepoint = None if manifest is None else savepoint_dataset(store.uri, manifest)
            if manifest is None or savepoint is None:
                continue
            if one.verb == "took":
                checkpoint = dataset_of(manifest.checkpoint)
                inputs += [checkpoint] if checkpoint is not None else []
                inputs += [*sources_of(manifest), *sinks_of(manifest)]
                outputs.append(savepoint)
            elif one.verb == "made":
                inputs.append(Dataset(savepoint.namespace, savepoint.name, one.of))
                outputs.append(savepoint)
            else:
                inputs.append(savepoint)
            if one.verb == "restored":
                target = dataset_of(one.location)
                outputs += [target] if target is not None else []
                outputs += sinks_of(manifest)
    return Touched(inputs, outputs)


def as_openlineage(touched: Touched) -> OperatorLineage:
    """The same as OpenLineage's provider takes it."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(
        inputs=[_as_input(one) for one in _distinct(touched.inputs)],
        outputs=[_as_output(one) for one in _distinct(touched.outputs)],
    )


def _as_input(one: Dataset) -> Any:
    from airflow.providers.common.compat.openlineage.facet import InputDataset

    return InputDataset(namespace=one.namespace, name=one.name, facets=_facets(one))


def _as_output(one: Dataset) -> Any:
    from airflow.providers.common.compat.openlineage.facet import (
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )

    more: dict[str, Any] = {}
    if one.version and one.size_bytes is not None:
        more["outputStatistics"] = OutputStatisticsOutputDatasetFacet(
            size=one.size_bytes, fileCount=one.files
        )
    return OutputDataset(namespace=one.namespace, name=one.name, facets=_facets(one), outputFacets=more)


def _facets(one: Dataset) -> dict[str, Any]:
    if not one.version:
        return {}
    from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet

    return {"version": DatasetVersionDatasetFacet(datasetVersion=one.version)}


def _distinct(found: Sequence[Dataset]) -> list[Dataset]:
    return list(dict.fromkeys(found))


def _table_of(url: str, table: str) -> Dataset | None:
    """A table of a database, by a URL as SQLAlchemy reads it."""
    found = _URI.fullmatch(url)
    if found is None:
        return None
    scheme = found["scheme"].lower().partition("+")[0]
    if scheme == "sqlite":
        at = dataset_of("/" + found["rest"].partition("?")[0])
        return None if at is None else _dataset(at.namespace, f"{at.name}#{table}")
    authority, _, database = found["rest"].partition("?")[0].partition("/")
    named = _DATABASES.get(scheme, scheme)
    return _dataset(f"{named}://{_host(authority, _PORTS.get(named))}", f"{database}.{table}".lstrip("."))


def _host(authority: str, port: int | None) -> str:
    """`host:port` without a login."""
    where = authority.rpartition("@")[2]
    has_port = re.search(r":\d+$", where) is not None
    return where if has_port or port is None else f"{where}:{port}"


def _without_login(authority: str, *, container: bool) -> str:
    before, at, where = authority.rpartition("@")
    return f"{before.partition(':')[0]}@{where}" if at and container else where


def _dataset(namespace: str, name: str) -> Dataset:
    return Dataset(redacted(namespace), redacted(name))
