"""The control groups of the pods of a node."""

import os
from pathlib import Path

from .processes import wait_until

ROOT = Path("/sys/fs/cgroup")
WEIGHTS = {"cpu.shares": 16384, "cpu.weight": 1600}
"""The weight of the pods' group. On a real node, kubelet, containerd and all other processes share one group, so pods receive most of a busy
CPU. Here each of these processes has its own group (sched(7), autogroup), so the pods' group must weigh as much as all of them."""


class ControlGroup:
    """A control group in each hierarchy of the machine: one hierarchy with cgroup v2, one for each controller with v1."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def path(self) -> str:
        """The path in the notation of kubelet."""
        return f"/{self.name}"

    def _folders(self) -> list[Path]:
        if (ROOT / "cgroup.controllers").exists():
            return [ROOT / self.name]
        # A link is a second name of a hierarchy with several controllers.
        return [each / self.name for each in ROOT.iterdir() if each.is_dir() and not each.is_symlink()]

    def create(self) -> None:
        for folder in self._folders():
            folder.mkdir(exist_ok=True)
            for weight, value in WEIGHTS.items():
                if (folder / weight).exists():
                    (folder / weight).write_text(str(value))

    def delete(self) -> None:
        """Removes the group and all groups below. Their processes must have ended."""

        def removed() -> bool:
            try:
                for folder in self._folders():
                    for path, _, _ in os.walk(folder, topdown=False):
                        os.rmdir(path)
            except OSError:
                # The kernel releases a group shortly after the end of its last process.
                return False
            return True

        wait_until(removed, f"the control group {self.name} to be free of processes", 10, 0.02)

    @property
    def exists(self) -> bool:
        return any(folder.exists() for folder in self._folders())
