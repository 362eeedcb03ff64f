"""SLAs: what a stream promises, measured and judged.

* `skew`: how evenly the state of each store is spread over its partitions
* `skew_report`: the same of a whole checkpoint or savepoint, from its files alone
"""
