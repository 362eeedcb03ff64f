"""The runner: the driver of a declared job, around an application that knows nothing of it."""
