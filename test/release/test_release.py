"""Tests of the files of a release."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from released import ARCHITECTURES, FOLDER, MACHINE, PATIENCE, ROOT, TOOLS, VERSION, name, package, printed, unpacked

MACHINES = {"amd64": "Advanced Micro Devices X86-64", "arm64": "AArch64"}


class Files(unittest.TestCase):
    def test_release_has_all_files_and_their_checksums(self):
        expected = {"SHA256SUMS", "crds.yaml", f"sluicegate-{VERSION}-image.tar", f"sluicegate-{VERSION}.cdx.json", f"sluicegate-{VERSION}.tgz"}
        for architecture in ARCHITECTURES:
            expected |= {f"{name(architecture)}.tar.gz", f"{name(architecture)}-symbols.tar.gz", package(architecture).name}
        self.assertEqual({path.name for path in FOLDER.iterdir()}, expected)
        checked = printed("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=FOLDER)
        self.assertEqual(len(checked.splitlines()), len(expected) - 1)

    def test_crds_are_those_of_the_program(self):
        if MACHINE in ARCHITECTURES:
            crds = printed(unpacked(MACHINE).program, "crds")
            self.assertEqual((FOLDER / "crds.yaml").read_text().count("\nkind: CustomResourceDefinition"), crds.count("\nkind: CustomResourceDefinition"))
        self.assertEqual((FOLDER / "crds.yaml").read_text(), (ROOT / "deploy/crds.yaml").read_text())


class Programs(unittest.TestCase):
    def test_program_is_static_and_for_its_architecture(self):
        for architecture in ARCHITECTURES:
            header = printed("readelf", "--wide", "--file-header", "--program-headers", unpacked(architecture).program)
            self.assertIn(MACHINES[architecture], header)
            self.assertNotIn("INTERP", header)

    def test_symbols_have_the_build_id_of_the_program(self):
        for architecture in ARCHITECTURES:
            files = (unpacked(architecture).program, unpacked(architecture).symbols)
            ids = {re.search(r"Build ID: (\w+)", printed("readelf", "--notes", file))[1] for file in files}
            self.assertEqual(len(ids), 1, ids)

    def test_no_file_contains_a_path_of_the_machine(self):
        cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
        for architecture in ARCHITECTURES:
            for file in (unpacked(architecture).program, unpacked(architecture).symbols):
                content = file.read_bytes()
                for folder in (ROOT, Path.home(), cargo, FOLDER.parent):
                    found = re.search(rb"[^\0]{0,40}" + re.escape(f"{folder}/".encode()) + rb"[^\0]{0,80}", content)
                    self.assertIsNone(found, f"{file.name} contains {found and found[0]}")

    def test_program_prints_its_version_and_commit(self):
        describe = printed("git", "-C", ROOT, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty").strip()
        commit = describe[:8] + ("-dirty" if describe.endswith("-dirty") else "")
        emulators = {"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
        for architecture in ARCHITECTURES:
            # An emulator is optional.
            emulator = [] if architecture == MACHINE else [shutil.which(emulators[architecture])]
            if emulator != [None]:
                self.assertEqual(printed(*emulator, unpacked(architecture).program, "--version"), f"sluicegate {VERSION} ({commit})\n")


class Documents(unittest.TestCase):
    def setUp(self):
        self.path = unpacked(ARCHITECTURES[0]).path
        self.completions = self.path / "completions"

    def test_bash_completes_commands_and_options(self):
        script = """
            source "$1"
            complete_line() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); COMPREPLY=(); _sluicegate sluicegate "${!#}" "${COMP_WORDS[-2]}"; echo "${COMPREPLY[@]}"; }
            complete_line sluicegate ser
            complete_line sluicegate serve --shutdown-g
        """
        said = printed("bash", "--norc", "-euc", script, "bash", self.completions / "sluicegate.bash")
        self.assertEqual(said.split(), ["serve", "--shutdown-grace"])

    def test_zsh_loads_the_completions(self):
        zsh = shutil.which("zsh") or self.skipTest("zsh is not installed")
        script = 'fpath=("$1" $fpath); autoload -Uz compinit; compinit -D -u; print -r -- "${_comps[sluicegate]}"; autoload +X _sluicegate'
        self.assertEqual(printed(zsh, "-f", "-c", script, "zsh", self.completions).strip(), "_sluicegate")
        printed(zsh, "-n", self.completions / "_sluicegate")

    def test_fish_completes_commands(self):
        fish = shutil.which("fish") or self.skipTest("fish is not installed")
        with tempfile.TemporaryDirectory() as home:
            script = f"source '{self.completions / 'sluicegate.fish'}'; complete --do-complete 'sluicegate ser'"
            said = printed(fish, "--no-config", "--command", script, env={**os.environ, "HOME": home})
        self.assertEqual([line.split("\t")[0] for line in said.splitlines()], ["serve"])

    def test_manual_pages_render_without_a_warning(self):
        pages = sorted((self.path / "man").iterdir())
        self.assertIn("sluicegate-serve.1", [page.name for page in pages])
        for page in pages:
            command = ["man", "--warnings", "--local-file", page]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"})
            self.assertEqual((done.returncode, done.stderr), (0, ""), page.name)
            self.assertIn("SYNOPSIS", done.stdout, page.name)


class Image(unittest.TestCase):
    def test_image_has_each_architecture_with_the_released_program(self):
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(FOLDER / f"sluicegate-{VERSION}-image.tar") as archive:
                archive.extractall(folder, filter="data")
            blob = lambda descriptor: Path(folder, "blobs", *descriptor["digest"].split(":"))
            (top,) = json.loads(Path(folder, "index.json").read_text())["manifests"]
            manifests = [top]
            if len(ARCHITECTURES) > 1:
                manifests = json.loads(blob(top).read_text())["manifests"]
            self.assertEqual([entry["platform"] for entry in manifests], [{"architecture": each, "os": "linux"} for each in ARCHITECTURES])
            for architecture, entry in zip(ARCHITECTURES, manifests):
                (layer,) = json.loads(blob(entry).read_text())["layers"]
                with tarfile.open(blob(layer)) as content:
                    self.assertEqual(content.extractfile("sluicegate").read(), unpacked(architecture).program.read_bytes())


class Registry(unittest.TestCase):
    """The image and the chart in a registry."""

    @classmethod
    def setUpClass(cls):
        cls.process = subprocess.Popen([TOOLS / "crane", "registry", "serve", "--address", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        cls.addClassCleanup(cls.process.stderr.close)
        cls.addClassCleanup(cls.process.wait)
        cls.addClassCleanup(cls.process.terminate)
        port = re.search(r"port (\d+)$", cls.process.stderr.readline())[1]
        cls.address = f"127.0.0.1:{port}"

        printed(ROOT / "scripts/publish", cls.address, FOLDER)

    def test_published_image_has_each_architecture(self):
        image = f"{self.address}/sluicegate:{VERSION}"
        printed(TOOLS / "crane", "validate", "--remote", image)
        for architecture in ARCHITECTURES:
            config = json.loads(printed(TOOLS / "crane", "config", "--platform", f"linux/{architecture}", image))
            self.assertEqual((config["architecture"], config["config"]["Entrypoint"]), (architecture, ["/sluicegate"]))

    def test_published_chart_renders(self):
        chart = [f"oci://{self.address}/charts/sluicegate", "--version", VERSION, "--plain-http"]
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "HOME": home}
            self.assertIn(f"appVersion: {VERSION}\n", printed(TOOLS / "helm", "show", "chart", *chart, env=environment))
            self.assertIn("kind: Deployment", printed(TOOLS / "helm", "template", *chart, env=environment))


class Sbom(unittest.TestCase):
    def setUp(self):
        self.text = (FOLDER / f"sluicegate-{VERSION}.cdx.json").read_text()
        self.document = json.loads(self.text)

    def test_sbom_is_valid_cyclonedx(self):
        self.assertIsNone(JsonStrictValidator(SchemaVersion.V1_6).validate_str(self.text))

    def test_sbom_lists_the_contained_libraries_and_no_others(self):
        components = {each["name"]: each for each in self.document["components"]}
        for contained in ("aws-lc-sys", "glibc", "hyper", "libsqlite3-sys", "rust-std", "sluicegate-proxy"):
            self.assertIn(contained, components)
        # A test crate, a build tool and a procedural macro.
        for absent in ("cc", "serde_derive", "sluicegate-testkit"):
            self.assertNotIn(absent, components)
        hyper = components["hyper"]
        self.assertEqual((hyper["licenses"], hyper["hashes"][0]["alg"]), ([{"expression": "MIT"}], "SHA-256"))
        (root,) = [each for each in self.document["dependencies"] if each["ref"] == f"pkg:cargo/sluicegate@{VERSION}"]
        self.assertIn(f"pkg:cargo/sluicegate-proxy@{VERSION}", root["dependsOn"])

    def test_every_reference_names_a_component(self):
        known = {each["bom-ref"] for each in self.document["components"]} | {self.document["metadata"]["component"]["bom-ref"]}
        for each in self.document["dependencies"]:
            self.assertLessEqual({each["ref"], *each.get("dependsOn", [])}, known)


class DebianPackage(unittest.TestCase):
    def test_lintian_finds_no_error_and_no_warning(self):
        for architecture in ARCHITECTURES:
            # As root, lintian asks for the option.
            printed("lintian", "--allow-root", "--fail-on=error,warning", package(architecture))

    def test_package_has_the_program_of_the_archive(self):
        for architecture in ARCHITECTURES:
            with tempfile.TemporaryDirectory() as folder:
                printed("dpkg-deb", "--extract", package(architecture), folder)
                self.assertEqual(Path(folder, "usr/bin/sluicegate").read_bytes(), unpacked(architecture).program.read_bytes())
            self.assertEqual(printed("dpkg-deb", "--field", package(architecture), "Architecture").strip(), architecture)


class Workflows(unittest.TestCase):
    def test_workflows_are_valid(self):
        printed(TOOLS / "actionlint", cwd=ROOT)

    def test_actions_are_pinned_to_a_commit(self):
        for file in (ROOT / ".github/workflows").iterdir():
            for action in re.findall(r"uses: (\S+)", file.read_text()):
                self.assertRegex(action, r"@[0-9a-f]{40}$|^\./", file.name)


if __name__ == "__main__":
    sys.exit(unittest.main())
