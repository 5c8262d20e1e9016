#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Compares MDS shards with Mosaic's implementation: mds_streaming.py PROGRAM FOLDER.

The package mosaicml-streaming writes shards in every encoding, and compressed shards if the tests
have libzstd. The blob tests list the contents, and the script compares each value with the output
of the package's own encoders. Skipped if the package is not installed."""
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


def main():
    try:
        import numpy
        from streaming.base.format.mds.encodings import mds_encode
        from streaming.base.format.mds.writer import MDSWriter
    except ImportError as problem:
        print(f"skipped: there is no mosaicml-streaming ({problem})")
        sys.exit(SKIPPED)
    program, work = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    written = list(samples(numpy, random.Random(7), 200))
    expected = [" ".join([str(i), str(len(one["text"].encode())), str(one["int"])] +
                         [mds_encode(COLUMNS[name], one[name]).hex() for name in sorted(COLUMNS)])
                for i, one in enumerate(written)]
    tests = subprocess.run([program, "--list-test-names-only", "[streaming_zstd]"],
                           stdout=subprocess.PIPE, text=True, check=False).stdout
    differing = []
    compressions = (None, "zstd", "zstd:7") if tests.strip() else (None,)
    for compression in compressions:
        for hashes in (["sha1"], ["sha256"], ["sha1", "xxh64"]):
            folder = work / f"{compression}-{hashes[-1]}".replace(":", "-")
            with MDSWriter(columns=COLUMNS, out=str(folder), size_limit=10_000,
                           compression=compression, hashes=hashes) as out:
                for sample in written:
                    out.write(sample)
            subprocess.run([program, "[streaming_zstd]" if compression else "[streaming]"],
                           check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "PENSTOCK_MDS": str(folder)})
            if folder.with_name(folder.name + ".list").read_text().splitlines() != expected:
                differing.append(folder.name)
    print(f"{3 * len(compressions)} folders of {len(written)} samples: differing {differing}")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
