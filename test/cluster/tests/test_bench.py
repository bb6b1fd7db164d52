"""A test of the experiments of `test/gateway-api/bench.py`, with few objects. It measures nothing. `failover` does not run, because
it fails if an endpoint receives a request late."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from harness.paths import PROJECT


EXPERIMENTS = ["attached", "probe", "change", "cost", "routes", "scale"]


class Bench(unittest.TestCase):
    def test_short_experiments_end_without_a_fault(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, str(PROJECT / "test/gateway-api/bench.py"), "--short", "--without-listener-sets", "--output", folder,
                 *EXPERIMENTS],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
            self.assertEqual(done.returncode, 0, done.stdout)
            results = json.loads(Path(folder, "results.json").read_text())["results"]
        self.assertEqual(set(results), set(EXPERIMENTS))
