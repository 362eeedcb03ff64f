"""SLAs: what a query promises, measured, judged, foretold, and told once (docs/reference/sla.md).

* `point`, `metrics`: what is measured
* `history`, `order`, `points`, `spark_progress`: read from a job's progress records
* `recoveries`: from its other records; `unmanaged`: from a checkpoint alone
* `objectives`: what is promised, and how each promise is measured
* `judge`, `gauges`, `trends`, `reported`: histories and facts -> verdicts (`verdict`)
* `growth`, `slope`, `steps`, `cells`: how fast something grows, and when it reaches its limit
* `told`: which verdicts are news
* `skew`, `skew_report`: how unevenly state lies over its partitions
"""
