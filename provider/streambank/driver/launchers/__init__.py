"""Launchers: how a driver is started, asked after and ended, a module for each kind of master."""
