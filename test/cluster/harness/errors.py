"""Errors for users."""


class ClusterError(Exception):
    """An error of the cluster. The message says what is wrong, where, and what to do."""
