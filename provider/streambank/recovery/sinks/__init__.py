"""The sinks of a query that goes back to a savepoint: how far they were sent output, and what becomes of it.

* `standing`: where they stand now, for a request
* `sinks`: file sinks, and all kinds together: what a choice makes of them, rollback, new outputs
* `tables`, `topics`, `unguarded`: the same for tables that know their batches, for Kafka, and for sinks that
  know nothing
* `reached`: how far the query ever got, where a sink cannot say
* `of_job`: all sinks of a job against its newest savepoints
"""
