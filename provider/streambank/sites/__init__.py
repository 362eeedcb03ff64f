"""Which of a job's two sites may run it: the records of that, and who asks them."""
