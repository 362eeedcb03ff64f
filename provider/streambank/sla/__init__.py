"""SLAs: what a query promises, measured, judged, foretold, and told once (docs/reference/sla.md).

* `metrics`: what is measured; `history`: read from a job's progress records, or from a checkpoint alone
* `objectives`: what is promised, and how each promise is measured
* `judge`: histories and facts -> verdicts (`verdict`)
* `growth`: how fast something grows, and when it reaches its limit
* `alerts`: which verdicts are news
* `skew`: how unevenly state lies over its partitions
"""
