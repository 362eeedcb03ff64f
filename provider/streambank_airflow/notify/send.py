"""Sending through Airflow's notifiers: several at once, none waited for too long, no secret in an error."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

from airflow.sdk import BaseNotifier

from streambank.core.patience import Waited
from streambank.declaration.notify import Notify
from streambank.driver.failure import HIDDEN, shown, without
from streambank_airflow.failures import said
from streambank_airflow.notify.notifiers import load_notifier

PATIENCE_S = 10.0
"""How long notifiers may take, all together.

Airflow ends the process of a task 20 s after its end (`core.task_success_overtime`), and it is in that time
that a failed task alerts.
"""
_SHORTEST_SECRET = 4
"""An argument with fewer characters would be replaced in the middle of words."""

_ADDRESS = re.compile(
    r"\b([a-z][a-z0-9+.-]{0,32}:(?:\\?/){2})(?:[^\s/@'\"]*@)?([\w.-]+(?::\d+)?|\[[\da-f:.]+\](?::\d+)?)"
    r"([\\/?#:@%][^\s'\"<>]*)?",
    re.IGNORECASE,
)
_ENCODED = re.compile(
    r"(\b[a-z][a-z0-9+.-]{0,32}%(?:25){0,2}3A(?:%(?:25){0,2}2F){2}[\w.-]{0,255})[^\s'\"<>&]*", re.IGNORECASE
)
"""An address as a parameter of another one: of a proxy, of a page to go on to."""
_PATH_ALONE = re.compile(
    r"(\burl: ?|\b(?:GET|HEAD|POST|PUT|PATCH|DELETE) |\*{3})[/?#][^\s'\"<>]*", re.IGNORECASE
)
"""As urllib3 says it, which `requests` passes on; as the first line of a request, as text or as bytes; and
behind an address that is an argument, and has been replaced."""


class NotifierError(Exception):
    """A notifier has failed. Its text says why and holds no secret of the notifier."""


def send_all(messages: Sequence[tuple[Notify, Mapping[str, Any]]], *, native: bool = False) -> list[str]:
    """Let notifiers send, all at once, each in a separate thread.

    Together they have `PATIENCE_S`: one that hangs delays the caller by that, and no other notifier at all.

    Args:
        messages: Who sends, and what the templates see.
        native: Prefer the asynchronous way of a notifier that knows both, as in the triggerer.

    Returns:
        Why each of them failed; empty for one that has sent.
    """
    why = [""] * len(messages)

    def send(number: int, notify: Notify, context: Mapping[str, Any]) -> None:
        try:
            send_once(load_notifier(notify), dict(context), secrets=notify.args, native=native)
        except NotifierError as error:
            why[number] = str(error)
        except BaseException as error:
            why[number] = redacted(error, notify.args)

    sends = [partial(send, number, *message) for number, message in enumerate(messages)]
    return [late or failed for late, failed in zip(at_once(sends, PATIENCE_S), why, strict=True)]


def at_once(sends: Sequence[Callable[[], None]], patience_s: float) -> list[str]:
    """Do something several times over, each in a separate thread, and wait for none too long.

    Args:
        sends: What is done; none raises anything.
        patience_s: How long they may take, all together, in seconds.

    Returns:
        Of each that has not ended by then that this is so; else empty.
    """
    begun = [Waited(send, "alert") for send in sends]
    late = f"it took longer than {patience_s:g} s, and is no longer waited for"
    return ["" if one.ends_within(patience_s) and one.failure is None else late for one in begun]


def send_once(
    notifier: BaseNotifier, context: dict[str, Any], *, secrets: Any = None, native: bool = False
) -> None:
    """Let a notifier send one message, its templates rendered for it: rendering changes a notifier for good.

    Args:
        notifier: Which; of the two ways, for workers and for the triggerer, it may know only one.
        secrets: Texts, or what holds them, that no error may show; those of the notifier count always.
        native: Prefer the asynchronous way where it knows both.

    Raises:
        NotifierError: It has failed.
    """
    one: Any = copy.copy(notifier)
    known = {"synchronous": type(one).notify is not BaseNotifier.notify}
    known["asynchronous"] = type(one).async_notify is not BaseNotifier.async_notify
    # Airflow logs what these raise, before anything else may see it.
    one.notify = _redacting(one, one.notify, secrets)
    one.async_notify = _redacting_async(one, one.async_notify, secrets)
    failed = None
    try:
        if known["asynchronous"] and (native or not known["synchronous"]):
            one.context = context
            asyncio.run(_awaited(one))
        else:
            one(context)
    except NotifierError:
        raise
    except Exception as error:
        failed = _failure(one, error, secrets)
    if failed is not None:
        raise failed


def redacted(error: BaseException, secrets: Any) -> str:
    """What an error says, without secrets: their texts are replaced, and addresses end after the host.

    Args:
        error: Of a notifier; webhooks have their secret in the address, and clients of HTTP show that.
        secrets: Texts that are replaced, or what holds them.
    """
    text = said(error)
    forms = {form for text in _texts(secrets) for form in (text, *_quoted(text))}
    for secret in sorted(forms, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    text = without(text, ())  # first: a password with a slash would end an address too early
    text = _ADDRESS.sub(lambda found: found[1] + found[2] + (f"/{HIDDEN}" if found[3] else ""), text)
    return shown(_PATH_ALONE.sub(rf"\g<1>/{HIDDEN}", _ENCODED.sub(rf"\g<1>{HIDDEN}", text)))


async def _awaited(notifier: Any) -> None:
    await notifier


def _redacting(notifier: Any, send: Callable[[Any], Any], secrets: Any) -> Callable[[Any], None]:
    def notify(context: Any) -> None:
        failed = None
        try:
            send(context)
        except Exception as error:
            failed = _failure(notifier, error, secrets)
        if failed is not None:
            raise failed  # out here, so that it does not carry the one with the secret

    return notify


def _redacting_async(notifier: Any, send: Callable[[Any], Any], secrets: Any) -> Callable[[Any], Any]:
    async def async_notify(context: Any) -> None:
        failed = None
        try:
            await send(context)
        except Exception as error:
            failed = _failure(notifier, error, secrets)
        if failed is not None:
            raise failed

    return async_notify


def _failure(notifier: Any, error: Exception, secrets: Any) -> NotifierError:
    """With what its templates have become by now, too."""
    own = [value for name, value in vars(notifier).items() if name != "context" and not name.startswith("_")]
    return NotifierError(redacted(error, [secrets, own]))


def _quoted(text: str) -> Iterator[str]:
    yield quote(text, errors="replace")
    yield quote(text, "", errors="replace")
    yield quote_plus(text, errors="replace")


def _texts(what: Any) -> Iterator[str]:
    if isinstance(what, str):
        yield what
    elif isinstance(what, Mapping):
        for value in what.values():
            yield from _texts(value)
    elif isinstance(what, list | tuple | set):
        for value in what:
            yield from _texts(value)
