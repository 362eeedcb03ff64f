"""Retention: what is kept, what is dropped, and what is deleted for good.

`policy` says which savepoints are kept, `expire` takes the others from the list so that `undelete` can bring
them back, and `sweep` deletes what no savepoint needs any more.
"""
