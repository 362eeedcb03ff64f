"""Judge the SLA of all jobs every 15 minutes, and tell a chat of your own what breaks and what is resolved.

The notifier is an ordinary one of Airflow's, so the same object serves as a callback of any task. Where it
posts is in the connection `chat`: the address of a webhook is a secret.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, BaseHook, BaseNotifier

from streambank_airflow.operators import CheckSlaOperator


class ChatNotifier(BaseNotifier):
    """Posts one line to a webhook.

    Args:
        text: What it says; a template, with `news`, `verdict` and `job` where an SLA is told.
    """

    template_fields = ("text",)

    def __init__(self, text: str = "{{ news.message }}") -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:
        from urllib.request import Request, urlopen

        chat = BaseHook.get_connection("chat")
        body = json.dumps({"text": self.text}).encode()
        urlopen(Request(chat.host or "", body, {"Content-Type": "application/json"}), timeout=10).close()


with DAG(
    "own_channel",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    on_failure_callback=ChatNotifier("{{ dag.dag_id }} itself has failed"),
    tags={"streambank", "example"},
    doc_md=__doc__,
):
    # Each objective is told once when it breaks and once when it is well again: this task never fails for it.
    CheckSlaOperator(task_id="check", jobs="all", on_breach="report", notifiers=[ChatNotifier()])
