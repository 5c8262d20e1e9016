# SPDX-License-Identifier: BSL-1.0
"""A training loop of training.py in torchvision's own style: ImageFolder of PIL images in
PyTorch's DataLoader.

    python3 dataloader_training_peer.py FOLDER WORKERS EPOCHS STEP

STEP is the duration of a sleep in seconds, or `network`, the small network that
penstock_torch_training_peer.cpp also trains. Prints the same results as training_loop.hpp; the
processor time includes the workers.
"""

import json
import sys
import time
from pathlib import Path

import PIL
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import peer  # noqa: E402

SIDE = 224
LOOKED_AT = 64  # as in training_loop.hpp
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def sleeping(seconds):
    def step(images, labels):
        time.sleep(seconds)

    return step


def training():
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 4),
    )
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def step(images, labels):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimiser.step()
        if not loss.isfinite():
            raise ValueError(f"the loss is {loss.item()}")

    return step


def main(folder, workers, epochs, step):
    torch.set_num_threads(1)
    step = training() if step == "network" else sleeping(float(step))
    recipe = v2.Compose(
        [
            v2.RandomResizedCrop(SIDE, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float, scale=True),
            v2.Normalize(MEAN, DEVIATION),
        ]
    )
    workers = int(workers)
    loader = DataLoader(
        ImageFolder(Path(folder, "train"), recipe),
        batch_size=peer.BATCH,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    values, looked_at, checked = 0.0, 0, 0
    for images, labels in loader:
        some = images.flatten()[::LOOKED_AT]
        values, looked_at = values + some.sum(dtype=torch.double).item(), looked_at + len(some)
        checked += labels.sum().item()
        step(images, labels)

    samples, busy = 0, 0.0
    cpu, start = peer.cpu_seconds(), time.perf_counter()
    for _ in range(int(epochs)):
        for images, labels in loader:
            samples += len(labels)
            begun = time.perf_counter()
            step(images, labels)
            busy += time.perf_counter() - begun
    seconds = time.perf_counter() - start
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
    found = {
        "images": samples,
        "seconds": seconds,
        "cpu_seconds": peer.cpu_seconds() - cpu,
        "busy": busy,
        "labels": checked,
        "mean": values / looked_at,
        "version": versions,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
