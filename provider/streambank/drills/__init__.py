"""Drills: a restore that is rehearsed on a copy, with the real application, and ends in a report.

* `drill`: what is done, step by step; `report`: what it leaves behind
* `copy_of_job`: the job that runs on the copy, apart from the live one
* `left`: what is left of drills that were killed, and how it goes
"""
