"""The experiments of bench.py: the public benchmark of Gateway API implementations, with Sluicegate as a process beside an API server."""
