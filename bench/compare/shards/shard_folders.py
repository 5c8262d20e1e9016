# SPDX-License-Identifier: BSL-1.0
"""Creates the folder for shards.py in the formats that its sides read. Equal seeds give equal
bytes.

    python3 shard_folders.py FOLDER [SAMPLES]    prints the contents; existing formats are kept

    FOLDER/tar/train-00000N.tar    8 ustar archives; a sample is <key>.bin, 12,288 bytes, and <key>.cls
    FOLDER/mds/                    the same samples as MDS, if mosaicml-streaming is installed
    FOLDER/hf/                     the same samples as Arrow files, if datasets is installed
"""

import io
import sys
import tarfile
from pathlib import Path

import numpy as np

SHARDS = 8
BYTES = 64 * 64 * 3
CLASSES = 10


def samples_of(shard, count):
    """Yields the (key, content, label) of all samples in one shard."""
    random = np.random.default_rng([17, shard])
    for number in range(shard, count, SHARDS):
        yield f"{number:07}", random.bytes(BYTES), number % CLASSES


def write_tar(folder, count):
    for shard in range(SHARDS):
        with tarfile.open(folder / f"train-{shard:06}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for key, content, label in samples_of(shard, count):
                for extension, part in (("bin", content), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{key}.{extension}")
                    member.size = len(part)
                    tar.addfile(member, io.BytesIO(part))


def write_mds(folder, count):
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"bin": "bytes", "cls": "int"}, size_limit=1 << 26) as out:
        for shard in range(SHARDS):
            for _, content, label in samples_of(shard, count):
                out.write({"bin": content, "cls": label})


def write_hf(folder, count):
    import datasets

    def rows():
        for shard in range(SHARDS):
            for _, content, label in samples_of(shard, count):
                yield {"bin": content, "cls": label}

    datasets.Dataset.from_generator(rows).save_to_disk(str(folder))


FORMS = {"tar": write_tar, "mds": write_mds, "hf": write_hf}


def make(folder, count):
    skipped = []
    for form, write in FORMS.items():
        done = Path(folder, form + ".done")  # written last, to mark a complete format
        if done.exists() and done.read_text() == str(count):
            continue
        Path(folder, form).mkdir(parents=True, exist_ok=True)
        try:
            write(Path(folder, form), count)
            done.write_text(str(count))
        except ImportError:
            skipped.append(form)
    without = f", without {' and '.join(skipped)}" if skipped else ""
    return f"{count} samples of {BYTES} bytes in {SHARDS} shards{without}"


if __name__ == "__main__":
    print(make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20000))
