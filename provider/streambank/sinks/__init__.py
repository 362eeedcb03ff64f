"""Sinks: how far each one is against a savepoint's batch, and what going back would lose or repeat.

* `file`: the file sink
* `unguarded`: sinks that are only named
"""
