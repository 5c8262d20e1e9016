# SPDX-License-Identifier: BSL-1.0
"""The files and the Python peers of formats.py.

    python3 format_peers.py write FOLDER      writes the files whose packages can be imported
    python3 format_peers.py SIDE ...          runs a side of SIDES. ../peer.py describes the rest
"""

import itertools
import json
import os
import platform
import sys
import tempfile
import wave
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import peer  # noqa: E402

# All values are whole numbers, so that their sums are exact in any order.
BATCH = 64
SAMPLES, IMAGES = 200000, 20000
CLIP_FILES, CLIP = 500, 16000  # a clip is a second


def write_tfrecord(path, random):
    from tensorflow import io, train

    def floats(values):
        return train.Feature(float_list=train.FloatList(value=values))

    def integers(values):
        return train.Feature(int64_list=train.Int64List(value=values))

    with io.TFRecordWriter(str(path)) as file:
        for i in range(SAMPLES):
            features = {
                "image": train.Feature(bytes_list=train.BytesList(value=[random.bytes(784)])),
                "scores": floats(random.integers(0, 100, 32)),
                "ids": integers(random.integers(0, 30000, 16)),
                "label": integers([i % 10]),
            }
            file.write(train.Example(features=train.Features(feature=features)).SerializeToString())


def write_jsonl(path, random):
    words = ["".join(map(chr, random.integers(97, 123, n))) for n in random.integers(2, 10, 1000)]
    with open(path, "w") as file:
        for i in range(SAMPLES):
            text = " ".join(words[k] for k in random.integers(0, 1000, random.integers(20, 60)))
            box = [float(value) for value in random.integers(0, 1000, 4)]
            ids = random.integers(0, 30000, 32).tolist()
            file.write(json.dumps({"text": text, "box": box, "ids": ids, "label": i % 10}) + "\n")


def write_wav(folder, random):
    # Each second is the same, so that the sum of a clip does not depend on its random position.
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(CLIP_FILES):
        with wave.open(f"{folder}/{i:03}.wav", "wb") as file:
            file.setparams((1, 2, CLIP, 0, "NONE", ""))
            file.writeframes(np.tile(random.integers(-2000, 2000, CLIP).astype("<i2"), 10).tobytes())


def write_hdf5(path, random):
    import h5py

    x = random.integers(0, 16, (IMAGES, 28, 28), dtype=np.uint8)
    x[random.random(x.shape) < 0.8] = 0
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=x, chunks=(64, 28, 28), compression="gzip")


class Epochs:
    """Each epoch is the iterator over batches that begin() returns."""

    def __init__(self, begin):
        self.begin = begin

    def __iter__(self):
        return iter(self.begin())


def row(open_files, consume):
    """Returns a row. open_files(folder) returns a function that begins an epoch. consume(batch)
    returns the sum of the floats, the sum of the integers, and the number of samples."""
    return lambda folder: peer.load(lambda: Epochs(open_files(folder)), consume)


def indices(count, shuffle):
    """Yields batches of indices."""
    order = np.random.default_rng().permutation(count) if shuffle else np.arange(count)
    for begin in range(0, count, BATCH):
        yield order[begin : begin + BATCH]


def tensorflow_rows():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "scores": tf.io.FixedLenFeature([32], tf.float32),
        "ids": tf.io.FixedLenFeature([16], tf.int64),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(records):
        batch = tf.io.parse_example(records, features)
        return {**batch, "image": tf.io.decode_raw(batch["image"], tf.uint8, fixed_length=784)}

    def batches(buffer=0, calls=None):
        def open_files(folder):
            records = tf.data.TFRecordDataset(f"{folder}/samples.tfrecord")
            if buffer:
                records = records.shuffle(buffer)
            return records.batch(BATCH).map(parse, calls).prefetch(2).as_numpy_iterator

        return row(open_files, consume)

    def consume(batch):
        numbers = sum(int(batch[name].sum()) for name in ("image", "ids", "label"))
        return float(batch["scores"].sum()), numbers, len(batch["label"])

    rows = {
        "tfrecord/tf.data/sequential": batches(),
        "tfrecord/tf.data/sequential/autotune": batches(calls=tf.data.AUTOTUNE),
        "tfrecord/tf.data/buffer:1000": batches(1000),
    }
    return rows, {"tensorflow": tf.__version__}


def sum_lines(batch):
    text = np.frombuffer("".join(batch["text"]).encode(), np.uint8)
    numbers = sum(int(np.asarray(one).sum()) for one in (text, batch["ids"], batch["label"]))
    return float(np.asarray(batch["box"]).sum()), numbers, len(batch["label"])


def json_rows():
    def batches(folder):
        with open(f"{folder}/samples.jsonl", "rb") as file:
            while lines := [json.loads(line) for line in itertools.islice(file, BATCH)]:
                yield {name: [line[name] for line in lines] for name in lines[0]}

    rows = {"jsonl/json.loads/sequential": row(lambda folder: lambda: batches(folder), sum_lines)}
    return rows, {"python": platform.python_version()}


def datasets_rows():
    import datasets

    datasets.disable_progress_bars()

    def opened(folder, cache, form="numpy"):
        lines = datasets.load_dataset("json", data_files=f"{folder}/samples.jsonl", cache_dir=cache)
        return lines["train"].with_format(form)

    def shuffled(folder):
        lines = opened(folder, f"{folder}/hf")
        return lambda: (lines[batch] for batch in indices(len(lines), True))

    def sequential(form):
        return lambda folder: lambda lines=opened(folder, f"{folder}/hf", form): lines.iter(BATCH)

    def first_use(folder):
        def epoch():
            with tempfile.TemporaryDirectory() as cache:
                yield from opened(folder, cache).iter(BATCH)

        return epoch

    def sum_arrow(table):
        arrays = {name: table[name].combine_chunks() for name in table.column_names}
        arrays |= {name: arrays[name].flatten().to_numpy() for name in ("box", "ids")}
        return sum_lines({**arrays, "text": arrays["text"].to_pylist()})

    rows = {
        "jsonl/datasets/first_use": row(first_use, sum_lines),
        "jsonl/datasets/sequential": row(sequential("numpy"), sum_lines),
        "jsonl/datasets/shuffled": row(shuffled, sum_lines),
        "jsonl/datasets_arrow/sequential": row(sequential("arrow"), sum_arrow),
    }
    return rows, {"datasets": datasets.__version__}


def soundfile_rows():
    import soundfile

    random = np.random.default_rng(1)

    def read(file, out):
        file.seek(random.integers(0, file.frames - CLIP + 1))
        file.read(dtype="float32", out=out)

    def read_path(path, out):
        with soundfile.SoundFile(path) as file:
            read(file, out)

    def clips(kept):
        def open_files(folder):
            paths = sorted(map(str, Path(folder, "wav").glob("*.wav")))
            files = [soundfile.SoundFile(path) for path in paths] if kept else paths

            def epoch():
                for batch in indices(len(files), True):
                    values = np.empty((len(batch), CLIP), np.float32)
                    for k, out in zip(batch, values):
                        (read if kept else read_path)(files[k], out)
                    yield values

            return epoch

        return row(open_files, lambda values: (float(values.sum()) * 32768, 0, len(values)))

    rows = {"wav/soundfile/shuffled": clips(False), "wav/soundfile_open_files/shuffled": clips(True)}
    return rows, {"soundfile": soundfile.__version__, "libsndfile": soundfile.__libsndfile_version__}


def h5py_rows():
    import h5py

    def images(shuffle, cache_bytes, once=False):
        def open_file(folder):
            return h5py.File(f"{folder}/samples.h5", rdcc_nbytes=cache_bytes, rdcc_nslots=10007)

        def epoch_of(file):
            data = file["x"]
            for batch in indices(len(data), shuffle):
                yield np.stack([data[k] for k in batch]) if shuffle else data[batch[0] : batch[-1] + 1]

        def epoch(folder):
            with open_file(folder) as file:
                yield from epoch_of(file)

        def open_files(folder):
            if not once:
                return lambda: epoch(folder)
            file = open_file(folder)
            return lambda: epoch_of(file)

        return row(open_files, lambda x: (0, int(x.sum()), len(x)))

    rows = {
        "hdf5/h5py/sequential": images(False, 1 << 20),
        "hdf5/h5py/sequential/opened:once": images(False, 1 << 20, once=True),
        "hdf5/h5py/shuffled/cache:1MiB": images(True, 1 << 20),
        "hdf5/h5py/shuffled/cache:256MiB": images(True, 1 << 28),
    }
    return rows, {"h5py": h5py.__version__, "HDF5": h5py.version.hdf5_version}


WRITERS = {
    "samples.tfrecord": write_tfrecord,
    "samples.jsonl": write_jsonl,
    "wav": write_wav,
    "samples.h5": write_hdf5,
}
SIDES = {
    "tensorflow": tensorflow_rows,
    "datasets": datasets_rows,
    "json": json_rows,
    "soundfile": soundfile_rows,
    "h5py": h5py_rows,
}


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, write_file in WRITERS.items():
        done = folder / f"{name}.done"  # written last, to mark complete files
        try:
            if not done.exists():
                write_file(folder / name, np.random.default_rng(1))
                done.touch()
        except ImportError as error:
            print(f"no {name}: {error}")
    print(f"{SAMPLES} records, as many lines, {CLIP_FILES} WAV files of 10 s, {IMAGES} images")


if __name__ == "__main__":
    side = sys.argv.pop(1)
    if side == "write":
        write(Path(sys.argv[1]))
    else:
        peer.main(*SIDES[side]())
