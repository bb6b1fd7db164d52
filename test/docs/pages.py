"""The pages of the site, and how a test follows a page."""

import re
import subprocess
from pathlib import Path

from environment import PROJECT, Town, program
from page import Block, Page, PageError
from session import Session

SITE = PROJECT / "docs"
FIRST = SITE / "start/cluster.md"
"""The page that installs the gateway. All other pages of clusters begin where this page ends."""


def all_pages() -> list[Page]:
    """Returns the pages of the site and README.md, in the order of the contents."""
    names = re.findall(r"\]\(([^)]+\.md)\)", (SITE / "SUMMARY.md").read_text())
    return [Page(PROJECT / "README.md"), *(Page(SITE / name) for name in names)]


def follow(page: Page, session: Session, clean_up: bool | None = None) -> None:
    """Saves the files and runs the commands of a page from top to bottom. `clean_up`: only the clean-up, or all but the clean-up."""
    for block in page.blocks:
        if clean_up is not None and block.cleans_up != clean_up:
            continue
        try:
            _do(page, block, session)
        except PageError as error:
            raise PageError(f"{page.path.relative_to(PROJECT)}: {error}") from None


def _do(page: Page, block: Block, session: Session) -> None:
    if block.language == "console":
        if "norun" not in block.flags:
            for command in page.commands(block):
                session.run(command, terminal="terminal" in block.flags)
    elif block.name:
        file = session.folder / block.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)
    elif block.language == "yaml" and not block.flags:
        raise PageError(f"line {block.line}: the first line of a YAML block is a comment with the name of the file: # NAME.yaml")


def follow_in_town(page: Page, town: Town) -> None:
    """Follows a page in a cluster. The page must clean up what it made."""
    first = Page(FIRST)
    if town.first is None:
        town.first = town.session.folder
        follow(first, town.session, clean_up=False)
    if page.path == FIRST:
        return
    before, terminals = town.objects(), town.session.terminals
    town.session.move(town.checkout(re.sub(r"\W+", "-", str(page.path.relative_to(PROJECT)))))
    follow(page, town.session)
    town.session.close_terminals(terminals)
    if left := town.gone(before):
        raise PageError(f"{page.path.relative_to(PROJECT)}: the clean-up leaves {', '.join(sorted(left))}")


def leave(town: Town) -> None:
    """Follows the clean-up of the first page, after all other pages."""
    assert town.first
    town.session.move(town.first)
    follow(Page(FIRST), town.session, clean_up=True)
    if left := town.gone(set()):
        raise PageError(f"{FIRST.relative_to(PROJECT)}: the clean-up leaves {', '.join(sorted(left))}")


def check_examples(page: Page, folder: Path) -> None:
    """Checks each YAML block with objects by `sluicegate check`."""
    for number, block in enumerate(page.blocks):
        if block.language != "yaml" or block.flags or "apiVersion:" not in block.text:
            continue
        own = folder / f"{number}"
        own.mkdir(parents=True)
        (own / (Path(block.name).name if block.name else "example.yaml")).write_text(block.text)
        found = subprocess.run([str(program()), "check", str(own)], capture_output=True, text=True, timeout=60)
        if found.returncode != 0:
            raise PageError(f"{page.path.relative_to(PROJECT)}:{block.line}: {found.stderr[-2000:]}{found.stdout[-500:]}")
