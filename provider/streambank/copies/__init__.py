"""Copies of a job's production state: a second query beside the first, made again on a schedule.

* `refresh`: restores a savepoint of each query into a fresh directory, and switches the copy to it
* `preconditions`: what speaks against that: places that are not apart, outputs without another place
* `claims`: whose a directory is, before it is filled and before it is removed
* `live_inputs`: what the live job reads, where nothing of a copy may lie
* `remove`: the directories of earlier refreshes that the policy no longer keeps
"""
