# SPDX-License-Identifier: BSL-1.0
"""The rows of MLPerf Storage v3.0 for a B200, and files for them that fit on this machine.

    python3 workloads.py FOLDER ROW [cold]    creates the files of a row if they do not exist

The accelerator of a row is simulated: a step sleeps for a fixed time, as in DLIO.
"""

import io
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Workload:
    kind: str  # KIND of penstock_storage_peer
    sample: int  # mean number of used bytes
    batch: int
    step: float  # in seconds
    passes: float  # the utilization that the benchmark requires
    files: int
    samples_a_file: int
    epochs: int  # number of measured epochs, after an unmeasured epoch
    ending: str = "parquet"
    codec: str = "NONE"  # the codec of Parquet pages
    # Number of different values; 0 means any value from 0 to 1, as in the benchmark's generator.
    numbers: int = 0
    has_dictionary: bool = False  # false is pyarrow's default
    has_types: bool = False  # true if the columns have the benchmark's types and positions
    cold_files: int = 0  # number of additional files for an epoch that is read from the disk

    @property
    def samples_per_second(self):
        """Samples per second that keep the accelerator busy."""
        return self.batch / self.step

    @property
    def demand(self):
        """MB per second that keep the accelerator busy."""
        return self.sample * self.samples_per_second / 1e6


JPEG = Workload("files", 322957, 24, 0.04755, 0.85, files=480, samples_a_file=1, epochs=4, ending="jpg")
DLRM = Workload("columns", 160, 16384, 0.000375, 0.70, files=4, samples_a_file=24 * 6144, epochs=12)
WORKLOADS = {
    "retinanet": JPEG,
    "retinanet_decoded": replace(JPEG, kind="images", files=96, epochs=8),
    "unet3d": Workload("files", 146600628, 7, 0.162, 0.90, files=14, samples_a_file=1, epochs=4, ending="npz",
                       cold_files=112),
    "dlrm": replace(DLRM, cold_files=32),
    "dlrm_types": replace(DLRM, kind="typed_columns", has_types=True),
    "dlrm_dictionary": replace(DLRM, has_dictionary=True),
    "dlrm_dictionary_lz4": replace(DLRM, has_dictionary=True, codec="LZ4"),
    "dlrm_dictionary_snappy": replace(DLRM, has_dictionary=True, codec="SNAPPY"),
    "dlrm_lz4": replace(DLRM, codec="LZ4"),
    "dlrm_snappy": replace(DLRM, codec="SNAPPY"),
    "dlrm_lz4_1000": replace(DLRM, codec="LZ4", numbers=1000),
    "dlrm_snappy_1000": replace(DLRM, codec="SNAPPY", numbers=1000),
    "flux": Workload("blobs", 2160000, 48, 1.35, 0.90, files=4, samples_a_file=48, epochs=1),
}
UNET3D_SPREAD = 68341808  # in bytes
DLRM_COLUMNS, DLRM_READ, DLRM_GROUP = 200, 40, 6144
# The columns that dlrm_types reads, as in mlcommons' dlrm_b200.yaml: 160 bytes per row.
DLRM_TYPES = {
    "float32": (11, 17, 18, 25, 31, 41, 43, 49, 53, 59, 67, 71, 74, 88, 90, 91, 93, 96, 137, 141, 147, 155, 158, 160,
                162, 189, 195),
    "float64": (20, 75, 94, 117, 154),
    "float16": (58, 68, 92, 97),
    "int8": (116, 169, 180, 186),
}
FLUX_GROUP = 8
IMAGES = 24  # number of different images; the others are copies


def read_columns(name):
    """Returns the columns that are read from a row's Parquet files."""
    if name == "flux":
        return ["image"]
    numbers = range(DLRM_READ)
    if WORKLOADS[name].has_types:
        numbers = sorted(number for columns in DLRM_TYPES.values() for number in columns)
    return [f"c{number}" for number in numbers]


def paths(folder, name, is_cold=False):
    """Returns the files of a row, to be read from the page cache or from the disk."""
    row = WORKLOADS[name]
    own = name if row.ending == "parquet" else name.partition("_")[0]
    if row.codec != "NONE" and row.numbers == 0:
        own += "_any"  # older versions wrote other files to the folder without this suffix
    return [Path(folder, own, f"{number:05}.{row.ending}") for number in range(is_cold and row.cold_files or row.files)]


def drop(files):
    """Drops the files from the page cache."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)  # unwritten data would remain in the page cache
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def jpeg(number, size):
    """Returns a JPEG file of exactly `size` bytes: shapes and noise, and a comment as padding."""
    import numpy as np
    from PIL import Image

    random = np.random.default_rng(number)
    coarse = Image.fromarray(random.integers(0, 256, (24, 32, 3), np.uint8)).resize((1024, 768), Image.BICUBIC)
    noise = random.normal(0, 12, (768, 1024, 1))
    image = Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8))
    for quality in range(95, 5, -1):
        out = io.BytesIO()
        image.save(out, "jpeg", quality=quality)
        missing = size - len(out.getvalue())
        if missing == 0 or missing >= 4:
            break
    content = out.getvalue()
    while missing > 0:
        part = min(missing, 65537) if missing - min(missing, 65537) not in (1, 2, 3) else missing - 4
        content = content[:2] + b"\xff\xfe" + (part - 2).to_bytes(2, "big") + bytes(part - 4) + content[2:]
        missing -= part
    return content


def npz(number, size):
    import numpy as np

    random = np.random.default_rng(number)
    size = int(np.clip(random.normal(size, UNET3D_SPREAD), size - UNET3D_SPREAD, size + UNET3D_SPREAD))
    out = io.BytesIO()
    np.savez(out, x=random.integers(0, 256, (1, size), np.uint8))
    return out.getbuffer()


def table(number, row):
    """Returns the row groups of a Parquet file, and their schema."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(number)
    group = FLUX_GROUP if row.kind == "blobs" else DLRM_GROUP
    for _ in range(row.samples_a_file // group):
        if row.kind == "blobs":
            yield pa.table({"image": pa.array([random.bytes(row.sample) for _ in range(group)], pa.binary())})
        else:
            values = random.random((DLRM_COLUMNS, group), np.float32)
            if row.numbers > 0:
                values = np.floor(row.numbers * values) / 8
            types = dict.fromkeys(range(DLRM_COLUMNS), "float32")
            if row.has_types:
                # The types of the columns that are not read.
                types = {column: list(DLRM_TYPES)[column % 4] for column in types}
                types |= {column: kind for kind, columns in DLRM_TYPES.items() for column in columns}
            scale = {"int8": 128}
            yield pa.table({f"c{c}": (values[c] * scale.get(kind, 1)).astype(kind) for c, kind in types.items()})


def make(folder, name, is_cold=False):
    row = WORKLOADS[name]
    for number, path in enumerate(paths(folder, name, is_cold)):
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        if row.ending != "parquet":
            is_jpeg = row.ending == "jpg"
            content = jpeg(number % IMAGES, row.sample) if is_jpeg else npz(number, row.sample)
            part.write_bytes(content)
        else:
            import pyarrow.parquet as pq

            writer = None
            for group in table(number, row):
                writer = writer or pq.ParquetWriter(
                    part, group.schema, compression=row.codec, use_dictionary=row.has_dictionary)
                writer.write_table(group)
            writer.close()
        part.rename(path)


if __name__ == "__main__":
    make(*sys.argv[1:])
