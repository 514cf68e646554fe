"""Reads the tensors that `cp-pool --dump` writes. The format is safetensors: 8 bytes with the length of the header,
little-endian; the header, which is JSON with dtype, shape and offsets of each tensor; then the tensors' bytes. This
module does not need the safetensors package, and imports torch when the first tensor is read."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_TORCH_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_MOST_NAME_BYTES = 200  # as in cases/case_id.cpp
_MOST_HEADER_BYTES = 100 << 20


def dump_file_name(case_id: str) -> str:
    """The name of the file in the dump folder: the ID with "__" for '/'. A long name is cut and gets a hash of the
    ID."""
    name = case_id.replace("/", "__").encode()
    if len(name) > _MOST_NAME_BYTES:
        hash_text = f"{_fnv1a(case_id.encode()):016x}".encode()
        kept = _MOST_NAME_BYTES - len(hash_text) - 1
        while kept > 0 and name[kept] & 0xC0 == 0x80:  # inside a code point of UTF-8
            kept -= 1
        name = name[:kept] + b"-" + hash_text
    return name.decode() + ".safetensors"


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


class Dump(Mapping[str, "torch.Tensor"]):
    """The tensors of one case by name, on the CPU. Each access reads the tensor from the file."""

    def __init__(self, path: Path) -> None:
        """Reads the header. Raises OSError, and ValueError for a file of another format."""
        self.path = path
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= _MOST_HEADER_BYTES:
                raise ValueError(f"{path} is no safetensors file")
            text = file.read(length)
        try:
            header = json.loads(text)
        except ValueError as error:
            raise ValueError(f"{path} is no safetensors file: {error}") from None
        if len(text) < length or not isinstance(header, dict):
            raise ValueError(f"{path} is no safetensors file")
        self._data_at = 8 + length
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self._entries: dict[str, dict[str, Any]] = header

    def __getitem__(self, name: str) -> torch.Tensor:
        entry = self._entries[name]
        import torch

        dtype: torch.dtype = getattr(torch, _TORCH_NAMES[entry["dtype"]])
        shape: list[int] = entry["shape"]
        begin, end = entry["data_offsets"]
        if begin == end:
            return torch.empty(shape, dtype=dtype)
        with self.path.open("rb") as file:
            file.seek(self._data_at + begin)
            data = bytearray(file.read(end - begin))
        if len(data) < end - begin:
            raise ValueError(f"{self.path} ends before tensor {name} does")
        return torch.frombuffer(data, dtype=dtype).reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<tensors {', '.join(self)} in {self.path}>"
