"""Rows of the engine as a table of Markdown."""

from __future__ import annotations

from streambank_airflow.markdown import rows_table


def test_nothing_in_a_row_is_markup_and_only_warnings_and_notes_are_said_in_airflows_words() -> None:
    command = "`streambank job status orders` shows it."
    shown = rows_table([("query a|b", "**x** <b>"), ("RTO", command), ("warning", command)]).splitlines()
    assert shown[2] == r"| Query a\|b | \*\*x\*\* &lt;b&gt; |"
    assert shown[3].startswith("| RTO | ") and "streambank job status orders" in shown[3]
    assert shown[4] == "| Warning | The job's page shows it. |"
