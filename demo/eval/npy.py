"""Reads little-endian float32 matrices in .npy files; standard library only."""

import ast
import struct
from pathlib import Path


def rows_of(path: Path) -> list[tuple[float, ...]]:
    raw = path.read_bytes()
    length = struct.unpack("<H", raw[8:10])[0]
    header = ast.literal_eval(raw[10 : 10 + length].decode())
    n_rows, n_columns = header["shape"]
    values = struct.unpack(f"<{n_rows * n_columns}f", raw[10 + length :])
    return [values[row * n_columns : (row + 1) * n_columns] for row in range(n_rows)]
