"""The verbs of the command line, as they are typed."""
