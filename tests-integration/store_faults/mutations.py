"""Store files that are not what they should be: damaged, or wrong and sealed again.

Of the sealed ones every hash is right, so that it is the reader that has to notice.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from hashlib import sha256

from sdpa_core.store import Provenance, wrap

HEADER, BINDING = 152, 32
HASH = slice(88, 120)

#: Offset and type of the header's fields, its hash left out; and of a binding's.
HEADER_FIELDS = (
    *((0, "<8s"), (8, "<I"), (12, "<I"), (16, "<Q"), (24, "<Q"), (32, "<I"), (36, "<I")),
    *((40, "<I"), (44, "<I"), (48, "<I"), (52, "<I"), (56, "<32s"), (120, "<32s")),
)
BINDING_FIELDS = ((0, "<q"), (8, "<Q"), (16, "<I"), (20, "<I"), (24, "<I"), (28, "<I"))

Mutation = Callable[[bytearray, random.Random], None]


def sealed(container: bytes) -> bytes:
    """The container with the hash of what it holds."""
    if len(container) < HEADER:
        return container
    return container[: HASH.start] + sha256(container[HEADER:]).digest() + container[HASH.stop :]


def _count(container: bytes) -> int:
    return int(struct.unpack_from("<I", container, 48)[0])


def _other_value(container: bytearray, at: int, field: str, rng: random.Random) -> None:
    size = struct.calcsize(field)
    if field.endswith("s"):
        container[at : at + size] = rng.randbytes(size)
        return
    (value,) = struct.unpack_from(field, container, at)
    top = 1 << (8 * size)
    near = [value + step for step in (-32, -8, -1, 1, 8, 32)]
    far = [0, 1, 2, top // 2 - 1, top // 2, top - 1, top - 32, rng.randrange(top), value << 8]
    chosen = rng.choice(near + far) % top
    struct.pack_into(field.upper().replace("<", "<"), container, at, chosen)


def header_field(container: bytearray, rng: random.Random) -> None:
    _other_value(container, *rng.choice(HEADER_FIELDS), rng)


def header_byte(container: bytearray, rng: random.Random) -> None:
    at = rng.choice([i for i in range(HEADER) if not HASH.start <= i < HASH.stop])
    container[at] ^= rng.randrange(1, 256)


def binding_field(container: bytearray, rng: random.Random) -> None:
    offset, field = rng.choice(BINDING_FIELDS)
    _other_value(
        container, HEADER + BINDING * rng.randrange(_count(container)) + offset, field, rng
    )


def binding_byte(container: bytearray, rng: random.Random) -> None:
    container[HEADER + rng.randrange(BINDING * _count(container))] ^= rng.randrange(1, 256)


def bindings(container: bytearray, rng: random.Random) -> None:
    """One less, one twice, or two exchanged; count and offset fit."""
    count = _count(container)
    start = HEADER + BINDING * rng.randrange(count)
    record = container[start : start + BINDING]
    choice = rng.randrange(3)
    if choice == 0:
        del container[start : start + BINDING]
    elif choice == 1:
        container[start:start] = record
    else:
        other = HEADER + BINDING * ((start - HEADER) // BINDING + 1) % count
        container[start : start + BINDING], container[other : other + BINDING] = (
            container[other : other + BINDING],
            record,
        )
        return
    count += (-1, 1)[choice]
    struct.pack_into("<I", container, 48, count)
    struct.pack_into("<I", container, 12, HEADER + BINDING * count)


def length(container: bytearray, rng: random.Random) -> None:
    """Cut or longer; the sizes in the header stay."""
    if rng.random() < 0.7:
        del container[rng.randrange(len(container)) :]
    else:
        container += rng.randbytes(rng.randrange(1, 100))


def sizes(container: bytearray, rng: random.Random) -> None:
    """The blob's offset and size moved against each other: their sum is the file's size."""
    step = rng.choice((-64, -32, -1, 1, 32, 64))
    offset, size = struct.unpack_from("<IQ", container, 12)
    struct.pack_into("<IQ", container, 12, offset + step, size - step)
    if rng.random() < 0.5:
        struct.pack_into("<I", container, 48, _count(container) + step // BINDING)


SEALED: tuple[Mutation, ...] = (
    *(header_field, header_field, header_byte, binding_field, binding_byte),
    *(bindings, length, sizes),
)


def flipped(file: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 9))):
        file[rng.randrange(len(file))] ^= 1 << rng.randrange(8)


def truncated(file: bytearray, rng: random.Random) -> None:
    del file[rng.randrange(len(file)) :]


def longer(file: bytearray, rng: random.Random) -> None:
    file += bytes(rng.randrange(1, 5000))


def zeroed(file: bytearray, rng: random.Random) -> None:
    """What a file system that lost a block gives back."""
    start = rng.randrange(len(file))
    stop = min(len(file), start + rng.choice((1, 16, 512, 4096)))
    file[start:stop] = bytes(stop - start)


def garbage(file: bytearray, rng: random.Random) -> None:
    file[:] = rng.randbytes(rng.randrange(5000))


def frame_length(file: bytearray, rng: random.Random) -> None:
    """Another end of the provenance; the frame's hash fits."""
    _other_value(file, 12, "<I", rng)
    file[16:48] = sha256(file[:16] + file[48:]).digest()


DAMAGE: tuple[Mutation, ...] = (flipped, truncated, longer, zeroed, garbage, frame_length)


def mutated_containers(container: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Containers whose hash is right and whose contents are not."""
    rng = random.Random(seed)
    while count:
        changed = bytearray(container)
        rng.choice(SEALED)(changed, rng)
        if bytes(changed) != container:
            count -= 1
            yield sealed(bytes(changed))


def mutated_files(container: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Store files, every second one of which is sealed."""
    rng = random.Random(seed)
    whole = wrap(container, Provenance("forward", "2026-12-01T00:00:00+00:00", "sdpa-core"))
    wrong = mutated_containers(container, count // 2, seed)
    for _ in range(count // 2):
        yield wrap(next(wrong), Provenance("forward"))
        changed = bytearray(whole)
        while bytes(changed) == whole:
            rng.choice(DAMAGE)(changed, rng)
        yield bytes(changed)
