# SPDX-License-Identifier: BSL-1.0
"""Measures the cost of a batch on the loop's thread in Python: processor time, best of several
epochs.

    python bench.py
"""

import importlib.util
import time

import numpy as np
import patterns


def best(body, batches=20_000, epochs=7):
    """Returns the processor time of this thread per batch in microseconds."""
    loader = patterns.Loader(samples=batches, batch_size=1, workers=1, prefetch=16)
    taken = []
    for epoch in range(epochs):
        begin = time.thread_time()
        for image, label in loader.epoch(epoch):
            body(image, label)
        taken.append(time.thread_time() - begin)
    return 1e6 * min(taken) / batches


def main():
    ways = [("two fields, not looked at", lambda image, label: None)]
    libraries = [("numpy", np.from_dlpack)]
    if importlib.util.find_spec("torch"):
        import torch

        libraries.append(("torch", torch.from_dlpack))
    for name, take in libraries:
        both = lambda image, label, take=take: (take(image), take(label))
        ways.append((f"{name}.from_dlpack of both", both))
    for name, body in ways:
        print(f"{name:32} {best(body):6.2f} us a batch")


if __name__ == "__main__":
    main()
