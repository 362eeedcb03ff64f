"""Bulk work on files: copied, checked, moved and placed by threads here, or by a Spark cluster.

* `executor`: who does the work; `plan_lines`: work as lines of a plan that a cluster reads
* `pace`: how fast at most, and who hears how far it is
* `copy`, `check`, `move`, `place`: the kinds of work
* `target`: where the results come together; `same_location`: whether two places are one
"""
