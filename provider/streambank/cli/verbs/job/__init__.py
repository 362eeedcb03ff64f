"""Verbs on declared jobs that have their own file, one each."""
