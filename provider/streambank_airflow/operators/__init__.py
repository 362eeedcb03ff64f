"""Operators: start and stop a streaming job; create, verify and restore savepoints."""
