"""State stores beside each other: batches, commits, memory, checkpoint and restart by the number of keys."""
