# SPDX-License-Identifier: BSL-1.0
"""Runs one row with PyTorch's DataLoader: files with numpy or Pillow, like DLIO's readers, and
Parquet with pyarrow.

    python3 dataloader_peer.py FOLDER ROW WORKERS WARM_EPOCHS EPOCHS

Prints {"utilisation": ..., "samples": ..., "seconds": ...}. The first WARM_EPOCHS epochs are not
measured; if there are none, the first step is not measured. Exits with 77 if torch is not
installed. Row groups of Parquet files are shuffled, but not the rows within them.
"""

import json
import random
import sys
import time

import numpy as np

try:
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
except ImportError as error:
    print(f"no torch here: {error}", file=sys.stderr)
    sys.exit(77)

from workloads import WORKLOADS, paths, read_columns


class Files(Dataset):
    def __init__(self, row, files):
        self.row, self.files = row, files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.row.kind == "images":
            from PIL import Image

            with Image.open(self.files[index]) as image:
                resized = image.convert("RGB").resize((800, 800), Image.BILINEAR)
            return torch.from_numpy(np.array(resized))
        if self.row.ending == "npz":
            return torch.from_numpy(np.load(self.files[index])["x"])
        return torch.from_numpy(np.fromfile(self.files[index], np.uint8))


class Groups(IterableDataset):
    """Yields batches. Each worker reads a share of the row groups, in an order that changes with
    the epoch."""

    def __init__(self, row, files, columns):
        self.row, self.files, self.columns, self.epoch = row, files, columns, 0

    def rows(self):
        """Yields the rows of each group, as one array per type."""
        import pyarrow.parquet as pq

        files = [pq.ParquetFile(file) for file in self.files]
        groups = [(file, group) for file in files for group in range(file.num_row_groups)]
        self.epoch += 1
        random.Random(self.epoch).shuffle(groups)
        worker = get_worker_info()
        for file, group in groups[worker.id :: worker.num_workers]:
            table = file.read_row_group(group, self.columns, use_threads=False)
            if self.row.kind == "blobs":
                yield [np.stack([np.frombuffer(blob.as_buffer(), np.uint8) for blob in table["image"]])]
            else:
                by_type = {}
                for column in table.columns:
                    by_type.setdefault(column.type, []).append(column.to_numpy())
                yield [np.column_stack(of_type) for of_type in by_type.values()]

    def __iter__(self):
        held, count = [], 0
        for rows in self.rows():
            held.append(rows)
            count += len(rows[0])
            while count >= self.row.batch:
                together = [np.concatenate(of_type) for of_type in zip(*held)]
                yield [torch.from_numpy(of_type[: self.row.batch]) for of_type in together]
                held, count = [[of_type[self.row.batch :] for of_type in together]], count - self.row.batch


def main(folder, name, workers, warm, epochs):
    workers, warm, epochs = int(workers), int(warm), int(epochs)
    row, files = WORKLOADS[name], [str(path) for path in paths(folder, name, is_cold=warm == 0)]
    common = {"num_workers": workers, "persistent_workers": True}
    if row.ending == "parquet":
        loader = DataLoader(Groups(row, files, read_columns(name)), batch_size=None, **common)
    else:
        collate = list if row.ending == "npz" else None  # a list, because the lengths differ
        common.update(batch_size=row.batch, shuffle=True, drop_last=True, collate_fn=collate)
        loader = DataLoader(Files(row, files), **common)
    samples, busy, begin = 0, 0.0, None
    for epoch in range(warm + epochs):
        for batch in loader:
            time.sleep(row.step)
            if begin is None or epoch < warm:
                begin = time.perf_counter()
                continue
            # The planned time, because a sleep that takes longer does not count as work.
            busy += row.step
            samples += len(batch[0] if row.ending == "parquet" else batch)
    seconds = time.perf_counter() - begin
    print(json.dumps({"utilisation": busy / seconds, "samples": samples, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
