"""Pictures are made ready for models in the sandbox: small, upright, and never more than a machine can take."""

from __future__ import annotations

import importlib.util
import io
import struct
import zlib
from typing import Any

import pytest
from PIL import Image

from gateway.domain.images import ModelImage
from gateway.sandbox.tiers import Landlock, Tier
from gateway.tools.contract import ToolError
from gateway.tools.documents import Documents, kind_of
from gateway.tools.web.extract import MAX_PICTURE_BYTES, MODEL_PIXELS
from gateway.tools.web.reading import NotHere, PageReader
from tests.gateway.tools.test_page_reading import each_tier, fetched


def drawn(kind: str, width: int, height: int, mode: str = "RGB", **options: Any) -> bytes:
    """A picture with noise in it, so that it does not become tiny."""
    whole = io.BytesIO()
    Image.effect_noise((width, height), 80).convert(mode).save(whole, kind, **options)
    return whole.getvalue()


def opened(image: ModelImage) -> Image.Image:
    return Image.open(io.BytesIO(image.data))


def bomb(pixels: int) -> bytes:
    """A small file that claims to be so high and wide."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", pixels, pixels, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    )


@each_tier
async def test_a_large_picture_is_shrunk_and_a_small_one_stays_as_it_is(tier: Tier) -> None:
    reader = PageReader(tier=tier)
    shrunk = await reader.picture(drawn("JPEG", 4_000, 3_000))
    assert shrunk.media_type == "image/jpeg"
    assert opened(shrunk).size == (MODEL_PIXELS, 1_176)
    assert len(shrunk.data) < MAX_PICTURE_BYTES
    small = drawn("PNG", 40, 30)
    assert await reader.picture(small) == ModelImage(media_type="image/png", data=small)


async def test_each_kind_that_models_take_is_shrunk_and_kept_below_the_limit() -> None:
    reader = PageReader(tier=Landlock())
    for kind, mode in (("PNG", "RGB"), ("PNG", "RGBA"), ("GIF", "L"), ("WEBP", "RGB")):
        whole = drawn(kind, 2_000, 2_400, mode)
        shrunk = await reader.picture(whole)
        assert max(opened(shrunk).size) == MODEL_PIXELS
        assert f"image/{str(opened(shrunk).format).lower()}" == shrunk.media_type
        assert len(shrunk.data) < MAX_PICTURE_BYTES
        assert kind_of(whole) == f"image/{kind.lower()}"


async def test_a_photograph_is_turned_upright_and_keeps_nothing_of_the_camera() -> None:
    notes = Image.Exif()
    notes[0x0112], notes[0x010F] = 6, "a camera"
    upright = opened(await PageReader(tier=Landlock()).picture(drawn("JPEG", 60, 30, exif=notes)))
    assert (upright.size, dict(upright.getexif())) == ((30, 60), {})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bomb(60_000), "has too many pixels$"),
        (bomb(8_000), "has too many pixels: 8000 x 8000"),
        (drawn("PNG", 400, 300)[:-2_000], "is damaged"),
        (b"\x89PNG\r\n\x1a\n", "is damaged"),
        (b"<svg/>", "is damaged, or no PNG, JPEG, GIF or WebP"),
        (drawn("BMP", 40, 30), "is damaged, or no PNG, JPEG, GIF or WebP"),
        (b"", "is damaged"),
    ],
    ids=range(7),
)
async def test_what_is_no_good_picture_is_an_error_that_says_why(data: bytes, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        await PageReader(tier=Landlock()).picture(data)


async def test_what_is_missing_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none() -> Tier | None:
        return None

    small = drawn("PNG", 40, 30)
    with pytest.raises(NotHere, match="without a sandbox none is read; `ethos doctor` says"):
        await Documents(none).picture(small)
    assert await Documents(none).picture_if_it_can(small) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(NotHere, match=r"the operator must install the extra `documents`: `.*pip install"):
        await PageReader(tier=Landlock()).picture(small)


async def test_a_picture_at_an_address_is_handed_on_whole() -> None:
    small = drawn("PNG", 40, 30)
    read = await PageReader(tier=None).read(fetched(small, "image/png"))
    assert (read.picture, read.notes) == (small, [f"This is a picture: image/png, {len(small)} bytes."])
    assert (await PageReader(tier=None).read(fetched(small, "image/png", is_cut=True))).picture is None
