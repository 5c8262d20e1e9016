# SPDX-License-Identifier: BSL-1.0
"""One row as DLIO's own loader reads it: PyTorch's DataLoader over a dataset that loads arrays by numpy.

    python3 dataloader_peer.py FOLDER ROW WORKERS [EPOCHS]    prints {"utilisation": ..., "samples": ..., "seconds": ...}
"""

import json
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from workloads import WORKLOADS, paths


class Arrays(Dataset):
    """A sample is a line of a file. A file of one sample is read whole, as DLIO's npy reader does."""

    def __init__(self, folder, name):
        self.row, self.files = WORKLOADS[name], [str(path) for path in paths(folder, name)]

    def __len__(self):
        return self.row.files * self.row.samples_a_file

    def __getitem__(self, index):
        file, line = divmod(index, self.row.samples_a_file)
        if self.row.samples_a_file == 1:
            return torch.from_numpy(np.load(self.files[file])[0])
        return torch.from_numpy(np.array(np.load(self.files[file], mmap_mode="r")[line]))


def main(folder, name, workers, epochs=0):
    row = WORKLOADS[name]
    loader = DataLoader(
        Arrays(folder, name),
        batch_size=row.batch,
        shuffle=True,
        num_workers=int(workers),
        persistent_workers=True,
        drop_last=True,
    )
    samples, busy, begin = 0, 0.0, None
    for _ in range(int(epochs) or row.epochs):
        for batch in loader:
            step = time.perf_counter()
            time.sleep(row.step)
            now = time.perf_counter()
            if begin is None:  # the first step is not counted
                begin = now
                continue
            busy += now - step
            samples += len(batch)
    seconds = time.perf_counter() - begin
    print(json.dumps({"utilisation": busy / seconds, "samples": samples, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
