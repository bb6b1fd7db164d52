"""The rules of pages that need no run."""

import re
import subprocess
import unittest

from environment import PROJECT
from page import Page
from pages import SITE, all_pages


class Pages(unittest.TestCase):
    def test_every_page_says_how_it_is_tested(self) -> None:
        for page in all_pages():
            with self.subTest(page.path.name):
                runs = [block for block in page.blocks if block.language in ("console", "yaml")]
                self.assertTrue(page.how or not runs, f"{page.path}: write <!-- test: cluster --> or another word of test/docs/README.md under the title")

    def test_page_with_commands_that_do_not_run_has_a_reason(self) -> None:
        for page in all_pages():
            with self.subTest(page.path.name):
                commands = [block for block in page.blocks if block.language == "console" and "norun" not in block.flags]
                self.assertTrue(page.how != "examples" or not commands or page.reason, f"{page.path}: <!-- test: examples, because ... -->")

    def test_contents_list_every_page_once(self) -> None:
        listed = [page.path for page in all_pages()][1:]
        own = [path for path in SITE.rglob("*.md") if "decisions" not in path.parts and path.name != "SUMMARY.md"]
        self.assertEqual(sorted(listed), sorted(own))

    def test_readme_is_short_and_starts_with_the_two_commands(self) -> None:
        lines = (PROJECT / "README.md").read_text().split("\n")
        self.assertLessEqual(len(lines), 131)
        first_screen = "\n".join(lines[:40])
        self.assertIn("make demo", first_screen)
        self.assertIn("make test", first_screen)

    def test_links_lead_to_files_and_headings(self) -> None:
        files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=PROJECT, capture_output=True, text=True,
                               check=True).stdout.split()
        there = [name for name in files if (PROJECT / name).exists() and not re.match(r"(crates|fuzz|lab)/", name)]
        links = subprocess.run([str(PROJECT / "target/tools/lychee"), "--offline", "--include-fragments", "--no-progress", "--format", "compact", *there],
                               cwd=PROJECT, capture_output=True, text=True)
        self.assertEqual(links.returncode, 0, links.stdout + links.stderr)


if __name__ == "__main__":
    unittest.main()
