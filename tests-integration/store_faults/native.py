"""Wrong containers for the native parser and for cuDNN, in a process that may die of them.

    python -m store_faults.native describe CONTAINER COUNT SEED
    python -m store_faults.native verify CONTAINER COUNT SEED

Prints the number of each before it is tried, and at the end how many were refused.
"""

from __future__ import annotations

import faulthandler
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import sdpa_ffi
from sdpa_core import DeviceSpec, SdpaEnvironmentError

from .mutations import HEADER, mutated_containers, sealed


def describe(container: bytes) -> None:
    sdpa_ffi.describe(container)


def verify(container: bytes) -> None:
    properties = DeviceSpec.named("h200").properties
    assert properties is not None
    sdpa_ffi.verify(container, properties)


def shortened(container: bytes, count: int) -> list[bytes]:
    """Containers whose blob ends early and whose header says so."""
    offset, size = struct.unpack_from("<IQ", container, 12)
    found = []
    for step in range(1, count + 1):
        kept = size * step // (count + 1)
        changed = bytearray(container[: offset + kept])
        struct.pack_into("<Q", changed, 16, kept)
        found.append(sealed(bytes(changed)))
    return found


def run(check: Callable[[bytes], None], containers: list[bytes]) -> None:
    refused = 0
    for number, container in enumerate(containers):
        os.write(1, f"{number} {container[:HEADER].hex()}\n".encode())
        try:
            check(container)
        except (ValueError, RuntimeError, SdpaEnvironmentError) as error:
            refused += 1
            if not str(error):
                sys.exit("an error without a message")
    print("refused", refused, "of", len(containers))


if __name__ == "__main__":
    faulthandler.enable()
    what, path, count, seed = sys.argv[1:]
    given = Path(path).read_bytes()
    wrong = list(mutated_containers(given, int(count), int(seed)))
    if what == "verify":
        verify(given)
        wrong += shortened(given, 20)
    run({"describe": describe, "verify": verify}[what], wrong)
