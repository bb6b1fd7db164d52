"""Images for the cluster, made without a container registry."""
