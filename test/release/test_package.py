"""Tests of the Debian package on a machine with systemd. They need root and systemd-nspawn."""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from machine import Machine
from released import ARCHITECTURES, MACHINE, ROOT, VERSION, package, printed

HERE = Path(__file__).resolve().parent
UNIT = ROOT / "packaging/debian/sluicegate.service"


def next_package(folder: Path) -> Path:
    """The package with a higher version."""
    files, path = folder / "next", folder / "next.deb"
    printed("dpkg-deb", "--raw-extract", package(MACHINE), files)
    control = files / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*", r"\g<0>+next", control.read_text(), flags=re.MULTILINE))
    printed("dpkg-deb", "--root-owner-group", "-Znone", "--build", files, path)
    return path


@unittest.skipUnless(MACHINE in ARCHITECTURES, "the release has no package for this machine")
@unittest.skipUnless(os.geteuid() == 0, "the machine needs root")
class Service(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.machine = machine = Machine([package(MACHINE), next_package(Path(folder.name)), HERE / "load.py", HERE / "backend.py"])
        cls.addClassCleanup(machine.stop)
        cls.backend = subprocess.Popen(machine.inside("python3", "/files/backend.py"))
        cls.addClassCleanup(cls.backend.wait)
        cls.addClassCleanup(cls.backend.kill)

    def setUp(self):
        self.machine.run("dpkg", "--install", f"/files/{package(MACHINE).name}")
        self.addCleanup(self.machine.run, "dpkg", "--purge", "sluicegate")

    def main_process(self) -> int:
        return int(self.machine.read("systemctl", "show", "--property=MainPID", "--value", "sluicegate"))

    def status(self) -> str:
        get = ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "--header", "Host: www.example.com", "http://127.0.0.1/"]
        return self.machine.run(*get, check=False).stdout

    def serve_example(self) -> None:
        """Uncomments the example, as a user does."""
        example = "/etc/sluicegate/manifests/example.yaml"
        self.machine.run("sed", "-i", "1,/An example/d; s/^# \\?//", example)
        self.machine.until(lambda: self.status() == "200", "the gateway serves the example")

    def test_installed_service_runs_without_rights_and_serves_the_example(self):
        machine = self.machine
        self.assertEqual(machine.read("systemctl", "is-active", "sluicegate"), "active")
        self.assertEqual(machine.read("systemctl", "is-enabled", "sluicegate"), "enabled")
        self.assertEqual(self.status(), "404")
        process = self.main_process()
        self.assertEqual(machine.read("ps", "--pid", process, "--format", "user:20=,comm=").split(), ["sluicegate", "sluicegate"])
        rights = machine.read("grep", "CapEff", f"/proc/{process}/status").split()[1]
        self.assertEqual(int(rights, 16), 1 << 10, "only CAP_NET_BIND_SERVICE")
        self.assertEqual(machine.read("stat", "--format=%U:%G %a", "/etc/sluicegate/manifests"), "root:sluicegate 750")
        self.serve_example()

    def test_upgrade_under_load_loses_no_request_and_keeps_changed_files(self):
        machine = self.machine
        self.serve_example()
        machine.run("sed", "-i", "1i # changed by the user", "/etc/default/sluicegate")
        before = self.main_process()
        load = subprocess.Popen(machine.inside("python3", "/files/load.py"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(load.kill)

        def served() -> int:
            load.stdin.write("\n")
            load.stdin.flush()
            return int(load.stdout.readline())

        machine.until(lambda: served() > 200, "the load runs")
        machine.run("dpkg", "--install", "/files/next.deb")
        after, at = self.main_process(), served()
        self.assertNotEqual(before, after)
        machine.until(lambda: machine.run("ps", "--pid", before, check=False).returncode, "the old version ends")
        machine.until(lambda: served() > at + 200, "the load continues")
        out, _ = load.communicate()
        result = json.loads(out)
        self.assertEqual(result["failures"], [])
        self.assertEqual(machine.read("readlink", f"/proc/{after}/exe"), "/usr/bin/sluicegate")
        self.assertEqual(machine.read("systemctl", "show", "--property=MainPID,ActiveState,NRestarts", "sluicegate").split(),
                         [f"MainPID={after}", "NRestarts=0", "ActiveState=active"])
        self.assertEqual(machine.read("dpkg-query", "--show", "--showformat=${Version}", "sluicegate"), f"{VERSION.replace('-', '~')}+next")
        self.assertIn("changed by the user", machine.read("cat", "/etc/default/sluicegate"))
        self.assertEqual(self.status(), "200")

    def test_reload_with_wrong_options_fails_and_the_process_continues_to_serve(self):
        machine = self.machine
        self.serve_example()
        before = self.main_process()
        machine.run("sed", "-i", "s/serve/serve --no-such-option/", "/etc/default/sluicegate")
        self.assertNotEqual(machine.run("systemctl", "reload", "sluicegate", check=False).returncode, 0)
        self.assertEqual((self.main_process(), self.status()), (before, "200"))
        self.assertIn("--no-such-option", machine.read("journalctl", "--unit=sluicegate", "--output=cat"))
        machine.run("sed", "-i", "s/--no-such-option/--log debug/", "/etc/default/sluicegate")
        machine.run("systemctl", "reload", "sluicegate")
        after = self.main_process()
        self.assertNotEqual(before, after)
        self.assertIn("debug", machine.read("ps", "--pid", after, "--format=args="))

    def test_stop_drains_and_purge_removes_all_files(self):
        machine = self.machine
        machine.run("systemctl", "stop", "sluicegate")
        self.assertEqual(machine.read("systemctl", "show", "--property=Result,ActiveState", "sluicegate").split(), ["Result=success", "ActiveState=inactive"])
        machine.run("systemctl", "start", "sluicegate")
        machine.run("dpkg", "--purge", "sluicegate")
        self.assertEqual(self.status(), "000")
        left = machine.read("find", "/etc", "/usr/bin", "/usr/lib", "/var/lib", "-path", "*sluicegate*", "-not", "-path", "/var/lib/dpkg/*")
        self.assertEqual(left, "")


class Unit(unittest.TestCase):
    def test_unit_is_valid_and_confined(self):
        # The program and the manual pages of the unit are not on this machine, so the unit names other files.
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder, "sluicegate.service")
            text = re.sub(r"^Documentation=.*\n", "", UNIT.read_text(), flags=re.MULTILINE)
            unit.write_text(re.sub(r"/usr/(bin/sluicegate|lib/sluicegate/takeover)", "/bin/true", text))
            self.assertEqual(printed("systemd-analyze", "verify", unit), "")
            # 0 is confined, and 100 is not.
            printed("systemd-analyze", "security", "--offline=true", "--threshold=20", unit)


if __name__ == "__main__":
    unittest.main()
