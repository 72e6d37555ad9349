"""From a JPEG to what an encoder takes: decoded, resized, normalized, cut into patches.

`cut_points` computes the sizes; here they are weighed on real pixels. numpy and Pillow are imported where
they are used, so that a page in a browser can load this module without them.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from lib import checks, timing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]  # (height, width, 3)
    Image = NDArray[np.float32]  # (height, width, 3), normalized

# Mean and standard deviation of each channel in CLIP's training images, from 0 to 1: image_mean and image_std
# in preprocessor_config.json of Qwen/Qwen2-VL-7B-Instruct.
MEAN = (0.48145466, 0.4578275, 0.40821073)
DEVIATION = (0.26862954, 0.26130258, 0.27577711)


def photo(width: int = 1920, height: int = 1080, seed: int = 0) -> Pixels:
    """A stand-in for a photograph: gradients, a disc and a rectangle with sharp edges, sensor-like noise."""
    import numpy as np

    checks.counts("photo", width=width, height=height)
    y, x = np.mgrid[:height, :width].astype(np.float64)
    gradients = (x / width * 200 + 30, y / height * 180 + 40, (x + y) / (width + height) * 150 + 60)
    image = np.stack(gradients, axis=-1)
    image[(x - 1300) ** 2 + (y - 500) ** 2 <= 220**2] = (220, 180, 60)
    image[200:600, 300:700] = (70, 120, 200)
    image += np.random.default_rng(seed).normal(0, 6, image.shape)
    return image.clip(0, 255).astype(np.uint8)


def noise(width: int = 1920, height: int = 1080, seed: int = 0) -> Pixels:
    """An image of nothing but noise: as many bytes and as much work for a JPEG decoder as its size allows."""
    import numpy as np

    checks.counts("noise", width=width, height=height)
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def jpeg(pixels: Pixels, quality: int = 85) -> bytes:
    """The pixels as a JPEG file."""
    import PIL.Image

    if isinstance(quality, bool) or not 1 <= quality <= 95:
        raise ValueError(f"jpeg: quality={quality!r} is out of range; use 1 to 95")
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def prepare(data: bytes, width: int = 640, height: int = 640) -> Image:
    """A JPEG decoded, resized to width x height px and normalized to float32, as image processors do."""
    import numpy as np
    import PIL.Image

    checks.counts("prepare", width=width, height=height)
    try:
        picture = PIL.Image.open(io.BytesIO(data)).convert("RGB")
    except OSError as error:
        raise ValueError(f"prepare: data={data[:8]!r}... is no image; use the bytes of a JPEG") from error
    resized = picture.resize((width, height), PIL.Image.Resampling.BICUBIC)
    values = np.asarray(resized, dtype=np.float32) / 255
    normalized: Image = ((values - np.array(MEAN)) / np.array(DEVIATION)).astype(np.float32)
    return normalized


def patchify(image: Image, patch: int = 14, merge: int = 2, frames: int = 2) -> NDArray[np.float32]:
    """The image as rows, one per patch: 3 channels x `frames` equal frames x patch x patch values.

    Rows come in the order of Qwen2-VL's image processor: the merge x merge patches that become one visual
    token lie together.
    """
    import numpy as np

    checks.counts("patchify", patch=patch, merge=merge, frames=frames)
    height, width, channels = image.shape
    for name, px in (("height", height), ("width", width)):
        if px % (patch * merge):
            raise ValueError(
                f"patchify: {name}={px} is not a multiple of patch x merge = {patch * merge}; "
                f"resize to {max(1, round(px / (patch * merge))) * patch * merge}"
            )
    down, across = height // (patch * merge), width // (patch * merge)
    squares = image.reshape(down, merge, patch, across, merge, patch, channels)
    rows = squares.transpose(0, 3, 1, 4, 6, 2, 5)  # token row, token column, patch in token, channel, y, x
    repeated = np.repeat(rows[..., None, :, :], frames, axis=-3)
    return repeated.reshape(-1, channels * frames * patch * patch)


def unpatchify(
    patches: NDArray[np.float32], width: int, height: int, patch: int = 14, merge: int = 2, frames: int = 2
) -> Image:
    """The image of width x height px back from its patches, taken from their first frame."""
    checks.counts("unpatchify", width=width, height=height, patch=patch, merge=merge, frames=frames)
    down, across = height // (patch * merge), width // (patch * merge)
    rows = patches.reshape(down, across, merge, merge, -1, frames, patch, patch)[..., 0, :, :]
    return rows.transpose(0, 2, 5, 1, 3, 6, 4).reshape(height, width, -1)


def preparation_seconds(data: bytes, width: int = 640, height: int = 640, repeats: int = 5) -> float:
    """Seconds that `prepare` takes on this machine: the least of `repeats` runs after one to warm up."""
    return timing.seconds(lambda: prepare(data, width, height), repeats)
