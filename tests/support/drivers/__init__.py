"""Drivers of jobs for tests: real ones, fake ones, and one to be killed."""
