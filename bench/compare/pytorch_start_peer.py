# SPDX-License-Identifier: BSL-1.0
"""Measures the time to the first batch of torchvision's ImageFolder in PyTorch's DataLoader,
excluding imports; see start.py.

    python3 pytorch_start_peer.py FOLDER WORKERS
"""

import json
import sys
import time

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

torch.set_num_threads(1)
begin = time.perf_counter()


def since():
    return (time.perf_counter() - begin) * 1e3


transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.PILToTensor()])
photos = ImageFolder(sys.argv[1], transform)
listed = since()
loader = DataLoader(photos, batch_size=64, shuffle=True, num_workers=int(sys.argv[2]))
pixels, _ = next(iter(loader))
first = since()
print(
    json.dumps(
        {"files": len(photos), "samples": len(pixels), "listed_ms": listed, "first_batch_ms": first}
    )
)
