# SPDX-License-Identifier: BSL-1.0
"""python3 digits.py FROM TO: MNIST's four files, plain or .gz, from one folder to another, plain.

Prints what they are: "MNIST", or else "IDX files".
"""

import gzip
import hashlib
import os
import shutil
import sys
from pathlib import Path

NAMES = [
    f"{part}-{what}-ubyte" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
]
# SHA-256 of all four, one after the other.
MNIST = "b2d8f5bf39174ee5ffeefa97e42d673c35432b411bb5d1f74fbbeddae7f1690a"


def main():
    source, target = map(Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
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
