"""Images as bytes: a magic word, the SHA-256 of the rest, a JSON header and the object code."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple

from dnnl.runtime.image import Image, Phase, Repeat, Unknowns

MAGIC = b"dnnlobj7"
DIGEST = hashlib.sha256().digest_size


def encoded(image: Image, name: str) -> bytes:
    """The bytes of an image, with a name that tells it from others."""
    header = {
        "name": name,
        "target": image.target,
        "phases": [astuple(phase) for phase in image.phases],
        "arguments": list(image.arguments),
        "repeats": [astuple(repeat) for repeat in image.repeats],
        "unknowns": None if image.unknowns is None else astuple(image.unknowns),
    }
    text = json.dumps(header).encode()
    body = len(text).to_bytes(8, "little") + text + image.code
    return MAGIC + hashlib.sha256(body).digest() + body


def decoded(data: bytes, name: str) -> Image | None:
    """The image out of bytes; None where these are damaged or have another name."""
    body = data[len(MAGIC) + DIGEST :]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != data[len(MAGIC) :][:DIGEST]:
        return None
    length = int.from_bytes(body[:8], "little")
    header = json.loads(body[8 : 8 + length])
    if header["name"] != name:  # another kernel's file under this name
        return None
    phases = tuple(
        Phase(symbol, count, tuple(slots), scratch, group)
        for symbol, count, slots, scratch, group in header["phases"]
    )
    given = header["unknowns"]
    unknowns = None if given is None else Unknowns(*map(tuple, given))
    arguments = tuple(header["arguments"])
    repeats = tuple(Repeat(*own) for own in header["repeats"])
    return Image(header["target"], body[8 + length :], phases, arguments, unknowns, repeats)
