"""Findings before they hurt: about what is installed here, about a checkpoint, about a declared job.

* `diagnose`: everything that is said of a query or a job, family by family
* `looked`: what all of it rests on, read once; `unseen`: what could not be looked at
* `installation`: Python, Java, PySpark, containers, limits of this machine
* `checkpoint`, `beginning`: damage, garbage, time for a take, sinks that are apart from it
* `growing`, `rows`: state without an end, rows that cost much
* `heap`, `rocksdb`, `snapshots`: what the state stores take, and how they upload
* `places`, `mounts`, `clocks`: where things lie, and what time it is there
* `sources`: whether a savepoint's input can be read again

docs/reference/doctor.md has a row for each finding.
"""
