#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares npy_dataset with numpy: npy_numpy.py PROGRAM FOLDER.

numpy writes arrays of each type in either byte order, as npy files of each version and as an npz
file. The data tests read the arrays, and the script compares the elements. Skipped if numpy is not
installed."""
import os
import pathlib
import shutil
import subprocess
import sys

SKIPPED = 77
TYPES = ["b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "M8[ns]"]


def main():
    try:
        import numpy
    except ImportError:
        print("skipped: there is no numpy")
        sys.exit(SKIPPED)
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = numpy.random.default_rng(7)
    arrays = {}
    for kind in TYPES:
        for order in "<>":
            for version in [(1, 0), (2, 0), (3, 0)]:
                shape = tuple(int(n) for n in draw.integers(1, 30, 2))
                values = draw.integers(0, 2, shape) if kind == "b1" else draw.normal(0, 50, shape)
                array = values.astype("i8" if kind[0] == "M" else kind).astype(order + kind)
                name = f"{kind}-{'big' if order == '>' else 'little'}-{version[0]}"
                with open(folder / (name + ".npy"), "wb") as file:
                    numpy.lib.format.write_array(file, array, version=version)
                arrays[name] = array
    numpy.savez(folder / "all.npz", **arrays)
    (folder / "cases").write_text("".join(f"{name} {name[:2]}\n" for name in arrays))
    subprocess.run([program, "[numpy]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_ARRAYS": str(folder)})
    differing = 0
    for name, array in arrays.items():
        expected = array.astype(array.dtype.newbyteorder("=")).tobytes()
        for way in ["npy", "npz"]:
            if (folder / f"{name}.{way}-bytes").read_bytes() != expected:
                differing += 1
                print(f"{name} by {way}: other elements")
    print(f"numpy {numpy.__version__}: {differing} of {2 * len(arrays)} arrays differ")
    sys.exit(differing != 0)


if __name__ == "__main__":
    main()
