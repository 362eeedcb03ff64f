"""Verbs that bring a job back, move it or change it, and the one that rehearses that."""
