"""The store of this machine's file system."""
