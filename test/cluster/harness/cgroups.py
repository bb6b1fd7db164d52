"""The control groups that the pods of a node are put into."""

import os
from pathlib import Path

from .processes import wait_until

ROOT = Path("/sys/fs/cgroup")
WEIGHTS = {"cpu.shares": 16384, "cpu.weight": 1600}
"""On a node, kubelet, containerd and all else share one group beside that of the pods, so that pods have most of a busy CPU. Here
each of these processes has a group of its own (sched(7), autogroup), so the pods' group has to weigh as much as all of them."""


class ControlGroup:
    """A control group in every hierarchy of the machine: one with cgroup v2, one for each controller with v1."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def path(self) -> str:
        """As kubelet wants it."""
        return f"/{self.name}"

    def _folders(self) -> list[Path]:
        if (ROOT / "cgroup.controllers").exists():
            return [ROOT / self.name]
        # Links are second names of hierarchies that have several controllers.
        return [each / self.name for each in ROOT.iterdir() if each.is_dir() and not each.is_symlink()]

    def create(self) -> None:
        for folder in self._folders():
            folder.mkdir(exist_ok=True)
            for weight, value in WEIGHTS.items():
                if (folder / weight).exists():
                    (folder / weight).write_text(str(value))

    def delete(self) -> None:
        """Removes it with all below. What was in them has to be gone."""

        def removed() -> bool:
            try:
                for folder in self._folders():
                    for path, _, _ in os.walk(folder, topdown=False):
                        os.rmdir(path)
            except OSError:
                # The last process of a group is gone a moment before the group may be removed.
                return False
            return True

        wait_until(removed, f"the control group {self.name} to be free of processes", 10, 0.02)

    @property
    def exists(self) -> bool:
        return any(folder.exists() for folder in self._folders())
