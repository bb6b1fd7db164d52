"""The published experiment with ingress controllers, as it was run: on a cluster, with pods that are scaled and replaced."""
