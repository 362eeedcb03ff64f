"""Sinks: how far each one is against a savepoint's batch, and what going back would lose or repeat.

* `file_log`: the file sink's own log, `_spark_metadata`
* `file_sink`: what a savepoint keeps of it
* `file_standing`: where it stands against a savepoint
* `file_rollback`: taking it back, with nothing destroyed
* `rows`: how many rows a data file holds, where that can be told cheaply
* `unguarded`: sinks that are only named
"""
