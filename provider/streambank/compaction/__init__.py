"""Compaction of a checkpoint directory: what Spark never reads again goes into a quarantine, then away.

* `dead_files`: which files are dead, why, and in which order they go; of a running query only unfinished
  writes, of a stopped one whatever is outside the safe closure of the batches that are kept
* `plan`: the whole of it, proven on the listing before anything moves
* `quiet_check`: signs that a query runs after all
* `quarantine`, `moving`: where dead files go, and how: a crash at any call leaves a checkpoint that starts
* `compact`, `undo`, `purge`: the verbs on one checkpoint; `job`: on those of a declared job

Logs of sources and sinks are never touched: they grow, but each of their entries still means something.
"""
