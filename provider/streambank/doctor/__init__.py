"""Findings before they hurt: about what is installed here, about a checkpoint, about a declared job.

* `diagnose`: everything that is said of a query or a job, family by family
* `subject`: what all of it rests on, read once; `SkippedCheck`: what could not be looked at
* `checks`: one module for each family

docs/reference/doctor.md has a row for each finding.
"""
