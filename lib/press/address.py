"""Where the repository and the site are on the web, as far as that is known; paths on disk are elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from urllib.parse import urlsplit

from lib.page.checkout import ROOT

SERVED = "http://127.0.0.1:8000/"  # where `make serve` shows the site


@cache  # asked for every link
def git(*arguments: str) -> str:
    """Return what git says of the book's folder, or nothing where it says nothing."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def repository() -> str:
    """Return the web address of the repository, from GitHub or the git remote; empty when unknown."""
    name = os.environ.get("GITHUB_REPOSITORY")
    if name:
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
    match = re.fullmatch(
        r"(?:https://|git@|ssh://git@)(github\.com|gitlab\.com)[:/](.+?)(?:\.git)?/?",
        git("remote", "get-url", "origin"),
    )
    return f"https://{match[1]}/{match[2]}" if match else ""


def commit() -> str:
    """Return the commit that the site is built from; empty outside of git."""
    return os.environ.get("GITHUB_SHA") or git("rev-parse", "HEAD")


def website() -> str:
    """Return the address of the site with its last slash: BOOK_URL, or GitHub Pages; empty when unknown."""
    given = os.environ.get("BOOK_URL", "")
    if given and not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", given):
        raise ValueError(f"BOOK_URL={given!r} is no address; give one such as https://example.org/book/")
    match = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+)", repository())
    if not given and match:
        owner, name = match[1].lower(), match[2]
        given = f"https://{owner}.github.io/" + ("" if name.lower() == f"{owner}.github.io" else name)
    return f"{given.rstrip('/')}/" if given else ""


def root() -> str:
    """Return the path at which the site lies on its host: `/`, or `/name/` on GitHub Pages."""
    return urlsplit(website() or SERVED).path
