"""Recovery: bringing a savepoint back, once sinks and live owners have been asked.

* `request`, `choices`: what a restore is asked for
* `choosing`: which savepoint is meant, from where, and what comes next if it is damaged
* `sinks`: where the savepoint's sinks stand, and what is done about it
* `preconditions`, `plan`, `estimates`, `approval`: how things stand, what a restore would do and how long it
  takes, and what a person chooses
* `restore`, `report`: doing it; `lay_out`: in a fresh directory; `together`: for all queries of a job as one
* `exchange_state`, `foresee`, `reinstate`: another state for a job after the same batch, and the way back
"""
