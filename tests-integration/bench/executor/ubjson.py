"""A reader of UBJSON, as cuDNN's frontend serializes graphs in it (ubjson.org, draft 12)."""

from __future__ import annotations

import struct
from typing import Any

_CONSTANTS = {"Z": None, "T": True, "F": False}
_NUMBERS = {"i": ">b", "U": ">B", "I": ">h", "l": ">i", "L": ">q", "d": ">f", "D": ">d"}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self, kind: str | None = None) -> Any:
        """The next value; ``kind`` if a container has told its marker already."""
        kind = kind or self._marker()
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind in _NUMBERS:
            return self._number(kind)
        if kind in "SH":
            return self._text()
        if kind == "C":
            return self._take(1).decode()
        if kind == "[":
            return self._array()
        if kind == "{":
            return self._object()
        raise ValueError(f"marker {kind!r} at byte {self._at - 1} is not UBJSON")

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if count < 0 or len(taken) < count:
            raise ValueError(f"{count} bytes are announced at byte {self._at}, there are fewer")
        self._at += count
        return taken

    def _marker(self) -> str:
        return self._take(1).decode("latin-1")

    def _peek(self) -> str:
        return self._data[self._at : self._at + 1].decode("latin-1")

    def _number(self, kind: str) -> Any:
        layout = struct.Struct(_NUMBERS[kind])
        return layout.unpack(self._take(layout.size))[0]

    def _length(self) -> int:
        return int(self._number(self._marker()))

    def _text(self) -> str:
        return self._take(self._length()).decode()

    def _container(self) -> tuple[str | None, int | None]:
        """Marker and number of the values, as far as the container tells them."""
        kind = None
        if self._peek() == "$":
            self._marker()
            kind = self._marker()
        if self._peek() != "#":
            return kind, None
        self._marker()
        return kind, self._length()

    def _array(self) -> list[Any]:
        kind, count = self._container()
        if count is not None:
            return [self.value(kind) for _ in range(count)]
        found = []
        while self._peek() != "]":
            found.append(self.value())
        self._marker()
        return found

    def _object(self) -> dict[str, Any]:
        kind, count = self._container()
        if count is not None:
            return {self._text(): self.value(kind) for _ in range(count)}
        found = {}
        while self._peek() != "}":
            name = self._text()
            found[name] = self.value()
        self._marker()
        return found


def loads(data: bytes) -> Any:
    """The first value in these bytes.

    Raises:
        ValueError: they are not UBJSON.
    """
    return _Reader(data).value()
