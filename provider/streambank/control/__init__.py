"""Control: what a job remembers, as small JSON records under `<control>/<job>/` (docs/formats/job.md).

* `control`, `records`, `segments`: the folder, one record, and records that are appended
* `claims`, `lease`, `keepalive`, `operation`: who may act, and how it shows that it is alive
* `generations`, `requests`, `rollbacks`, `marker`: which checkpoint is the job's, and what was asked of it
* `progress`, `pruning`, `processes`, `watch`: what its driver did, and who watches it
"""
