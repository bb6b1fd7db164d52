"""The published experiment with ingress controllers: a cluster with scaled and replaced pods."""
