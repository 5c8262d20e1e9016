#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares MDS shards with Mosaic's: mds_streaming.py PROGRAM FOLDER has the package
mosaicml-streaming write shards of each encoding, has the blob tests read them and write them anew,
and compares: the bytes of the new files with the old ones, and the samples that the package reads
from them. Then compressed ones, where the tests have libzstd: the package's are read by them, and
theirs by its StreamingDataset, which compares their sums. Skipped where it is not installed."""
import filecmp
import os
import pathlib
import random
import shutil
import subprocess
import sys

SKIPPED = 77
COLUMNS = {"array": "ndarray:float32:2,3", "bytes": "bytes", "free": "ndarray", "half": "float16",
           "int": "int", "json": "json", "long": "uint64", "narrow": "ndarray:int16",
           "small": "int8", "stri": "str_int", "text": "str"}


def samples(numpy, draw, count):
    for _ in range(count):
        yield {
            "array": numpy.array([[draw.random()] * 3] * 2, numpy.float32),
            "bytes": draw.randbytes(draw.randrange(300)),
            "free": numpy.arange(draw.randrange(1, 9), dtype=numpy.uint8),
            "half": numpy.float16(draw.random()),
            "int": draw.randrange(-2**63, 2**63),
            "json": {"a": [draw.random(), None]},
            "long": draw.randrange(2**64),
            "narrow": numpy.array([[draw.randrange(99)]], numpy.int16),
            "small": draw.randrange(-128, 128),
            "stri": draw.randrange(-99999, 99999),
            "text": "".join(draw.choice("ab\u00e4\u20ac") for _ in range(draw.randrange(50))),
        }


def same(numpy, one, other):
    return one.keys() == other.keys() and all(
        numpy.array_equal(one[name], other[name]) for name in one)


def differing_zipped(program, work, written):
    """Which of the compressed folders differ, and how many samples were read."""
    import numpy
    from streaming import StreamingDataset
    from streaming.base.format.mds.writer import MDSWriter
    differing, count = [], 0
    for compression in ("zstd", "zstd:7"):
        folder = work / compression.replace(":", "-")
        with MDSWriter(columns=COLUMNS, out=str(folder), size_limit=10_000, compression=compression,
                       hashes=["sha1", "sha256", "xxh64"]) as out:
            for sample in written:
                out.write(sample)
        subprocess.run([program, "[streaming_zstd]"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "PENSTOCK_MDS": str(folder)})
        for validated in ("sha1", "xxh64", "sha256"):
            again = work / f"{folder.name}-again"
            for raw in again.glob("*.mds"):  # what the dataset below leaves
                raw.unlink()
            dataset = StreamingDataset(local=str(again), batch_size=1, shuffle=False,
                                       validate_hash=validated)
            read = [dataset[i] for i in range(len(dataset))]
            count += len(read)
            if len(read) != len(written) or not all(
                    same(numpy, *pair) for pair in zip(read, written)):
                differing.append(f"{again.name} by {validated}")
            del dataset
    return differing, count


def main():
    try:
        import numpy
        from streaming.base.format.mds.reader import MDSReader
        from streaming.base.format.mds.writer import MDSWriter
        import json
    except ImportError as problem:
        print(f"skipped: there is no mosaicml-streaming ({problem})")
        sys.exit(SKIPPED)
    program, work = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    folder, again = work / "shards", work / "shards-again"
    written = list(samples(numpy, random.Random(7), 200))
    with MDSWriter(columns=COLUMNS, out=str(folder), size_limit=10_000,
                   hashes=["sha1", "xxh64"]) as out:
        for sample in written:
            out.write(sample)
    subprocess.run([program, "[streaming]"], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "PENSTOCK_MDS": str(folder)})
    names = sorted(path.name for path in folder.iterdir())
    _, differing, missing = filecmp.cmpfiles(folder, again, names, shallow=False)
    listed = [f"{i} {len(one['text'].encode())} {one['int']}" for i, one in enumerate(written)]
    if (work / "shards.list").read_text().splitlines() != listed:
        differing.append("shards.list")
    read = []
    for entry in json.loads((again / "index.json").read_text())["shards"]:
        shard = MDSReader.from_json(str(again), "", entry)
        read += [shard.decode_sample(shard.get_sample_data(i)) for i in range(shard.samples)]
    if len(read) != len(written) or not all(same(numpy, *pair) for pair in zip(read, written)):
        differing.append("samples")
    count = len(read)
    tests = subprocess.run([program, "--list-test-names-only", "[streaming_zstd]"],
                           stdout=subprocess.PIPE, text=True, check=False).stdout
    if tests.strip():
        zipped, more = differing_zipped(program, work, written)
        differing += zipped
        count += more
    print(f"{len(names)} files, {count} samples: differing {differing + missing}")
    sys.exit(bool(differing or missing))


if __name__ == "__main__":
    main()
