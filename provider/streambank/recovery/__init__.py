"""Recovery: bringing a savepoint back, once sinks and live owners have been asked.

* `resolve`: which savepoint is meant, and the newest that is good
* `sinks`: where the savepoint's sinks stand, and what is done about it
* `owner`: who restores, so that a second restore knows a dead one from a live one
* `plan`: what a restore would do, for dry runs and approvals
* `restore`: doing it
"""
