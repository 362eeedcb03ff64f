from __future__ import annotations

from streambank.doctor.checks.sites import check_sites
from streambank.job.status import SiteStatus


def found(active: str | None, unfenced: str | None) -> list[str]:
    status = SiteStatus("standby", active, 3, None, "the standby is the active site", unfenced)
    return [one.code for one in check_sites("orders", status)]


def test_what_a_person_has_to_finish_is_found() -> None:
    assert list(check_sites("orders", None)) == []
    assert found("standby", None) == []
    assert found("standby", "primary") == ["site-not-fenced"]
    assert found(None, None) == ["failover-unfinished"]
