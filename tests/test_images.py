import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import cut_points, images
from lib.page.published import agrees, figures

PAYLOAD = figures()["payload"]
MIB = 2**20


@pytest.fixture(scope="module")
def photo():
    return images.jpeg(images.photo())


def test_published_jpeg_size(photo):
    assert agrees(len(photo) / MIB, PAYLOAD["mib"]["jpeg"])
    assert round(len(photo) / MIB, 3) == 0.272


def test_pixels_weigh_what_the_arithmetic_says(photo):
    plain = images.prepare(photo)
    patches = images.patchify(images.prepare(photo, 644, 644))
    hops = cut_points.image_hops(len(photo))
    assert plain.dtype == patches.dtype == np.float32
    assert plain.nbytes == hops["plain tensor"]
    assert patches.nbytes == hops["patches"]
    assert len(patches) == 4 * PAYLOAD["visual_tokens"]


def test_normalized_pixels_are_in_range(photo):
    image = images.prepare(photo)
    lowest = -np.array(images.MEAN) / images.DEVIATION
    highest = (1 - np.array(images.MEAN)) / images.DEVIATION
    assert (image >= lowest - 1e-6).all()
    assert (image <= highest + 1e-6).all()
    assert np.abs(image.mean()) < 1


def test_black_and_white_are_normalized_as_clip_does_it():
    mean, deviation = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    assert (mean, deviation) == (images.MEAN, images.DEVIATION)
    for level in (0, 1):
        image = images.prepare(images.jpeg(np.full((64, 64, 3), 255 * level, np.uint8)), 28, 28)
        expected = (level - np.array(mean)) / deviation
        assert image == pytest.approx(np.broadcast_to(expected, image.shape), rel=1e-7)


def test_noise_is_the_larger_file(photo):
    assert len(images.jpeg(images.noise())) > 4 * len(photo)
    assert (images.noise().min(), images.noise().max()) == (0, 255)


def test_an_image_is_the_same_every_time(photo):
    assert images.jpeg(images.photo()) == photo
    assert (images.noise(8, 8) != images.noise(8, 8, seed=1)).any()


def test_the_photograph_shows_what_it_is_said_to():
    pixels = images.photo().astype(float)
    assert pixels.shape == images.noise().shape == (1080, 1920, 3)
    y, x = np.mgrid[:1080, :1920]
    disc = (x - 1300) ** 2 + (y - 500) ** 2 <= 220**2
    square = (x >= 300) & (x < 700) & (y >= 200) & (y < 600)
    ground = np.stack([x / 1920 * 200 + 30, y / 1080 * 180 + 40, (x + y) / 3000 * 150 + 60], axis=-1)
    ground[disc], ground[square] = (220, 180, 60), (70, 120, 200)
    grain = pixels + 0.5 - ground  # bytes are cut off, not rounded
    for part in (disc, square, ~disc & ~square):
        assert grain[part].mean(axis=0) == pytest.approx([0, 0, 0], abs=0.1)
        assert grain[part].std(axis=0) == pytest.approx([6, 6, 6], abs=0.1)
    assert np.abs(grain).max() < 6 * 6


def test_patches_go_there_and_back_as_qwen2_vl_takes_them():
    image = np.random.default_rng(0).normal(size=(56, 84, 3)).astype(np.float32)
    patches = images.patchify(image)
    assert patches.shape == (4 * 6, 3 * 2 * 14**2)
    assert (images.unpatchify(patches, 84, 56) == image).all()
    assert (patches == images.patchify(image, patch=14, merge=2, frames=2)).all()


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_unpatchify_gives_the_image_back(across, down, patch, merge, frames):
    width, height = across * patch * merge, down * patch * merge
    image = np.random.default_rng(0).normal(size=(height, width, 3)).astype(np.float32)
    patches = images.patchify(image, patch, merge, frames)
    assert patches.shape == (across * down * merge**2, 3 * frames * patch**2)
    assert (images.unpatchify(patches, width, height, patch, merge, frames) == image).all()


def test_the_patches_of_a_token_lie_together():
    rows, columns = np.mgrid[:8, :8]
    token = (rows // 4) * 2 + columns // 4  # which 4 x 4 px square a pixel is in
    image = np.stack([token] * 3, axis=-1).astype(np.float32)
    patches = images.patchify(image, patch=2, merge=2, frames=1)
    assert [set(row) for row in patches] == [{t} for t in range(4) for _ in range(4)]


def test_both_frames_are_the_same():
    image = np.random.default_rng(0).normal(size=(28, 28, 3)).astype(np.float32)
    frames = images.patchify(image).reshape(4, 3, 2, 14, 14)
    assert (frames[:, :, 0] == frames[:, :, 1]).all()


def test_preparation_takes_time(photo):
    assert 0.0005 < images.preparation_seconds(photo, repeats=1) < 20


def test_loading_the_module_loads_neither_numpy_nor_pillow():
    code = "import sys, lib.images; sys.exit(bool({'numpy', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: images.patchify(np.zeros((640, 644, 3), np.float32)), "height=640.*resize to 644"),
        (lambda: images.patchify(np.zeros((28, 30, 3), np.float32)), "width=30.*resize to 28"),
        (lambda: images.patchify(np.zeros((28, 28, 3), np.float32), patch=0), "patch=0"),
        (lambda: images.jpeg(images.noise(8, 8), quality=0), "quality=0"),
        (lambda: images.photo(0, 8), "width=0"),
        (lambda: images.noise(8, -1), "height=-1"),
        (lambda: images.prepare(b"not a picture"), "data"),
        (lambda: images.preparation_seconds(b"", repeats=0), "repeats=0"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_jpeg_has_a_quality_from_1_to_95():
    assert len(images.jpeg(images.noise(16, 16), 1)) < len(images.jpeg(images.noise(16, 16), 95))
    for quality in (0, 96, True):
        with pytest.raises(ValueError, match="quality="):
            images.jpeg(images.noise(16, 16), quality)
