"""The benchmark of `simulator.py` with the simulator's inner loop compiled, from the same source.

    python benchmarks/compiled.py [--quick] [--million]

Copies `lib` to `_build/compiled`, compiles two of its modules there with mypyc, and runs the benchmark on
that copy. (mypyc comes with mypy and needs a C compiler.) Nothing compiled ever lies beside the source. The
times of all tokens stay the same to the last bit.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

HOUSE = Path(__file__).parent.parent
COPY = HOUSE / "_build" / "compiled"
INNER = ("lib/jumping.py", "lib/log.py")


def main():
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(HOUSE / "lib", COPY / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(HOUSE / name, COPY)
    mypyc = Path(sys.executable).with_name("mypyc")
    done = subprocess.run([mypyc, *INNER], cwd=COPY, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"mypyc: {done.stdout}{done.stderr}")
    environment = os.environ | {"PYTHONPATH": str(COPY)}
    benchmark = HOUSE / "benchmarks" / "simulator.py"
    sys.exit(subprocess.call([sys.executable, benchmark, *sys.argv[1:]], cwd=COPY, env=environment))


if __name__ == "__main__":
    main()
