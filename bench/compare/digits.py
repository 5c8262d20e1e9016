# SPDX-License-Identifier: BSL-1.0
"""Copies MNIST's four files, plain or .gz, from one folder to another and unpacks them: python3
digits.py FROM TO.

Prints the kind of the data: "MNIST", "IDX files" for other files, or "random bytes" of MNIST's size
if FROM is --random.
"""

import gzip
import hashlib
import os
import random
import shutil
import struct
import sys
from pathlib import Path

NAMES = [
    f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
]
# SHA-256 of all four files, concatenated.
MNIST = "b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a"


def write_random(target):
    """Writes the same random bytes each time, with the labels 0, 1, ..., 9, 0, and so on."""
    for name in NAMES:
        count = 60000 if name.startswith("train") else 10000
        if "labels" in name:
            head, content = struct.pack(">4BI", 0, 0, 8, 1, count), bytes(range(10)) * (count // 10)
        else:
            head = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
            content = random.Random(name).randbytes(count * 28 * 28)
        (target / name).write_bytes(head + content)
    print("random bytes")


def main():
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "--random":
        write_random(target)
        return
    source = Path(sys.argv[1])
    content = hashlib.sha256()
    for name in NAMES:
        plain, packed = source / name, source / f"{name}.gz"
        if not plain.exists() and not packed.exists():
            sys.exit(f"digits.py: neither {plain} nor {packed} is there")
        opener, path = (open, plain) if plain.exists() else (gzip.open, packed)
        part = target / f"{name}.part"
        with opener(path, "rb") as file, open(part, "wb") as out:
            shutil.copyfileobj(file, out)
        os.replace(part, target / name)
        content.update((target / name).read_bytes())
    print("MNIST" if content.hexdigest() == MNIST else "IDX files")


if __name__ == "__main__":
    main()
