"""What Binder would build, by the dry run of the program that it runs itself."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def plan() -> str:
    """The Dockerfile, and what is said on the way to it."""
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_binder_takes_a_python_that_the_book_runs_on(plan):
    (minor,) = re.findall(r"environment-2epy-2d3-2e(\d+)-2d", plan)  # the environment that it starts from
    least = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]["requires-python"]
    assert int(minor) >= int(least.removeprefix(">=3."))
    assert (ROOT / ".binder/runtime.txt").read_text("utf8").strip() == f"python-3.{minor}"


def test_binder_installs_what_the_book_locks(plan):
    (given,) = re.findall(r'pip install --no-cache-dir -r "(.*?)"', plan)
    inner = re.search(r"^-r (.+)$", (ROOT / given).read_text("utf8"), re.M)[1]
    lock = ((ROOT / given).parent / inner).resolve()
    assert lock == ROOT / "requirements.txt"
    assert re.search(r"^-e \.", lock.read_text("utf8"), re.M), "without it no chapter finds lib"
    assert re.search(r"^jupyterlab-myst==", lock.read_text("utf8"), re.M)


def test_binder_sets_jupyterlab_up_afterwards(plan):
    (script,) = re.findall(r"^RUN \./(.*postBuild)$", plan, re.M)
    assert subprocess.run(["bash", "-n", script], cwd=ROOT, check=False).returncode == 0
    used = re.findall(r"cp (\S+)", (ROOT / script).read_text("utf8"))
    assert used
    assert all((ROOT / name).is_file() for name in used)
    assert plan.index("pip install --no-cache-dir -r") < plan.index(f"RUN ./{script}")
