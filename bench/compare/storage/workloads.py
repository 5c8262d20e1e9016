# SPDX-License-Identifier: BSL-1.0
"""The rows of MLPerf Storage (DLIO's workload files), in the sizes that fit here, and their files.

    python3 workloads.py FOLDER ROW    makes the files of a row, where they are not there

A row's accelerator is modelled: a step is a sleep of so many seconds, as in DLIO.
"""

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Workload:
    sample: int  # bytes
    batch: int
    step: float  # seconds
    files: int
    samples_a_file: int
    epochs: int
    handed: int = 0  # bytes that DLIO hands over of a sample (record_length_resize); 0: all of them

    @property
    def demand(self):
        """MB a second that keep the accelerator busy."""
        return self.sample * self.batch / self.step / 1e6


WORKLOADS = {
    "resnet50_h100": Workload(114660, 400, 0.224, files=2, samples_a_file=1251, epochs=3, handed=150528),
    "resnet50_a100": Workload(114660, 400, 0.435, files=2, samples_a_file=1251, epochs=2, handed=150528),
    "cosmoflow_h100": Workload(2828486, 1, 0.0035, files=100, samples_a_file=1, epochs=6),
    # A tenth of the size and of the step: it asks for as much a second as the whole.
    "unet3d_h100": Workload(14660062, 7, 0.0323, files=28, samples_a_file=1, epochs=12, handed=209715),
    "bert_v100": Workload(2500, 48, 0.968, files=1, samples_a_file=480, epochs=1),
}


def paths(folder, name):
    """The .npy files of a row: arrays of bytes, a sample a line."""
    return [Path(folder, name, f"{number:05}.npy") for number in range(WORKLOADS[name].files)]


def make(folder, name):
    import numpy as np

    row = WORKLOADS[name]
    for number, path in enumerate(paths(folder, name)):
        size = row.samples_a_file * row.sample
        if path.exists() and path.stat().st_size == size + 128:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        content = np.random.default_rng(number).integers(0, 256, size, np.uint8)
        np.save(path, content.reshape(row.samples_a_file, row.sample))


if __name__ == "__main__":
    make(*sys.argv[1:])
