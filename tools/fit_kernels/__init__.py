"""Fits the constants of `lib.kernels` to kernels that others timed, and writes `lib/data/kernels.toml`.

What it reads, none of it code, none of it shipped:

- the kernel tables of aiconfigurator-core 0.12.0 on PyPI (NVIDIA, Apache-2.0; parquet);
- the tuning logs of AITER (github.com/ROCm/aiter, MIT; CSV): the MI300X;
- the profiles of Vidur (github.com/microsoft/vidur, MIT; CSV): the A40, kernels that are bound by memory, and
  an all-reduce over PCIe.

How to run it, in an environment of its own (about two minutes, 82 MB):

    python -m venv /tmp/fit && /tmp/fit/bin/pip install numpy pyarrow
    /tmp/fit/bin/pip download --no-deps -d /tmp/fit aiconfigurator-core==0.12.0
    unzip -q /tmp/fit/aiconfigurator_core-*.whl -d /tmp/fit/tables
    git clone https://github.com/ROCm/aiter /tmp/fit/aiter
    git clone https://github.com/microsoft/vidur /tmp/fit/vidur
    /tmp/fit/bin/python -m tools.fit_kernels /tmp/fit/tables /tmp/fit/aiter /tmp/fit/vidur

The clones may be bare. The same tables give the same file, to the last byte.
"""
