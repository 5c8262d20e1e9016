# SPDX-License-Identifier: BSL-1.0
"""Creates the image folders for images.py.

    python3 image_folders.py KIND FOLDER      prints the contents; an existing folder is kept

    photos   512 JPEGs, 500 x 375, 4:2:0, quality 90; crops to 224, batches of 64
    large     12 JPEGs, 4000 x 3000, 4:2:0, quality 90; crops to 224, batches of 4

All images are synthetic: color noise on grids with halving cells, where finer grids are weaker.
Their spectrum and their size therefore match a photograph's. Equal seeds give equal pixels. Needs
NumPy and Pillow.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

KINDS = {
    "photos": (512, (500, 375), 224, 64),
    "large": (12, (4000, 3000), 224, 4),
}
CLASSES = 4


def painted(random, size):
    sums = np.full((size[1], size[0], 3), 120, np.float32)
    cell, strength = max(size) // 4, 40.0
    while cell >= 1:
        shape = (size[1] // cell + 2, size[0] // cell + 2)
        # Mostly gray noise with a little color, because a photograph's colors vary less than its
        # brightness.
        grid = random.uniform(-1, 1, (*shape, 1)) + random.uniform(-0.3, 0.3, (*shape, 3))
        for c in range(3):
            plane = Image.fromarray((grid[..., c] * strength).astype(np.float32))
            sums[..., c] += np.asarray(plane.resize(size, Image.Resampling.BICUBIC))
        cell, strength = cell // 2, strength * 0.76
    return Image.fromarray(np.clip(sums, 0, 255).astype(np.uint8))


def make(kind, folder):
    count, size, side, batch = KINDS[kind]
    folder = Path(folder)
    if not (folder / "task").exists():
        random = np.random.default_rng(17)
        for number in range(count):
            path = folder / "train" / f"class{number % CLASSES}" / f"{number:05}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            painted(random, size).save(path, quality=90, subsampling="4:2:0")
        # Written last, so that this file marks a complete folder.
        (folder / "task").write_text(f"{side} {batch}\n")
    sizes = [path.stat().st_size for path in folder.glob("train/*/*")]
    mean = sum(sizes) / len(sizes) / 1000
    return (
        f"{len(sizes)} synthetic jpg images of {size[0]} x {size[1]}, {mean:.1f} kB on average, "
        f"to {side} x {side} in batches of {batch}"
    )


if __name__ == "__main__":
    print(make(*sys.argv[1:]))
