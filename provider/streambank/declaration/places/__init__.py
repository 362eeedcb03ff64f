"""Where jobs and their copies are, and that each place is apart from the others."""
