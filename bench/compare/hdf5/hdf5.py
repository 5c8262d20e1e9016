#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Samples for each second of processor time from an HDF5 file with deflate chunks, penstock and
h5py in rotation.

    hdf5.py --ours build/bench/bench/compare/penstock_hdf5_peer --python PYTHON [--rounds 3]

PYTHON has numpy and h5py. The file has 60,000 samples of 28 x 28 bytes, in chunks of 64 samples. All
rows that read the whole file must have the same sum of the first bytes.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def write_file(path):
    import h5py
    import numpy

    rng = numpy.random.default_rng(0)
    x = rng.integers(0, 16, (60000, 28, 28), dtype=numpy.uint8)
    x[rng.random(x.shape) < 0.8] = 0
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(64, 28, 28), compression="gzip")


def read_by_h5py(path, order, cache_bytes):
    import h5py
    import numpy

    with h5py.File(path, "r", rdcc_nbytes=int(cache_bytes), rdcc_nslots=10007) as file:
        data = file["x"]
        begin = time.process_time()
        total = 0
        if order == "sequential":
            indices = numpy.arange(len(data))
            for i in range(0, len(data), 64):
                total += int(data[i : i + 64][:, 0, 0].sum())
        else:
            indices = numpy.random.default_rng(1).permutation(len(data))
            if int(cache_bytes) < 1 << 28:
                indices = indices[:6000]  # a chunk for each sample
            for i in range(0, len(indices), 64):
                batch = numpy.stack([data[int(k)] for k in indices[i : i + 64]])
                total += int(batch[:, 0, 0].sum())
        print(round(len(indices) / (time.process_time() - begin)), total)


def main():
    if sys.argv[1:2] == ["--write"]:
        return write_file(sys.argv[2])
    if sys.argv[1:2] == ["--h5py"]:
        return read_by_h5py(*sys.argv[2:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ours", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "x.h5"))
        script = [options.python, __file__]
        subprocess.run([*script, "--write", path], check=True)
        rows = {
            f"penstock/{order}/workers:{workers}": [options.ours, path, order, str(workers)]
            for order in ("sequential", "block_shuffled", "shuffled")
            for workers in (1, 2)
        }
        rows["h5py/sequential"] = [*script, "--h5py", path, "sequential", str(1 << 20)]
        rows["h5py/random/cache:1MiB"] = [*script, "--h5py", path, "random", str(1 << 20)]
        rows["h5py/random/cache:256MiB"] = [*script, "--h5py", path, "random", str(1 << 28)]
        found = {name: [] for name in rows}
        sums = set()
        for _ in range(options.rounds):
            for name, command in rows.items():
                words = subprocess.run(command, check=True, capture_output=True, text=True)
                rate, total = words.stdout.split()
                found[name].append(int(rate))
                if "1MiB" not in name:
                    sums.add(total)
        if len(sums) != 1:
            sys.exit(f"hdf5.py: the rows have different sums: {sums}")
    median = {name: statistics.median(rates) for name, rates in found.items()}
    print(f"{'samples a CPU second':>52}")
    for name, rate in median.items():
        print(f"{name:32}{rate:20,.0f}")
    for ours, theirs in (
        ("penstock/sequential/workers:1", "h5py/sequential"),
        ("penstock/shuffled/workers:1", "h5py/random/cache:1MiB"),
        ("penstock/shuffled/workers:1", "h5py/random/cache:256MiB"),
    ):
        ratio = median[ours] / median[theirs]
        met = "met" if ratio >= 4 else "missed"
        print(f"{ours} over {theirs}: {ratio:.2f}; at least 4: {met}")


if __name__ == "__main__":
    main()
