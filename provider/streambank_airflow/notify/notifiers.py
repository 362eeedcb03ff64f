"""Airflow's notifiers that a jobs file declares, loaded where somebody is to be told."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from airflow.sdk import BaseNotifier

from streambank.core.errors import InputError
from streambank.declaration.notify import Notify


def load_notifier(declared: Notify) -> BaseNotifier:
    """A notifier of a jobs file.

    Raises:
        InputError: It cannot be loaded, is none, or does not take these arguments (code `bad-notifier`).
    """
    module, _, name = declared.path.rpartition(".")
    try:
        kind: Any = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"The notifier {declared.path} cannot be loaded: {error}.",
            code="bad-notifier",
            hint="Install its package where Airflow's workers and triggerers run, or correct `notify`.",
        ) from error
    if not inspect.isclass(kind) or not issubclass(kind, BaseNotifier):
        raise InputError(
            f"{declared.path} is not an Airflow notifier.",
            code="bad-notifier",
            hint="Name a class that extends airflow.sdk.BaseNotifier.",
        )
    try:
        notifier: BaseNotifier = kind(**declared.args)
    except TypeError as error:
        raise InputError(
            f"The notifier {declared.path} does not take these arguments: {error}.",
            code="bad-notifier",
            hint="Correct `args` in the jobs file.",
        ) from error
    return notifier
