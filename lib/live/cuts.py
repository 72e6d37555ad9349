"""What crosses each cut for a request, and how many bytes that is."""

from __future__ import annotations

from lib import cut_points
from lib.live import LEAST, Answer, Number, Refused, bars, calculates, short, sizes

COLOURS = ("cpu", "extra", "transfer", "other", "waiting")


@calculates(
    "Cut a request of your own",
    Number("prompt", "Prompt", "tokens", 8192, 1, 131_072, 1024),
    Number("output", "Answer", "tokens", 256, 1, 32_768, 64),
    Number("images", "Images in the prompt", "", 4, 1, 64),
    Number("side", "Side of an image", "px", 640, 32, 4096, 32),
)
def cuts(prompt: int, output: int, images: int, side: int) -> Answer:
    """Return the bytes that cross five cuts for one request, each on a model that it was made for."""
    fitted = cut_points.snap(side, 32)
    visual = images * cut_points.visual_tokens(fitted, fitted, 32)
    if visual > prompt:
        raise Refused({"prompt": f"prompt={prompt:,} will not do; the images alone are {visual:,} tokens"})
    found = cut_points.cuts(prompt, output, images, side)
    mib = {cut.name: cut.total / 2**20 for cut in found}
    least, most = min(mib, key=mib.__getitem__), max(mib, key=mib.__getitem__)
    return {
        "say": [
            f"Least crosses between {' and '.join(least.split(' | '))}, {short(mib[least])} MiB; "
            f"most between {' and '.join(most.split(' | '))}, {short(mib[most])} MiB.",
            f"The images are {visual:,} of the {prompt:,} tokens of the prompt.",
        ],
        "table": {
            "cut": list(mib),
            "model": [cut.model for cut in found],
            "bytes": [cut.bytes for cut in found],
            "for each": [cut.per for cut in found],
            "MiB a request": list(mib.values()),
        },
        "plot": {
            "title": "One request, cut in five places",
            "alt": "A bar for each cut, on a logarithmic scale: what crosses it for one request.",
            "x": sizes(1_000_000),
            "y": {"label": ""},
            "rows": list(mib),
            "marks": [
                bars(cut.crosses, colour, [(cut.name, LEAST, max(LEAST, mib[cut.name]))])
                for cut, colour in zip(found, COLOURS, strict=True)
            ],
        },
    }
