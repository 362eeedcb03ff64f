"""Triggers: what the triggerer waits for while no worker slot is held."""
