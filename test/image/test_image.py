"""Tests of the image. The tests unpack the image like containerd, and run it with runc like a restricted pod.

Needs root and runc. SLUICEGATE_IMAGE names the archive (scripts/image).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ARCHIVE = Path(os.environ["SLUICEGATE_IMAGE"]).resolve()
# The timeout of each wait, in seconds.
PATIENCE = 30
NAME = "backend.example.test"

MANIFESTS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: hello, namespace: default}
spec:
  defaultBackend: {service: {name: outside, port: {number: 9000}}}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: default}
spec: {type: ExternalName, externalName: NAME, ports: [{port: 9000}]}
"""


def read(archive: tarfile.TarFile, path: str) -> bytes:
    member = archive.extractfile(path)
    assert member, path
    return member.read()


def blob(archive: tarfile.TarFile, descriptor: dict) -> bytes:
    content = read(archive, "blobs/" + descriptor["digest"].replace(":", "/"))
    assert len(content) == descriptor["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
    return content


class Image:
    """The content of an archive, as an OCI image layout and as a docker-archive."""

    def __init__(self, path: Path):
        with tarfile.open(path) as archive:
            (entry,) = json.loads(read(archive, "index.json"))["manifests"]
            self.manifest = json.loads(blob(archive, entry))
            self.config = json.loads(blob(archive, self.manifest["config"]))
            (layer,) = self.manifest["layers"]
            self.layer = blob(archive, layer)
            (self.docker,) = json.loads(read(archive, "manifest.json"))
            self.docker_config = json.loads(read(archive, self.docker["Config"]))
            self.docker_layer = read(archive, self.docker["Layers"][0])

    def unpack(self, to: Path) -> None:
        with tarfile.open(fileobj=io.BytesIO(self.layer)) as layer:
            layer.extractall(to, numeric_owner=True, filter="fully_trusted")
            for member in layer:
                if capability := member.pax_headers.get("SCHILY.xattr.security.capability"):
                    os.setxattr(to / member.name, "security.capability", capability.encode())


class Archive(unittest.TestCase):
    def test_oci_layout_and_docker_archive_have_the_same_content(self):
        image = Image(ARCHIVE)
        self.assertEqual(image.docker_config, image.config)
        self.assertEqual(image.docker_layer, image.layer)
        self.assertEqual(image.config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(image.layer).hexdigest()}"])
        self.assertEqual(image.config["config"]["User"], "65532:65532")

    def test_same_program_gives_the_same_image(self):
        with tempfile.TemporaryDirectory() as folder:
            program, images = Path(folder, "program"), []
            with tarfile.open(fileobj=io.BytesIO(Image(ARCHIVE).layer)) as layer:
                program.write_bytes(read(layer, "sluicegate"))
            for name in ("first", "second"):
                image = Path(folder, name)
                command = [ROOT / "scripts/image", "--binary", program, "--output", image]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": "1000000000"})
                images.append(image.read_bytes())
            self.assertEqual(images[0], images[1])

    def test_programs_for_two_architectures_give_one_index(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = [Path(folder, "amd64"), Path(folder, "arm64")]
            with tarfile.open(fileobj=io.BytesIO(Image(ARCHIVE).layer)) as layer:
                program = read(layer, "sluicegate")
            programs[0].write_bytes(program)
            # e_machine of the ELF header: 183 is AArch64.
            programs[1].write_bytes(program[:18] + struct.pack("<H", 183) + program[20:])
            output = Path(folder, "image.tar")
            binaries = [f"--binary={each}" for each in reversed(programs)]
            subprocess.run([ROOT / "scripts/image", *binaries, "--output", output], check=True, stdout=subprocess.DEVNULL)
            with tarfile.open(output) as archive:
                (top,) = json.loads(read(archive, "index.json"))["manifests"]
                self.assertEqual(top["mediaType"], "application/vnd.oci.image.index.v1+json")
                manifests = json.loads(blob(archive, top))["manifests"]
                self.assertEqual([each["platform"]["architecture"] for each in manifests], ["amd64", "arm64"])
                for entry, of in zip(manifests, programs):
                    (descriptor,) = json.loads(blob(archive, entry))["layers"]
                    with tarfile.open(fileobj=io.BytesIO(blob(archive, descriptor))) as layer:
                        self.assertEqual(read(layer, "sluicegate"), of.read_bytes())
            twice = subprocess.run([ROOT / "scripts/image", *binaries, binaries[0]], capture_output=True, text=True)
            self.assertEqual((twice.returncode, "second program for arm64" in twice.stderr), (1, True), twice.stderr)

    def test_dynamically_linked_program_is_rejected(self):
        done = subprocess.run([ROOT / "scripts/image", "--binary", sys.executable], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("linked dynamically", done.stderr)


    def test_symbols_of_the_program_are_in_a_file_beside_the_image(self):
        symbols = ARCHIVE.with_suffix(".debug")
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "sluicegate")
            with tarfile.open(fileobj=io.BytesIO(Image(ARCHIVE).layer)) as layer:
                program.write_bytes(read(layer, "sluicegate"))
            self.assertNotIn(".symtab", printed("readelf", "--sections", "--wide", program))
            notes = [line for line in printed("readelf", "--notes", program).splitlines() if "Build ID" in line]
            self.assertTrue(notes)
            self.assertIn(notes[0], printed("readelf", "--notes", symbols))
        (main,) = [line.split()[0] for line in printed("nm", "--demangle", symbols).splitlines() if line.endswith(" sluicegate::main")]
        where = printed("addr2line", "--functions", "--demangle", "--exe", symbols, main)
        self.assertRegex(where, r"sluicegate::main\n.*crates/sluicegate/src/main.rs:\d+")


def printed(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Container:
    """The image's program in a container, with its own network namespace or the namespace of another container.

    capabilities: the capabilities that the pod adds; permit: whether the file of the program keeps its capability; dns: the
    address of a name server, and the address in its responses.
    """

    def __init__(self, arguments: list[str], *, external: str = NAME, capabilities: tuple[str, ...] = (), permit: bool = True,
                 hosts: str = "", resolve: str = "", dns: tuple[str, str] | None = None, network: Container | None = None):
        self.folder = Path(tempfile.mkdtemp(prefix="sluicegate-image-"))
        self.name = self.folder.name
        self.network = network.network if network else self.name
        (self.folder / "manifests").mkdir(mode=0o755)
        (self.folder / "manifests/all.yaml").write_text(MANIFESTS.replace("NAME", external))
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        (self.folder / "resolv.conf").write_text(resolve)
        image = Image(ARCHIVE)
        image.unpack(self.folder / "rootfs")
        if not permit:
            os.removexattr(self.folder / "rootfs/sluicegate", "security.capability")
        settings = image.config["config"]
        user, group = (int(part) for part in settings["User"].split(":"))
        arguments = [*settings["Entrypoint"], *arguments]
        (self.folder / "config.json").write_text(json.dumps(self.spec(arguments, user, group, list(capabilities))))
        if not network:
            subprocess.run(["ip", "netns", "add", self.network], check=True)
            subprocess.run(["ip", "-n", self.network, "link", "set", "lo", "up"], check=True)
        self.dns = self.name_server(*dns) if dns else None
        self.lines: list[str] = []
        self.changed = threading.Condition()
        command = ["runc", "run", "--bundle", self.folder, self.name]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def spec(self, arguments: list[str], user: int, group: int, capabilities: list[str]) -> dict:
        """Returns the OCI configuration, like containerd for a pod: capabilities are neither inheritable nor ambient."""
        files = {"/manifests": "manifests", "/etc/hosts": "hosts", "/etc/resolv.conf": "resolv.conf"}
        mounts = [{"destination": to, "type": "bind", "source": str(self.folder / of), "options": ["rbind", "ro"]} for to, of in files.items()]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": group},
                "args": arguments,
                "env": ["PATH=/"],
                "cwd": "/",
                "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")},
                "noNewPrivileges": True,
            },
            "root": {"path": "rootfs", "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755"]},
                *mounts,
            ],
            "linux": {
                "cgroupsPath": f"/{self.name}",
                "namespaces": [
                    *({"type": kind} for kind in ("pid", "ipc", "uts", "mount")),
                    {"type": "network", "path": f"/run/netns/{self.network}"},
                ],
            },
        }

    def name_server(self, at: str, address: str) -> subprocess.Popen:
        command = ["nsenter", f"--net=/run/netns/{self.network}", sys.executable, HERE / "dns.py", at, NAME, address]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout.readline() == "ready\n"
        return server

    def read(self) -> None:
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(line.rstrip())
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()

    def wait_for(self, text: str) -> None:
        """Waits until a line of the log contains the text."""
        with self.changed:
            found = self.changed.wait_for(
                lambda: any(text in line for line in self.lines) or self.process.poll() is not None, PATIENCE
            )
            if not found or not any(text in line for line in self.lines):
                raise AssertionError(f"{text!r} is not in the log:\n" + "\n".join(self.lines))

    def run(self, *command: str) -> str:
        """Runs a command of the host in the container's network."""
        inside = ["nsenter", f"--net=/run/netns/{self.network}", *command]
        return subprocess.run(inside, capture_output=True, text=True, timeout=PATIENCE).stdout

    def execute(self, *command: str) -> str:
        done = subprocess.run(["runc", "exec", self.name, *command], capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout + done.stderr

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["runc", "delete", "--force", self.name], capture_output=True)
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)
        self.process.stdout.close()
        if self.dns:
            self.dns.communicate()
        if self.network == self.name:
            subprocess.run(["ip", "netns", "del", self.name], check=True)
        shutil.rmtree(self.folder)


SERVE = ["serve", "--manifests", "/manifests"]
STATUS = ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}"]


@unittest.skipIf(os.environ.get("SLUICEGATE_NETNS") == "skip", "no network namespaces (SLUICEGATE_NETNS=skip)")
class Running(unittest.TestCase):
    def test_gateway_serves_without_capabilities_and_ends_on_sigterm(self):
        with Container([*SERVE, "--shutdown-grace=0s", "--shutdown-idle=0s"]) as container:
            container.wait_for("serving address=0.0.0.0:8080")
            self.assertEqual(container.run(*STATUS, "http://127.0.0.1:9901/readyz"), "200")
            self.assertIn("default/outside", container.execute("/sluicegate", "routes"))
            subprocess.run(["runc", "kill", container.name, "TERM"], check=True)
            self.assertEqual(container.process.wait(PATIENCE), 0, container.lines)

    def test_low_ports_need_the_capability_in_the_pod_and_in_the_program_file(self):
        arguments = [*SERVE, "--listen=:80", "--listen-https=:443"]
        with Container(arguments, capabilities=("CAP_NET_BIND_SERVICE",)) as container:
            container.wait_for("serving address=0.0.0.0:443")
            self.assertEqual(container.run(*STATUS, "http://127.0.0.1:80/"), "503")
        for wrong in ({"capabilities": ()}, {"capabilities": ("CAP_NET_BIND_SERVICE",), "permit": False}):
            with self.subTest(wrong), Container(arguments, **wrong) as container:
                container.wait_for("cannot listen at 0.0.0.0:80: Permission denied")

    def test_new_pod_takes_over_from_the_old_pod_of_its_node(self):
        """The pods share only the network. Each pod sees the PID of the other as 0."""
        with Container(SERVE) as old:
            old.wait_for("serving")
            with Container(SERVE, network=old) as new:
                new.wait_for("taking_over=true")
                old.wait_for("another process has taken over")
                self.assertEqual(new.run(*STATUS, "http://127.0.0.1:8080/"), "503")

    def test_external_names_are_resolved_by_the_hosts_file(self):
        with Container(SERVE, hosts=f"127.0.0.7 {NAME}\n") as container:
            container.wait_for("serving")
            self.assertIn("127.0.0.7:9000", container.execute("/sluicegate", "upstreams"))

    def test_external_names_are_resolved_by_dns_with_the_search_list(self):
        resolve = "search default.svc.test example.test\nnameserver 127.0.0.53\noptions ndots:5\n"
        with Container(SERVE, external="backend", resolve=resolve, dns=("127.0.0.53", "127.0.0.8")) as container:
            container.wait_for("serving")
            self.assertIn("127.0.0.8:9000", container.execute("/sluicegate", "upstreams"))


if __name__ == "__main__":
    unittest.main()
