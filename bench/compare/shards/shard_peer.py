# SPDX-License-Identifier: BSL-1.0
"""The common parts of the Python peers of shards.py: the consumer, and random access to the samples
of a tar archive.

../peer.py describes the command line of a peer. The data is the folder of shard_folders.py.
"""

import os
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


def consume(batch):
    content, labels = np.asarray(batch[0]), np.asarray(batch[1])
    return int(content.reshape(-1)[::STEP].sum(dtype=np.int64)), int(labels.sum()), len(labels)


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


def load_rows(make, workers, folder, **options):
    """Measures DataLoader over make(folder), whose samples have `bin` and `cls`. Needs PyTorch."""
    from torch.utils.data import DataLoader

    return peer.load(
        lambda: DataLoader(
            make(folder),
            batch_size=peer.BATCH,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=lambda rows: batch_of([(row["bin"], row["cls"]) for row in rows]),
            **options,
        ),
        consume,
    )
