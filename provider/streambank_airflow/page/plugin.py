"""The plugin: what Airflow's UI loads, and the application that answers it.

Every process of Airflow imports this module. So it loads neither FastAPI nor the engine: the application is
built where the API server asks for it.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from airflow import __version__ as version
from airflow.providers.common.compat.sdk import AirflowPlugin, conf

PREFIX = "/streambank"
"""Below which path, after that of Airflow itself, the page's routes are."""
NAV, CARD, TAB = "Streambank", "Streambank jobs", "Streambank job"
"""Names of the three parts of the UI: the component of each has it, too."""

_log = logging.getLogger(__name__)


class StreambankPlugin(AirflowPlugin):
    """The page in the navigation, a card on Home, a tab on each DAG, and their routes."""

    name = "streambank"

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # a plain list in Airflow's class
        """The application; none where the page is off, or cannot be built, which Airflow must survive."""
        if not _is_on():
            return []
        try:
            from streambank_airflow.page.routes import page_app

            return [{"app": page_app(), "url_prefix": PREFIX, "name": NAV}]
        except Exception:
            _log.exception("The page of Streambank is not available")
            return []

    @cached_property
    def react_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # a plain list in Airflow's class
        """What the UI loads; nothing where the page is off."""
        if not _is_on():
            return []
        static = f"{base_path()}{PREFIX}/static"
        shared = {"bundle_url": f"{static}/main.js"}
        # What has a category is never at the top.
        at_top = tuple(map(int, version.split(".")[:2])) >= (3, 3)
        place = {"nav_top_level": True} if at_top else {"category": "browse"}
        return [
            {"name": NAV, "destination": "nav", "url_route": "streambank", **place, **shared},
            {"name": CARD, "destination": "dashboard", **shared},
            {"name": TAB, "destination": "dag", "url_route": "streambank-job", **shared},
        ]


def base_path() -> str:
    """The path below which Airflow is served, as `[api] base_url` says it; empty at the root of its host."""
    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


def _is_on() -> bool:
    try:
        from streambank_airflow.configuration import page_is_on

        return page_is_on()
    except Exception:
        _log.exception("The page of Streambank is not available")
        return False
