"""An alert: what an event says is text and no template, and an error of the sender shows no address.

Who writes a job's events chooses what an alert says. Who has the address of a webhook may write to a chat.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import requests
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.exceptions import MaxRetryError, NewConnectionError

from streambank.core.errors import StorageError
from streambank.declaration.notify import Notify
from streambank_airflow.notify.alerts import Alert, send_alert_of
from streambank_airflow.notify.send import redacted, send_all
from tests.support.airflow_face.notifiers import FILE_NOTIFIER, told
from tests.support.jobs.declared import declare

pytestmark = pytest.mark.airflow

TEMPLATES = (
    "{{ 7 * 7 }}",
    "{% for x in range(9) %}spam{% endfor %}",
    "{# gone #}",
    "{{ conn.streambank_default.password }}",
    "{{ var.value.get('key') }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ message }}",
    "{{ kind }}{{ job }}",
    "{% raw %}{{ 7 * 7 }}{% endraw %}",
    "{{ macros.datetime }}",
    "{{",
    "%}",
)
PATH = "/services/T0AB/B0CD/sEcReT99"
HOOK = f"https://hooks.example{PATH}"
SLACK = f"https://hooks.slack.com{PATH}"


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("text", TEMPLATES)
def test_what_an_event_says_is_no_template(tmp_path: Path, text: str, native: bool) -> None:
    file = tmp_path / "chat"
    notify = Notify(FILE_NOTIFIER, {"file": str(file), "text": "{{ 6 * 7 }} {{ kind }}: {{ message }}"})
    facts = {"job": "flights", "kind": "restart", "message": text}
    assert send_all([(notify, facts)], native=native) == [""]
    assert told(file) == [f"42 restart: {text}"], "the declared template is one, and what it is given is none"


@pytest.mark.parametrize("text", TEMPLATES)
def test_nor_is_it_on_the_whole_way_of_an_alert(tmp_path: Path, text: str) -> None:
    file = tmp_path / "chat"
    job = declare(
        tmp_path,
        more=f'[[jobs.flights.notify]]\nclass = "{FILE_NOTIFIER}"\n'
        f'args = {{file = "{file}", text = "{{{{ 6 * 7 }}}} {{{{ kind }}}}: {{{{ message }}}}"}}\n',
    )
    alert = Alert(("restart",), f"Restarted: {text}", subject=text, code=text)
    assert send_alert_of(job, None, alert, {}) == 1
    assert told(file) == [f"42 restart: Restarted: {text}"]


def errors() -> dict[str, Exception]:
    """As clients of HTTP make them, of an address that is known to them alone."""
    pool = HTTPSConnectionPool("hooks.example", 443)
    refused = NewConnectionError(pool, "Failed to establish a new connection")  # type: ignore[arg-type]
    response = requests.Response()
    response.status_code, response.url, response.reason = 404, HOOK, "Not Found"
    found: dict[str, Exception] = {
        "urllib3": MaxRetryError(pool, PATH, refused),
        "requests": requests.ConnectionError(MaxRetryError(pool, PATH, refused)),
        "in JSON": OSError(json.dumps({"error": {"url": HOOK, "text": f"POST {HOOK} said no"}})),
        "in JSON with escaped slashes": OSError(json.dumps({"url": SLACK}).replace("/", "\\/")),
        "in quotes": OSError(f"<{HOOK}> '{HOOK}' \"{HOOK}\" ({HOOK}), {HOOK}."),
        "with a query": OSError(f"{HOOK}?token=sEcReT99"),
        "with a login": OSError(f"https://me:sEcReT99@hooks.example{PATH}"),
        "with a port": OSError(f"https://hooks.example:8443{PATH} no"),
        "in lines": OSError(f"one\n{HOOK}\nthree"),
        "of ours": StorageError(f"POST {HOOK} failed.", code="storage", hint=f"Ask {HOOK}."),
    }
    try:
        response.raise_for_status()
    except requests.HTTPError as error:
        found["a status"] = error
    return found


@pytest.mark.parametrize("name", errors())
def test_an_error_of_the_sender_shows_no_address(name: str) -> None:
    error = errors()[name]
    assert "sEcReT99" in f"{error} {error!r}", "the attack is in it"
    for secrets in ({}, {"url": HOOK}):
        assert "sEcReT99" not in redacted(error, secrets)


@pytest.mark.parametrize("more", ["/bot77:sEcReT99/send", "?sig=sEcReT99", "#sEcReT99", "/a?b=c&d=sEcReT99"])
def test_nor_what_a_sender_has_put_behind_a_declared_address(more: str) -> None:
    """Such as the password of a connection, which is no argument of the notifier."""
    declared = "https://api.example/v1"
    for text in (f"404 for url: {declared}{more}", f"POST {declared}{more} failed", f"'{declared}{more}'"):
        assert "sEcReT99" not in redacted(OSError(text), {"host": declared})
    assert "404 for url: ***" in redacted(OSError(f"404 for url: {declared}{more}"), {"host": declared})


def test_what_is_no_secret_of_an_error_is_said() -> None:
    """The negative control: whoever looks why an alert did not come still finds out."""
    shown = redacted(OSError("HTTP 403 by hooks.example: channel_is_archived"), {"url": HOOK})
    assert "HTTP 403" in shown and "channel_is_archived" in shown and "hooks.example" in shown
