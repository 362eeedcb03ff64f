"""A jobs file with all that a job may declare, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from streambank.core.names import SITES
from streambank.declaration.load import load_jobs
from tests.fuzz.inputs import Target

JOBS_FILE = b"""repository = "r"
[maintenance]
schedule = "@weekly"
time_zone = "Europe/Berlin"
share = "10%"
repair = true
[jobs.orders]
application = "a.py"
checkpoint = "ck/orders"
control = "control"
queries = { hourly = "Hourly", sessions = "Sitzungen" }
signed = true
[[jobs.orders.notify]]
class = "acme.Pager"
args = { to = "ann", times = 3 }
kinds = ["giving-up", "checkpoint-lost"]
[jobs.orders.replicate]
to = ["there/savepoints", "s3://replica/x"]
[jobs.orders.replicate.retention]
keep_last = 3
max_age = "30d"
[jobs.orders.standby]
checkpoint = "there/ck"
repository = "there/savepoints"
control = "there/control"
approve = false
[jobs.orders.standby.outputs]
"out" = "there/out"
[jobs.orders.copies.test]
checkpoint = "test/ck"
schedule = "@daily"
keep = 3
source = "accept"
repository = "nearest"
[jobs.orders.copies.test.outputs]
"out" = "./test/out"
[jobs.orders.transform]
sets = ["value.total = value.total * 100"]
where = "key.k = 'a'"
query = "hourly"
rehearse = true
samples = 3
[jobs.orders.bootstrap]
tables = ["tables/orders"]
format = "parquet"
sql = "SELECT k FROM source"
keys = ["customer = id"]
values = ["n = count"]
existing = "keep"
query = "hourly"
[jobs.orders.drill]
schedule = "@weekly"
savepoint = "each"
limit = 3
time_limit = "2h"
batches = 2
compare = "counts"
sources = ["iceberg"]
timeout = "10m"
[jobs.orders.generations]
keep = 2
keep_for = "7d"
[jobs.orders.hot_keys]
sample = 0.5
keys = ["user"]
"""


def _declarations(data: bytes) -> None:
    """Read it, and the job at each of its sites and on each of its copies."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "jobs.toml"
        file.write_bytes(data)
        for job in load_jobs(file).jobs.values():
            for site in SITES if job.standby is not None else ():
                assert job.at_site(site).queries
            for copy in job.copies:
                assert job.as_copy(copy).queries


TARGETS: Mapping[str, Target] = {"declarations": Target(lambda: [JOBS_FILE], _declarations)}
