"""Sinks: how far each one is against a savepoint's batch, and what going back would lose or repeat."""
