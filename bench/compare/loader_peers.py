# SPDX-License-Identifier: BSL-1.0
"""SPDL's pipeline and NVIDIA DALI's CPU pipeline, for compare.sh.

    python3 loader_peers.py spdl|dali --list | --data FOLDER --row NAME

peer.py describes the other arguments. Both load whole batches with NumPy.
"""

import functools

import numpy as np

import peer


def digits(folder):
    """Returns the images, as rows of bytes, and the labels."""
    images, labels = (np.frombuffer(part, dtype=np.uint8) for part in peer.idx_files(folder, "train"))
    return images.reshape(-1, peer.PIXELS), labels.astype(np.int64)


class Batches:
    """Epochs of batches, in a different order each time. batch_of(indices) returns a batch."""

    def __init__(self, samples, batch_of):
        self.samples, self.batch_of = samples, batch_of
        self.random = np.random.default_rng(1)

    def __iter__(self):
        order = self.random.permutation(self.samples)
        for first in range(0, self.samples, peer.BATCH):
            yield self.batch_of(order[first : first + peer.BATCH])


def consume(batch):
    return float(batch[0].sum()), int(batch[1].sum()), len(batch[1])


def spdl():
    """Each step processes a whole batch with NumPy, which releases the GIL. One pipeline serves all
    epochs, with the output queue for low latency and without statistics."""
    from importlib.metadata import version

    def load(concurrency, folder):
        images, labels = digits(folder)
        scale, shift = np.float32(peer.SCALE), np.float32(peer.SHIFT)

        def gather(indices):
            batch = np.multiply(images[indices], scale, dtype=np.float32)
            batch += shift
            return batch, labels[indices]

        return peer.load_spdl(
            Batches(len(labels), lambda indices: indices),
            lambda builder: builder.pipe(gather, concurrency=concurrency, output_order="input"),
            2 * concurrency,
            concurrency,
            consume,
            use_thread_output_queue=True,
            task_hook_factory=lambda *_: [],
        )

    rows = {f"SPDL/concurrency:{count}": functools.partial(load, count) for count in (1, 2)}
    return rows, {"spdl": version("spdl"), "numpy": np.__version__}


def dali():
    """The external source provides whole batches that NumPy has gathered, without another copy.
    DALI normalizes them."""
    import nvidia.dali
    from nvidia.dali import fn, types

    class Epochs:
        def __init__(self, pipeline):
            self.pipeline, self.is_first = pipeline, True

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
        images, labels = digits(folder)
        images, labels = images.reshape(-1, 28, 28, 1), labels.reshape(-1, 1)

        def make():
            pipeline = nvidia.dali.Pipeline(
                batch_size=peer.BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2
            )
            with pipeline:
                # DALI requests a new iterator after each epoch.
                pixels, label = fn.external_source(
                    source=Batches(len(labels), lambda indices: (images[indices], labels[indices])),
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

        return peer.load(make, lambda batch: consume([np.asarray(part.as_tensor()) for part in batch]))

    rows = {f"DALI_cpu/threads:{threads}": functools.partial(load, threads) for threads in (1, 2)}
    return rows, {"dali": nvidia.dali.__version__}


if __name__ == "__main__":
    peer.main_of((spdl, dali))
