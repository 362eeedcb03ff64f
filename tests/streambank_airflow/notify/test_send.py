"""Notifiers send at once, none is waited for too long, and no error shows what is secret to them."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from streambank.core.errors import InputError
from streambank.declaration.notify import Notify
from streambank_airflow.notify.notifiers import load_notifier
from streambank_airflow.notify.send import NotifierError, redacted, send_all, send_once

NOTIFIERS = "tests.support.airflow_face.notifiers"
WEBHOOK = "https://hooks.example/services/T0AB/B0CD/sEcReT99"
TOKEN = "tok-1234"


@pytest.mark.parametrize("native", [False, True])
def test_one_that_hangs_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    monkeypatch.setattr("streambank_airflow.notify.send.PATIENCE_S", 1.0)
    gone_on = tmp_path / "go on"
    hanging = Notify(f"{NOTIFIERS}.HangingNotifier", {"file": str(gone_on)})
    works = [
        Notify(f"{NOTIFIERS}.{kind}", {"file": str(tmp_path / kind), "text": "{{ job }}"})
        for kind in ("FileNotifier", "AsyncNotifier")
    ]
    began_s = time.monotonic()

    hang = [hanging] * 20  # 20 s one after the other

    why = send_all([(one, {"job": "flights"}) for one in (*hang, *works)], native=native)

    took_s = time.monotonic() - began_s
    gone_on.touch()
    assert took_s < 15, "they are awaited together"
    assert why == ["it took longer than 1 s, and is no longer waited for"] * 20 + ["", ""]
    assert [(tmp_path / kind).read_text() for kind in ("FileNotifier", "AsyncNotifier")] == ["flights\n"] * 2


@pytest.mark.parametrize("kind", ["WebhookNotifier", "AsyncWebhookNotifier"])
def test_the_address_of_a_webhook_reaches_neither_log_nor_error(
    kind: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    args = {"url": "https://hooks.example{{ path }}", "token": TOKEN}
    context: dict[str, Any] = {"path": "/services/T0AB/B0CD/sEcReT99"}
    declared = Notify(f"{NOTIFIERS}.{kind}", args)

    with caplog.at_level(logging.DEBUG):
        (why,) = send_all([(declared, context)])
        with pytest.raises(NotifierError) as caught:
            send_once(load_notifier(declared), context)

    assert why.startswith("ConnectionError: POST ***")
    assert "exceeded with url: /***" in why
    assert "(by https://proxy.example:80/***" in why
    assert caught.value.__context__ is None
    for text in (why, str(caught.value), caplog.text, *capfd.readouterr()):
        assert "sEcReT99" not in text
        assert TOKEN not in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"404 Client Error for url: {WEBHOOK}", "404 Client Error for url: https://hooks.example/***"),
        (f"url=URL('{WEBHOOK}?a=b')", "url=URL('https://hooks.example/***')"),
        ("https://me:pass@[::1]:80?a=b no", "https://[::1]:80/*** no"),
        ("https://me:12345/x@hooks.example/y no", "https://hooks.example/*** no"),
        ("Cannot connect to https://hooks.example", "Cannot connect to https://hooks.example"),
        ("with url: /services/T0AB (Caused by x)", "with url: /*** (Caused by x)"),
        ("says abcd-efg to abc", "says *** to abc"),
        ("b'POST /services/T0AB/B0CD/sEcReT99 HTTP/1.1'", "b'POST /*** HTTP/1.1'"),
        ("b'https://hooks.example/services/T0AB'", "b'https://hooks.example/***'"),
        (r"{\"url\": \"https:\/\/hooks.example\/services\"}", r'{\"url\": \"https:\/\/hooks.example/***"}'),
        ("u=https%3A%2F%2Fhooks.example%2Fservices%2FT0AB&x=1", "u=https%3A%2F%2Fhooks.example***&x=1"),
        ("u=https%253A%252F%252Fhooks.example%252Fservices", "u=https%253A%252F%252Fhooks.example***"),
        ("says a%20b%2Fc%2B%C3%A9, a%20b/c%2B%C3%A9, a+b%2Fc%2B%C3%A9", "says ***, ***, ***"),
        ("POST and GET are ways, not places", "POST and GET are ways, not places"),
    ],
)
def test_addresses_end_after_the_host_and_arguments_are_replaced(text: str, shown: str) -> None:
    assert (
        redacted(OSError(text), {"a": ["abcd-efg", {"b": "abc"}, "a b/c+\u00e9", "half \ud800"]})
        == f"OSError: {shown}"
    )


def test_one_that_cannot_be_made_says_its_code_and_no_argument() -> None:
    (why,) = send_all([(Notify(f"{NOTIFIERS}.WebhookNotifier", {"link": WEBHOOK}), {})])
    error = InputError(f"It does not take {WEBHOOK}.", code="bad-notifier")

    assert "[bad-notifier]" in why
    assert redacted(error, {}).startswith("It does not take https://hooks.example/***")
