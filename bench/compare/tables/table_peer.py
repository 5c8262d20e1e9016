# SPDX-License-Identifier: BSL-1.0
"""What the Python peers of tables.py have in common: the consumer. Called as ../peer.py says; the data is
the folder of table_files.py."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import peer  # noqa: E402
from table_files import COLUMNS, GROUP  # noqa: E402, F401

peer.LEAST_SECONDS = 1
BATCH = 1024


def consume(batch):
    """Reads every value of a batch, a column after the other: `batch` gives an array for a name."""
    values = sum(float(np.asarray(batch[name]).sum(dtype=np.float64)) for name in COLUMNS)
    labels = np.asarray(batch["label"])
    return values, int(labels.sum()), len(labels)
