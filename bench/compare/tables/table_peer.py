# SPDX-License-Identifier: BSL-1.0
"""The common parts of the Python peers of tables.py: the consumer. ../peer.py describes the command
line. The data is the folder of table_files.py."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import peer  # noqa: E402
from table_files import COLUMNS, GROUP  # noqa: E402, F401

peer.LEAST_SECONDS = 1
BATCH = 1024


def consume(batch):
    """Reads every value of a batch, column by column. `batch` maps names to arrays."""
    values = sum(float(np.asarray(batch[name]).sum(dtype=np.float64)) for name in COLUMNS)
    labels = np.asarray(batch["label"])
    return values, int(labels.sum()), len(labels)
