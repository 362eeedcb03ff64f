"""What Airflow hands over: parts of the page from its database, answers of a form.

Airflow is imported where it is needed, since the other targets do without.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from streambank.declaration.declaration import Job
from streambank.declaration.savepoints import RestorePolicy
from streambank.declaration.state import BootstrapPolicy, CompactPolicy, TransformPolicy
from streambank.storage import is_below, is_beside, same_place
from tests.fuzz.inputs import Target, changed, named

if TYPE_CHECKING:
    from airflow.sdk import Param

PART = "charts"
TABLE, APPLICATION = "file:///tables/orders", "/srv/app/main.py"


@cache
def _pages() -> Mapping[str, bytes]:
    """Values of a small part and of one in pieces, and a line."""
    import random

    from streambank_airflow.page.store import LINE, PageStore
    from tests.support.airflow_face.page_values import MemoryValues

    values = MemoryValues()
    pages = PageStore(values)
    line = {"format": 1, "job": "orders", "parts": {PART: {"digest": "a"}, "log": {"digest": "b"}}}
    noise = random.Random(1).randbytes(15_000).hex()
    pages.keep(line, {PART: {"at": None, "text": "Zürich"}, "log": {"noise": noise}}, None)
    assert LINE in values.texts
    return {key: text.encode() for key, text in values.texts.items()}


def _page(data: bytes) -> None:
    """Read by a browser, then written over by the next snapshot, which reads what was there."""
    from streambank_airflow.page.rows import _read
    from streambank_airflow.page.store import DamagedPartError, PageStore, read_part
    from tests.support.airflow_face.page_values import MemoryValues

    texts = {key: text.decode("utf-8", "replace") for key, text in changed(_pages(), data).items()}
    values = MemoryValues({key: json.dumps(value) for key, value in _read(texts).items()})
    for name in (PART, "log"):
        try:
            text = read_part(name, values.read)
        except DamagedPartError:
            continue
        assert text is None or json.loads(text) is not ...
    pages = PageStore(values)
    line = {"format": 1, "job": "orders", "parts": {PART: {"digest": "c"}}}
    pages.keep(line, {PART: {"at": None}}, pages.line())
    assert read_part(PART, values.read) == '{"at": null}'


@cache
def _job() -> Job:
    from dataclasses import replace

    queries = {"main": "/ck/orders"}
    job = Job("orders", APPLICATION, "/ck/orders", queries, "/repository", "/control")
    changes = replace(
        job.changes,
        transform=TransformPolicy(sets=("value.n = 0",), expressions="any"),
        bootstrap=BootstrapPolicy((TABLE,), expressions="any"),
    )
    return replace(job, compact=CompactPolicy(expressions="any"), changes=changes)


@cache
def _forms() -> Mapping[str, Mapping[str, Param]]:
    from streambank_airflow.dags.forms import daily, recovery, rewrite

    job = _job()
    return {
        "restore": recovery.restore_form((), RestorePolicy(), ("/repository", "/replica")),
        "upgrade": recovery.upgrade_form(3),
        "savepoint": daily.savepoint_form("quick"),
        "compact": rewrite.compact_form((), job.compact),
        "transform": rewrite.transform_form((), job.changes.transform or TransformPolicy()),
        "bootstrap": rewrite.bootstrap_form((), job.changes.bootstrap or BootstrapPolicy((TABLE,))),
    }


FILLED: Mapping[str, Mapping[str, Any]] = {
    "restore": {
        "into": "/ck/orders-new",
        "sink_of": ["/out=rollback"],
        "new_sinks": ["/out=/out-new"],
        "repository": "/repository",
        "savepoint": "latest-good",
    },
    "upgrade": {"application": "/srv/app/v2.py", "conf": ["spark.sql.shuffle.partitions=8"], "note": "v2"},
    "savepoint": {"name": "before-upgrade", "batch": 3, "note": "x"},
    "compact": {"where": "value.n < 3", "max_rows": 10},
    "transform": {"sets": ["value.n = value.n * 2"], "where": "key.k = 'a'", "delete_where": None},
    "bootstrap": {"table": f"{TABLE}/day", "keys": ["k = id"], "values": ["n = count"], "existing": "keep"},
}


def _filled() -> Sequence[bytes]:
    return named({form: json.dumps(values).encode() for form, values in FILLED.items()})


def _form(data: bytes) -> None:
    """What a form takes, its task checks: nothing outside of what the job declares comes through."""
    from airflow.sdk.exceptions import ParamValidationError

    name, _, content = data.partition(b"\n")
    form = _forms().get(name.decode("utf-8", "replace"))
    try:
        given = json.loads(content)
    except (ValueError, RecursionError):
        return
    if form is None or not isinstance(given, dict):
        return
    answers: dict[str, Any] = {field: param.value for field, param in form.items()}
    for field, value in given.items():
        try:
            if field in form:
                answers[field] = type(form[field])(value, **form[field].schema).resolve()
        except (ParamValidationError, TypeError):
            return
    _CHECKS[name.decode()](answers)


def _restore(given: Mapping[str, Any]) -> None:
    from streambank_airflow import choices

    job = _job()
    choices.sink_choices(given["sink_of"])
    new_sinks = choices.new_sink_choices(given["new_sinks"])
    choices.check_form_origin(job, given["repository"])
    choices.check_form_places(job, None, given["into"], new_sinks, [job])
    assert not given["into"] or is_beside(given["into"], "/ck/orders")
    assert all(is_beside(new, old) for old, new in new_sinks.items())


def _upgrade(given: Mapping[str, Any]) -> None:
    from streambank_airflow import choices

    conf = [str(one).partition("=")[0] for one in given["conf"] or ()]
    choices.check_form_upgrade(_job(), given["application"] or None, conf)


def _bootstrap(given: Mapping[str, Any]) -> None:
    from streambank_airflow.choices import bootstrap_choice

    fields = ("table", "keys", "values")
    found, _ = bootstrap_choice(_job(), {field: given[field] for field in fields}, None)
    assert same_place(found["table"], TABLE) or is_below(found["table"], TABLE)


def _transform(given: Mapping[str, Any]) -> None:
    from streambank_airflow.choices import transform_choice

    transform_choice(_job(), {field: given[field] for field in ("sets", "where", "delete_where")}, None)


def _compact(given: Mapping[str, Any]) -> None:
    from streambank_airflow.choices import where_choice

    where_choice(given["where"], _job())


_CHECKS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "restore": _restore,
    "upgrade": _upgrade,
    "savepoint": lambda given: None,
    "compact": _compact,
    "transform": _transform,
    "bootstrap": _bootstrap,
}
TARGETS: Mapping[str, Target] = {
    "page-parts": Target(lambda: named(_pages()), _page, is_tree=True),
    "forms": Target(_filled, _form, is_tree=True),
}
