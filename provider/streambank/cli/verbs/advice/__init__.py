"""Verbs that say which state store suits a query, and what memory it needs."""
