"""A page of the documentation as a test reads the page: files to save, commands to run, and their expected output."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LANGUAGES = {"bash", "console", "diff", "html", "ini", "json", "lua", "nginx", "promql", "proto", "python", "rust", "text", "toml", "yaml"}
"""The languages of blocks. `text` is for output that no test compares."""
FLAGS = {"console": {"norun", "terminal"}, "yaml": {"fragment", "other"}}
"""What may follow a language after a comma. README.md of this folder explains each word."""
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
NAME = re.compile(r"^(?:#|//|--) (?P<name>[\w./-]+\.\w+)$")
HOW = re.compile(r"^<!-- test: (?P<how>cluster|laptop|examples)(?:, because (?P<reason>[^>]+))? -->$", re.MULTILINE)
CLEAN_UP = re.compile(r"^#+ Clean up$")


class PageError(Exception):
    """A page breaks a rule of pages. The message names the file and the line."""


@dataclass
class Block:
    """A fenced block."""

    line: int
    """The number of the line with the opening fence."""
    language: str
    flags: set[str]
    lines: list[str]
    cleans_up: bool
    """Whether the block is below the heading `Clean up`."""

    @property
    def name(self) -> str | None:
        """The name in the comment of the first line, under which a reader saves the block."""
        found = NAME.match(self.lines[0]) if self.lines and self.language != "console" else None
        return found["name"] if found else None

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass
class Command:
    """A command of a block `console`."""

    line: int
    text: str
    expected: list[str] = field(default_factory=list)
    """The expected lines of output. Without lines, any output is right."""


class Page:
    """A Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text()
        found = HOW.search(text)
        self.how: str | None = found["how"] if found else None
        """`cluster`, `laptop` or `examples`; `None` if the page does not say."""
        self.reason: str | None = found["reason"] if found else None
        """Why only the examples are checked."""
        self.blocks = list(_blocks(path, text.split("\n")))

    def commands(self, block: Block) -> list[Command]:
        """Parses a block `console`."""
        commands: list[Command] = []
        continues = False
        for number, line in enumerate(block.lines, block.line + 1):
            if line.startswith("$ "):
                commands.append(Command(number, line[2:]))
            elif not commands:
                raise PageError(f"{self.path}:{number}: a block `console` begins with a command: `$ COMMAND`")
            elif line.startswith("> ") or line == ">":
                commands[-1].text += "\n" + line[2:]
            elif continues:
                commands[-1].text += "\n" + line
            else:
                commands[-1].expected.append(line.rstrip())
            continues = line.endswith("\\") and not commands[-1].expected
        return commands


def _blocks(path: Path, lines: list[str]) -> Iterator[Block]:
    opened: tuple[int, str, str] | None = None
    body: list[str] = []
    cleans_up = False
    listed = False
    for number, line in enumerate(lines, 1):
        fence = FENCE.match(line)
        if opened:
            start, indent, info = opened
            if fence and not fence["info"] and len(fence["indent"]) <= len(indent):
                yield _block(path, start, info, body, cleans_up)
                opened = None
            else:
                body.append(line.removeprefix(indent))
            continue
        if fence:
            opened, body = (number, fence["indent"], fence["info"]), []
        elif line.startswith("#"):
            cleans_up = CLEAN_UP.match(line) is not None
        elif line.startswith("    ") and not listed:
            raise PageError(f"{path}:{number}: use a fenced block with a language, not an indented block")
        if line.strip():
            listed = re.match(r"\s*([-*]|\d+\.) ", line) is not None or listed and line.startswith("  ")
    if opened:
        raise PageError(f"{path}:{opened[0]}: the block has no end")


def _block(path: Path, line: int, info: str, lines: list[str], cleans_up: bool) -> Block:
    language, *flags = info.split(",")
    if language not in LANGUAGES:
        raise PageError(f"{path}:{line}: the language of a block is one of {', '.join(sorted(LANGUAGES))}, not {language!r}")
    if unknown := set(flags) - FLAGS.get(language, set()):
        raise PageError(f"{path}:{line}: {language} cannot have the flag {', '.join(sorted(unknown))}")
    return Block(line, language, set(flags), lines, cleans_up)


def matches(expected: list[str], output: str) -> bool:
    """Whether the output is as expected. A line `...` stands for any lines, `...` in a line for any text, and a space for any spaces."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            words = [re.escape(_spaces(part)) for part in line.strip().split("...")]
            pattern += "[^\n]*".join(words).replace(r"\ ", " ") + "\n"
    lines = [_spaces(line).strip() for line in output.replace("\r", "").rstrip("\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    while pattern.endswith("\n\n"):
        pattern = pattern[:-1]
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def _spaces(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text)
