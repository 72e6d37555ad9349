"""How big an image is at each hop into the model, and what that keeps busy."""

from __future__ import annotations

from lib.cut_points import RPC_LIMIT, image_hops, wire_gbps
from lib.live import LEAST, MODEL, Answer, Choice, Number, bars, calculates, rule, short, sizes

FORMS = ("as patches", "as JPEG")


@calculates(
    "Send an image of your own",
    Number("upload", "The JPEG", "KiB", 278.75, 1, 20_000, 10, whole=False),
    Number("side", "Side that it is resized to", "px", 640, 28, 4096, 28),
    Number("images", "Images in a request", "", 1, 1, 64),
    Number("rate", "Requests a second", "", 100, 0.01, 10_000, 10, whole=False),
    Choice("model", "Language model", "Qwen2.5-7B", tuple(MODEL)),
)
def payload(upload: float, side: int, images: int, rate: float, model: str) -> Answer:
    """Return the sizes of the images of a request in five forms, and the Gb/s of each at a rate."""
    one = image_hops(round(upload * 1024), MODEL[model], side)
    hops = {name: images * size for name, size in one.items()}
    mib = {name: size / 2**20 for name, size in hops.items()}
    fits = RPC_LIMIT // one["patches"]
    growth = hops["patches"] / hops["JPEG"]
    return {
        "say": [
            f"A request brings {short(mib['JPEG'])} MiB and becomes {short(mib['patches'])} MiB of patches, "
            f"{short(growth)} times as much. At {rate:g} requests a second that is "
            f"{short(wire_gbps(hops['patches'], rate))} Gb/s.",
            f"An RPC limit of {RPC_LIMIT / 2**20:.0f} MiB lets "
            + (f"{fits} such image{'s' * (fits > 1)} through" if fits else "no such image through")
            + f"; its KV cache has {short(mib['KV'] / images)} MiB.",
        ],
        "table": {
            "form": list(hops),
            "MiB": list(mib.values()),
            "times the JPEG": [size / hops["JPEG"] for size in hops.values()],
            "Gb/s": [wire_gbps(size, rate) for size in hops.values()],
        },
        "plot": {
            "title": "The same image in five forms",
            "alt": "A bar for each form of the images, on a logarithmic scale, and the limit of a message.",
            "x": sizes(100_000),
            "y": {"label": ""},
            "rows": list(hops),
            "marks": [
                bars("in a file or a tensor", "cpu", [(name, LEAST, mib[name]) for name in list(hops)[:3]]),
                bars("out of the encoder", "extra", [("embeddings", LEAST, mib["embeddings"])]),
                bars("out of prefill", "prefill", [("KV", LEAST, mib["KV"])]),
                rule("RPC limit", RPC_LIMIT / 2**20),
            ],
        },
    }
