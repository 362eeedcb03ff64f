"""Savepoints: immutable, verified copies of what Spark needs to resume after one committed batch.

`take`, `verify` and `materialize` make, prove and bring back one; a repository holds them (repository/).
"""
