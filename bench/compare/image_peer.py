# SPDX-License-Identifier: BSL-1.0
"""The common parts of the Python peers of images.py: the image folder, the crop, and the
consumer.

The folder contains `train/<class>/<file>` and the file `task` with two numbers: the side of a
resized crop, and the batch size. peer.py measures.
"""

import math
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import peer

peer.LEAST_SECONDS = 1
# The consumer reads one value per cache line. Reading every value would cost some sides more than
# others.
STEP = 64
SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


class Task:
    def __init__(self, folder):
        self.train = Path(folder, "train")
        self.side, peer.BATCH = map(int, Path(folder, "task").read_text().split())
        classes = sorted(path for path in self.train.iterdir() if path.is_dir())
        listed = [(path, label) for label, one in enumerate(classes) for path in sorted(one.iterdir())]
        self.paths = [str(path) for path, _ in listed]
        self.labels = [label for _, label in listed]


def crop_of(width, height, draw=random):
    """Returns a random (left, top, width, height), drawn as torchvision's RandomResizedCrop draws
    it."""
    low, high = map(math.log, RATIO)
    for _ in range(10):
        area = width * height * draw.uniform(*SCALE)
        ratio = math.exp(draw.uniform(low, high))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return draw.randint(0, width - w), draw.randint(0, height - h), w, h
    w = min(width, round(height * RATIO[1]))
    h = min(height, round(width / RATIO[0]))
    return (width - w) // 2, (height - h) // 2, w, h


def consume(batch):
    pixels, labels = batch
    flat = np.asarray(pixels).reshape(-1)
    return int(flat[::STEP].sum(dtype=np.int64)), int(np.asarray(labels).sum()), len(labels)


class Batches:
    """Epochs of batches that sample(path, out) fills, on `threads` threads or on the caller's
    thread."""

    def __init__(self, task, sample, threads):
        self.task, self.sample = task, sample
        self.pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.random = np.random.default_rng(1)

    def __iter__(self):
        order = self.random.permutation(len(self.task.paths))
        for first in range(0, len(order), peer.BATCH):
            chosen = order[first : first + peer.BATCH]
            pixels = np.empty((len(chosen), self.task.side, self.task.side, 3), np.uint8)
            labels = np.array([self.task.labels[i] for i in chosen])
            paths = [self.task.paths[i] for i in chosen]
            # Converts the iterator to a list, so that exceptions of the threads are raised.
            list((self.pool.map if self.pool else map)(self.sample, paths, pixels))
            yield pixels, labels


def load(make_sample, threads, folder):
    """Measures the batches that make_sample(side) fills."""
    task = Task(folder)
    return peer.load(lambda: Batches(task, make_sample(task.side), threads), consume)


def resize(shrink, of, folder):
    """Measures only shrink(image), which resizes about 320 x 290 to 224 x 224. of(array) makes a
    image.

    Consecutive sizes differ, so that no side can reuse its coefficient tables.
    """
    noise = np.random.default_rng(1).integers(0, 256, (290, 322, 3), np.uint8)
    sizes = [(320 + i % 3, 290 - i % 5) for i in range(15)]
    made = [of(np.ascontiguousarray(noise[:height, :width])) for width, height in sizes]

    class Images:
        def __iter__(self):
            for i in range(1005):
                yield shrink(made[i % 15])

    return peer.load(Images, lambda shrunk: (0, 0, 1))
