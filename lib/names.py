"""Names of GPUs, links and models as people write them: exact ones and listed aliases, never a guess."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Protocol, TypeVar


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...


Thing = TypeVar("Thing", bound=Named)

ALIASES: Mapping[str, str] = {  # what people write: the catalogue's name
    "A100": "A100 80 GB SXM",
    "A100 80 GB": "A100 80 GB SXM",
    "A100 SXM": "A100 80 GB SXM",
    "A100 40 GB": "A100 40 GB SXM",
    "H100": "H100 SXM",
    "H100 80 GB": "H100 SXM",
    "H100 SXM5": "H100 SXM",
    "H200 SXM": "H200",
    "B200 SXM": "B200",
    "RTX PRO 6000 Blackwell": "RTX PRO 6000",
    "RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000",
    "PCIe 4": "PCIe 4.0 x16",
    "PCIe 4.0": "PCIe 4.0 x16",
    "PCIe 4 x16": "PCIe 4.0 x16",
    "PCIe 5": "PCIe 5.0 x16",
    "PCIe 5.0": "PCIe 5.0 x16",
    "PCIe 5 x16": "PCIe 5.0 x16",
    "NVLink": "NVLink-class",
    "100 Gb/s": "100 Gb/s RDMA",
    "200 Gb/s": "200 Gb/s RDMA",
    "400 Gb/s": "400 Gb/s RDMA",
    "Qwen2.5-7B-Instruct": "Qwen2.5-7B",
    "Qwen2.5-7B-Instruct-GPTQ-Int4": "Qwen2.5-7B Int4",
    "Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "Meta-Llama-3.1-8B": "Llama-3.1-8B",
    "Meta-Llama-3.1-8B-Instruct": "Llama-3.1-8B",
    "Llama-3.1-70B-Instruct": "Llama-3.1-70B",
    "Meta-Llama-3.1-70B": "Llama-3.1-70B",
    "Meta-Llama-3.1-70B-Instruct": "Llama-3.1-70B",
    "Llama-3.3-70B": "Llama-3.1-70B",
    "Llama-3.3-70B-Instruct": "Llama-3.1-70B",
    "Llama-2-70b-hf": "Llama-2-70B",
    "Llama-2-70b-chat-hf": "Llama-2-70B",
    "DeepSeek-R1": "DeepSeek-V3",
    "DeepSeek-V3-0324": "DeepSeek-V3",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": "Nemotron-3-Nano",
    "Qwen3-235B-A22B-FP8": "Qwen3-235B-A22B FP8",
    "Llama-4-Scout-17B-16E-Instruct": "Llama-4 Scout",
    "Kimi-K2-Instruct": "Kimi K2",
    "gemma-3-27b-it": "Gemma 3 27B",
    "Mistral-Small-24B-Instruct-2501": "Mistral Small 24B",
}


def plain(name: str) -> str:
    """Return a name's letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find(argument: str, wanted: str, things: Sequence[Thing], or_else: str = "") -> Thing:
    """Return the thing of this name, or whose listed alias it is. ValueError names what may be meant.

    Upper and lower case, blanks and dashes do not count, nor whose it is (`meta-llama/`).
    """
    known = {plain(thing.name): thing for thing in things}
    aliases = {plain(alias): known.get(plain(name)) for alias, name in ALIASES.items()}
    for one in (plain(wanted), plain(wanted.rpartition("/")[2])):
        found = known.get(one) or aliases.get(one)
        if found is not None:
            return found
    close = get_close_matches(plain(wanted), known, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(known[one].name for one in close)}? " if close else ""
    listed = ", ".join(thing.name for thing in things)
    raise ValueError(f"{argument}: {wanted!r} is none; {meant}use one of {listed}{or_else}")
