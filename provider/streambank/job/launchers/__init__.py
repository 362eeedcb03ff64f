"""Drivers that run in a cluster, a module for each kind; launcher.py has the protocol and this machine."""
