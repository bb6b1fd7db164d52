"""A node as if it were a machine of its own: it has its processes, its mounts and its network for itself."""

import shlex
from pathlib import Path

from .network import NetworkNamespace
from .part import Part
from .paths import RunFolder

KUBELET_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet sets for the whole machine if it finds it otherwise. In a node it finds files that say so already, and the
machine keeps its own."""


class Machine:
    """PID and mount namespaces that end with their first process, and everything in them with them."""

    def __init__(self, name: str, folder: RunFolder, network: NetworkNamespace) -> None:
        self.files = folder.path / name
        """The files of the node, seen alike from inside and outside."""
        self.init = Part(
            f"{name}/init", folder, ["sh", "-ec", self._script()],
            lambda: ["nsenter", f"--net={network.path}", "--", "unshare", "--pid", "--mount", "--fork", "--kill-child",
                     "--mount-proc", "--propagation=slave", "--"],
            ready=lambda: self._set_up.exists(), forks=True,
        )

    @property
    def _set_up(self) -> Path:
        return self.files / "set-up"

    def _script(self) -> str:
        run = shlex.quote(str(self.files / "run-containerd"))
        lines = [
            # Mounts of the machine go on to come and go here too, and none of here is seen there.
            "mount --make-rshared /",
            # Namespaces of others would live as long as this one does.
            "umount --lazy /run/netns",
            # containerd's shims have their sockets here, whatever its own configuration says.
            f"mkdir -p /run/containerd; mount --bind {run} /run/containerd",
        ]
        for name in KUBELET_SYSCTLS:
            file = shlex.quote(str(self.files / "sysctls" / name.replace("/", ".")))
            lines.append(f"[ ! -e /proc/sys/{name} ] || mount --bind {file} /proc/sys/{name}")
        # The first process of a PID namespace has to collect those that lose their parents; `wait` does.
        lines.append(f"touch {shlex.quote(str(self._set_up))}; sleep infinity & wait")
        return "\n".join(lines)

    def start(self) -> None:
        if self.init.running:
            return
        for folder in ["run-containerd", "sysctls"]:
            (self.files / folder).mkdir(parents=True, exist_ok=True)
        for name, value in KUBELET_SYSCTLS.items():
            (self.files / "sysctls" / name.replace("/", ".")).write_text(value + "\n")
        self._set_up.unlink(missing_ok=True)
        self.init.start()

    def enter(self) -> list[str]:
        """What has to stand before a command, to be run in there."""
        process = self.init.process
        if process is None:
            raise self.init.failed("does not run")
        return ["nsenter", f"--target={process.pid}", "--net", "--mount", "--pid", "--"]

    def stop(self) -> None:
        """Kills all that is in it; its mounts go too."""
        self.init.kill()
