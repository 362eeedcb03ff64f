"""Spark for tests: sessions, queries, clusters, and fakes of what it answers."""
