#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Trains the MLP of bench/mlp in PyTorch on a GPU, fed by DataLoader, with the same network
(784-128-64-10), data, batch size and optimizer (Adam, 1e-3).

    python3 bench/pytorch_mnist.py [--data FOLDER] [--epochs N] [--batch N] [--json FILE]

FOLDER contains MNIST's four files, plain or .gz. Without FOLDER, random bytes of the same shape are
used, and the accuracy is meaningless. The script runs DataLoader with 0 and 8 workers, with
pin_memory off and on, and once with all data on the GPU. Exits with 77 if PyTorch or a GPU is
missing.
"""

import argparse
import gzip
import json
import os
import sys
import time

try:
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
except ImportError:
    print("pytorch_mnist: no PyTorch here", file=sys.stderr)
    sys.exit(77)


def idx_file(folder, name, skip):
    for opener, suffix in ((open, ""), (gzip.open, ".gz")):
        path = os.path.join(folder, name + suffix)
        if os.path.exists(path):
            with opener(path, "rb") as file:
                return torch.frombuffer(bytearray(file.read()[skip:]), dtype=torch.uint8)
    raise FileNotFoundError(os.path.join(folder, name))


def load(folder):
    """Returns images (bytes, N x 784) and labels (int64) for training and test."""
    if folder is None:
        made = torch.Generator().manual_seed(1)
        return tuple(
            x
            for n in (60_000, 10_000)
            for x in (
                torch.randint(0, 256, (n, 784), dtype=torch.uint8, generator=made),
                torch.randint(0, 10, (n,), generator=made),
            )
        )
    return tuple(
        x
        for part in ("train", "t10k")
        for x in (
            idx_file(folder, f"{part}-images-idx3-ubyte", 16).view(-1, 784),
            idx_file(folder, f"{part}-labels-idx1-ubyte", 8).long(),
        )
    )


class Digits(Dataset):
    """A dataset that returns single samples, as most code does. Samples are bytes that the GPU
    converts, as in bench/mlp."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def normalised(images):
    return (images.float() / 255.0 - 0.1307) / 0.3081


def new_network(seed):
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    ).cuda()
    return network, torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)


def resident_batches(images, labels, batch):
    order = torch.randperm(len(labels), device="cuda")
    for at in order.split(batch):
        yield images[at], labels[at]


def train(batches_of_epoch, epochs, test, seed=1):
    """Returns the seconds of each epoch, excluding one warm-up epoch, and the accuracy on the test
    set."""
    network, optimiser = new_network(seed)
    loss_of = nn.CrossEntropyLoss()
    seconds = []
    for epoch in range(epochs + 1):
        # The first epoch starts workers and libraries; it is not measured, and its training is
        # discarded.
        if epoch == 1:
            network, optimiser = new_network(seed)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for images, labels in batches_of_epoch():
            images = images.cuda(non_blocking=True)
            labels = labels.cuda(non_blocking=True)
            optimiser.zero_grad(set_to_none=True)
            loss_of(network(normalised(images)), labels).backward()
            optimiser.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    with torch.no_grad():
        found = network(normalised(test[0].cuda())).argmax(1).cpu()
    return seconds[1:], (found == test[1]).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("MNIST_DIR"))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        print("pytorch_mnist: no GPU that PyTorch sees", file=sys.stderr)
        sys.exit(77)
    torch.backends.cuda.matmul.allow_tf32 = False
    images, labels, *test = load(chosen.data)

    rows = []
    result = {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "data": chosen.data or "random",
        "batch": chosen.batch,
        "epochs": chosen.epochs,
        "rows": rows,
    }

    def run(name, batches_of_epoch):
        seconds, accuracy = train(batches_of_epoch, chosen.epochs, test)
        rows.append(
            {"name": name, "seconds_per_epoch": sum(seconds) / len(seconds), "accuracy": accuracy}
        )
        print(f"{name:40} {rows[-1]['seconds_per_epoch']:8.3f} s/epoch   {100 * accuracy:6.2f} %", flush=True)
        if chosen.json:  # written after each row, so that a time limit does not discard all results
            with open(chosen.json, "w") as file:
                json.dump(result, file, indent=1)

    on_gpu = images.cuda(), labels.cuda()
    run("resident", lambda: resident_batches(*on_gpu, chosen.batch))
    for workers in (8, 0):
        for pinned in (True, False):
            loader = DataLoader(
                Digits(images, labels),
                batch_size=chosen.batch,
                shuffle=True,
                num_workers=workers,
                pin_memory=pinned,
                persistent_workers=workers > 0,
            )
            run(f"DataLoader workers={workers} pin_memory={pinned}", lambda: loader)
            del loader


if __name__ == "__main__":
    main()
