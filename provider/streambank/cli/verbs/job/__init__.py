"""Verbs on declared jobs that have a file of their own, one each."""
