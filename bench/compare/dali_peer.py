# SPDX-License-Identifier: BSL-1.0
"""NVIDIA DALI's CPU pipeline. peer.py describes the command line.

The external source provides whole batches that NumPy has gathered, without another copy. DALI
normalizes them.
"""

import functools

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, types

import peer


class Batches:
    """An epoch of batches. DALI requests a new iterator after each epoch."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.random = np.random.default_rng(1)

    def __iter__(self):
        order = self.random.permutation(len(self.labels))
        for first in range(0, len(order), peer.BATCH):
            indices = order[first : first + peer.BATCH]
            yield self.images[indices], self.labels[indices]


class Epochs:
    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.is_first = True

    def __iter__(self):
        if not self.is_first:
            self.pipeline.reset()
        self.is_first = False
        while True:
            try:
                yield self.pipeline.run()
            except StopIteration:
                return


def load(threads, folder):
    images, labels = (np.frombuffer(part, dtype=np.uint8) for part in peer.idx_files(folder, "train"))
    images = images.reshape(-1, 28, 28, 1)
    labels = labels.astype(np.int64).reshape(-1, 1)

    def make():
        pipeline = dali.Pipeline(
            batch_size=peer.BATCH,
            num_threads=threads,
            device_id=None,
            prefetch_queue_depth=2,
        )
        with pipeline:
            pixels, label = fn.external_source(
                source=Batches(images, labels),
                num_outputs=2,
                batch=True,
                cycle="raise",
                no_copy=True,
                layout=["HWC", ""],
                dtype=[types.UINT8, types.INT64],
            )
            pixels = fn.crop_mirror_normalize(
                pixels,
                dtype=types.FLOAT,
                output_layout="HWC",
                mean=[255 * peer.MEAN],
                std=[255 * peer.DEVIATION],
            )
            pipeline.set_outputs(pixels, label)
        pipeline.build()
        return Epochs(pipeline)

    def consume(batch):
        values, label = (np.asarray(part.as_tensor()) for part in batch)
        return float(values.sum()), int(label.sum()), len(label)

    return peer.load(make, consume)


ROWS = {f"DALI_cpu/threads:{threads}": functools.partial(load, threads) for threads in (1, 2)}

if __name__ == "__main__":
    peer.main(ROWS, {"dali": dali.__version__})
