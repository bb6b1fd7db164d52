"""What goes wrong, told to people."""


class ClusterError(Exception):
    """Something that the cluster cannot do; the message says what, where and what to do about it."""
