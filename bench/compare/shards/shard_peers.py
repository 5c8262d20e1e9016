# SPDX-License-Identifier: BSL-1.0
"""The Python peers of shards.py.

    python3 shard_peers.py PEER --list | --data FOLDER --row NAME

PEER is a function below; ../peer.py describes the other arguments. FOLDER is the folder of
shard_folders.py. Each peer imports its own packages, because any of them may be missing.
"""

import functools
import os
import random
import sys
import tarfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import peer  # noqa: E402

peer.LEAST_SECONDS = 1
STEP = 64  # the consumer reads one value per cache line, as penstock's side does


def batch_of(samples):
    """Returns the (bytes, labels) of samples (bytes, label)."""
    content = np.stack([np.frombuffer(one, np.uint8) for one, _ in samples])
    return content, np.array([int(label) for _, label in samples], np.int64)


def batch_of_rows(rows):
    return batch_of([(row["bin"], row["cls"]) for row in rows])


def consume(batch):
    content, labels = np.asarray(batch[0]), np.asarray(batch[1])
    return int(content.reshape(-1)[::STEP].sum(dtype=np.int64)), int(labels.sum()), len(labels)


def rows_of(name, make, axis="workers", counts=(0, 1, 2)):
    """Returns the rows of a loader, which make(folder, n) creates, for each number `n`."""

    def load(n, folder):
        return peer.load(lambda: make(folder, n), consume)

    return {f"{name}/{axis}:{n}": functools.partial(load, n) for n in counts}


def archives(folder):
    return sorted(str(path) for path in Path(folder, "tar").glob("*.tar"))


class ByPlace:
    """Random access: tarfile lists the position of each member once, and each read is two system
    calls."""

    def __init__(self, folder):
        self.files, self.places = archives(folder), []
        for number, file in enumerate(self.files):
            with tarfile.open(file) as tar:
                members = {member.name: member for member in tar}
            for name, content in members.items():
                if name.endswith(".bin"):
                    label = members[name[:-3] + "cls"]
                    self.places.append(
                        (number, content.offset_data, content.size, label.offset_data, label.size)
                    )
        self.descriptors = None

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        if self.descriptors is None:  # opened once in each worker process
            self.descriptors = [os.open(file, os.O_RDONLY) for file in self.files]
        number, begin, size, label, digits = self.places[index]
        file = self.descriptors[number]
        return os.pread(file, size, begin), int(os.pread(file, digits, label))


def data_loader(dataset, workers, collate, **options):
    from torch.utils.data import DataLoader

    return DataLoader(
        dataset,
        batch_size=peer.BATCH,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=collate,
        **options,
    )


def tarfile_places():
    """A true shuffle over all shards, in PyTorch's DataLoader."""
    import torch

    def make(folder, workers):
        return data_loader(ByPlace(folder), workers, batch_of, shuffle=True)

    return rows_of("DataLoader_tarfile", make), {"torch": torch.__version__}


def webdataset():
    """WebDataset's own shuffle of shards, and a buffer of 1,000 samples."""
    import torch  # noqa: F401: WebLoader is torch's DataLoader
    import webdataset as wds

    def make(folder, workers):
        samples = (
            wds.WebDataset(archives(folder), shardshuffle=8)
            .shuffle(1000)
            .to_tuple("bin", "cls")
            .batched(peer.BATCH, collation_fn=batch_of)
        )
        return wds.WebLoader(
            samples, batch_size=None, num_workers=workers, persistent_workers=workers > 0
        )

    return rows_of("WebDataset", make), {"webdataset": wds.__version__}


def mosaic():
    """MosaicML Streaming over local MDS shards, with its own shuffle."""
    import streaming

    def make(folder, workers):
        dataset = streaming.StreamingDataset(
            local=f"{folder}/mds", shuffle=True, batch_size=peer.BATCH, num_canonical_nodes=1
        )
        return data_loader(dataset, workers, batch_of_rows)

    return rows_of("MosaicStreaming", make), {"mosaicml-streaming": streaming.__version__}


def huggingface():
    """Arrow files with random access, in DataLoader."""
    import datasets

    def make(folder, workers):
        dataset = datasets.load_from_disk(f"{folder}/hf")
        return data_loader(dataset, workers, batch_of_rows, shuffle=True)

    return rows_of("HF_datasets", make), {"datasets": datasets.__version__}


def grain():
    """Threads with the random access of `ByPlace`, and another order in each epoch."""
    import grain

    class Epochs:
        def __init__(self, folder, threads):
            self.source, self.threads, self.epoch = ByPlace(folder), threads, 0

        def __iter__(self):
            self.epoch += 1
            samples = grain.MapDataset.source(self.source).shuffle(seed=self.epoch)
            batches = samples.batch(peer.BATCH, batch_fn=batch_of)
            options = grain.ReadOptions(num_threads=self.threads, prefetch_buffer_size=4)
            return iter(batches.to_iter_dataset(options))

    return rows_of("Grain", Epochs, "threads", (1, 2)), {"grain": grain.__version__}


def spdl():
    """A pipeline of threads with the random access of `ByPlace`."""
    import spdl
    from spdl.pipeline import PipelineBuilder

    class Epochs:
        def __init__(self, folder, threads):
            self.source, self.threads = ByPlace(folder), threads
            self.random = random.Random(1)

        def __iter__(self):
            order = list(range(len(self.source)))
            self.random.shuffle(order)
            batches = [order[i : i + peer.BATCH] for i in range(0, len(order), peer.BATCH)]

            def read(indices):
                return batch_of([self.source[i] for i in indices])

            pipeline = (
                PipelineBuilder()
                .add_source(batches)
                .pipe(read, concurrency=self.threads)
                .add_sink(4)
                .build(num_threads=self.threads)
            )
            with pipeline.auto_stop():
                yield from pipeline.get_iterator(timeout=60)

    return rows_of("SPDL", Epochs, "threads", (1, 2)), {"spdl": spdl.__version__}


PEERS = (tarfile_places, webdataset, mosaic, huggingface, grain, spdl)

if __name__ == "__main__":
    peer.main_of(PEERS)
