"""SLAs: what a query promises, measured, judged, foretold, and told once.

* `point`, `metrics`: what is measured
* `objectives`: what is promised, and how each promise is measured
* `judge`, `gauges`, `trends`, `reported`: histories and facts -> verdicts (`verdict`)
* `growth`, `slope`, `steps`, `cells`: how fast something grows, and when it reaches its limit
* `told`: which verdicts are news
"""
