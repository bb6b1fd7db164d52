"""A node like a separate machine, with its own processes, mounts and network."""

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
"""The settings of the whole machine that kubelet would change. A node mounts files with these values, so the settings of the machine
stay."""


class Machine:
    """PID and mount namespaces. All their processes and mounts end with the first process."""

    def __init__(self, name: str, folder: RunFolder, network: NetworkNamespace) -> None:
        self.files = folder.path / name
        """The folder of the node, with the same path inside and outside."""
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
            # Mounts of the machine propagate to the node, and mounts of the node do not propagate to the machine.
            "mount --make-rshared /",
            # Mounted namespaces of other processes would live as long as the node.
            "umount --lazy /run/netns",
            # The shims of containerd have their sockets here, independent of its configuration.
            f"mkdir -p /run/containerd; mount --bind {run} /run/containerd",
        ]
        for name in KUBELET_SYSCTLS:
            file = shlex.quote(str(self.files / "sysctls" / name.replace("/", ".")))
            lines.append(f"[ ! -e /proc/sys/{name} ] || mount --bind {file} /proc/sys/{name}")
        # The first process of a PID namespace must reap orphaned processes. `wait` reaps them.
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
        """The prefix of a command that runs in the node."""
        process = self.init.process
        if process is None:
            raise self.init.failed("does not run")
        return ["nsenter", f"--target={process.pid}", "--net", "--mount", "--pid", "--"]

    def stop(self) -> None:
        """Kills all processes of the node. Its mounts end too."""
        self.init.kill()
