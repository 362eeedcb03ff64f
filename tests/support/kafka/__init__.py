"""Kafka for tests: a broker in memory, and a real one."""
