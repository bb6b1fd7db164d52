"""Tests of the parser of pages."""

import tempfile
import unittest
from pathlib import Path

from page import Page, PageError, matches


def page(text: str) -> Page:
    with tempfile.NamedTemporaryFile("w", suffix=".md") as file:
        file.write(text)
        file.flush()
        return Page(Path(file.name))


class Parse(unittest.TestCase):
    def test_page_says_how_it_is_tested(self) -> None:
        self.assertEqual(page("# A\n\n<!-- test: laptop -->\n").how, "laptop")
        self.assertEqual(page("# A\n\n<!-- test: examples, because it needs a cloud -->\n").how, "examples")
        self.assertIsNone(page("# A\n").how)

    def test_command_has_continuation_lines_and_output(self) -> None:
        text = "```console\n$ curl --header 'A: b' \\\n    localhost\nhello\n$ cat <<EOF\n> one\n> EOF\n```\n"
        read = page(text)
        first, second = read.commands(read.blocks[0])
        self.assertEqual((first.text, first.expected), ("curl --header 'A: b' \\\n    localhost", ["hello"]))
        self.assertEqual((second.text, second.expected), ("cat <<EOF\none\nEOF", []))

    def test_output_that_ends_with_a_backslash_is_no_command(self) -> None:
        read = page("```console\n$ echo a\na \\\nb\n```\n")
        (command,) = read.commands(read.blocks[0])
        self.assertEqual(command.expected, ["a \\", "b"])

    def test_block_has_the_name_of_its_file(self) -> None:
        self.assertEqual(page("```yaml\n# a/b.yaml\nx: 1\n```\n").blocks[0].name, "a/b.yaml")
        self.assertIsNone(page("```yaml\n# a comment\nx: 1\n```\n").blocks[0].name)
        self.assertIsNone(page("```console\n# a.sh\n```\n").blocks[0].name)

    def test_blocks_in_lists_lose_their_indent(self) -> None:
        self.assertEqual(page("- a\n  ```yaml\n  x: 1\n  ```\n").blocks[0].lines, ["x: 1"])

    def test_clean_up_is_a_heading(self) -> None:
        read = page("## A\n```text\n```\n## Clean up\n```text\n```\n## B\n```text\n```\n")
        self.assertEqual([block.cleans_up for block in read.blocks], [False, True, False])

    def test_wrong_pages_are_rejected(self) -> None:
        for text, said in [
            ("```\nx\n```\n", "the language of a block"),
            ("```yml\nx\n```\n", "the language of a block"),
            ("```console,fragment\n$ x\n```\n", "cannot have the flag fragment"),
            ("a\n\n    $ ls\n", "not an indented block"),
            ("```yaml\nx: 1\n", "has no end"),
        ]:
            with self.subTest(text), self.assertRaisesRegex(PageError, said):
                page(text)

    def test_output_before_a_command_is_rejected(self) -> None:
        read = page("```console\noutput\n```\n")
        with self.assertRaisesRegex(PageError, "begins with a command"):
            read.commands(read.blocks[0])


class Output(unittest.TestCase):
    def test_dots_stand_for_text_and_for_lines(self) -> None:
        for expected, output in [
            (["a"], "a\n"),
            (["a"], "a"),
            (["NAME   AGE", "a      ..."], "NAME      AGE\na         5s\n"),
            (["...", "end"], "end\n"),
            (["...", "end"], "1\n2\nend\n"),
            (["a", "..."], "a\nb\n"),
            (["a", "..."], "a\n"),
            (["HTTP/1.1 200 OK", "...", "x"], "HTTP/1.1 200 OK\r\na: b\r\n\r\nx"),
            (['  "a": "...",'], '    "a": "b",\n'),
            (["a (b) [c]*"], "a (b) [c]*\n"),
        ]:
            with self.subTest(expected=expected, output=output):
                self.assertTrue(matches(expected, output))

    def test_other_output_does_not_match(self) -> None:
        for expected, output in [
            (["a"], "b\n"),
            (["a"], "a\nb\n"),
            (["a", "b"], "a\n"),
            (["a...c"], "a\nc\n"),
            (["a.c"], "abc\n"),
            (["a"], ""),
        ]:
            with self.subTest(expected=expected, output=output):
                self.assertFalse(matches(expected, output))


if __name__ == "__main__":
    unittest.main()
