"""Fail-over: a job goes on at its other site, from the newest savepoint there, and never at both.

`failover.py` does it, `fence.py` sees to it that the site that was active writes nothing more, and
`report.py` says what came of it. Which site may run a job is in the records of both (sites/records.py); every
start asks (sites/standing.py), and so does every running driver.
"""
