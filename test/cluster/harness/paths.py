"""The paths of the cluster. All generated files are below `target/cluster` of the project."""

import hashlib
from pathlib import Path

CLUSTER = Path(__file__).resolve().parents[1]
"""The folder `test/cluster`."""

PROJECT = CLUSTER.parents[1]
BIN = PROJECT / "target/cluster/bin"
IMAGES = PROJECT / "target/cluster/images"
RUN = PROJECT / "target/cluster/run"


class RunFolder:
    """The files of one cluster."""

    def __init__(self, name: str) -> None:
        self.path = RUN / name
        self.state = self.path / "state.json"
        self.kubeconfig = self.path / "kubeconfig"
        """The kubeconfig of the administrator."""
        self.certificates = self.path / "certificates"
        self.logs = self.path / "logs"
        self.pids = self.path / "pids"

        # Namespaces and cgroups belong to the machine, so clusters with the same name in two checkouts need different
        # names.
        digest = hashlib.sha256(str(self.path).encode()).hexdigest()[:6]
        self.identity = f"sluicegate-{name}-{digest}"
        """A name that is unique on this machine."""
