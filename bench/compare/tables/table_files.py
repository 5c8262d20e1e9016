# SPDX-License-Identifier: BSL-1.0
"""Creates the file for tables.py: uncompressed Parquet with the same values in each run.

    python3 table_files.py FOLDER [ROWS]    prints the contents; an existing file is kept

    FOLDER/table.parquet    16 columns of float32, f0 to f15, and one of int64, label
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

COLUMNS = [f"f{number}" for number in range(16)]
GROUP = 16384  # rows per row group


def table(rows):
    """Returns a table of whole numbers as floats, whose sums are exact in any order."""
    random = np.random.default_rng(23)
    columns = {name: random.integers(0, 100, rows).astype(np.float32) for name in COLUMNS}
    columns["label"] = np.arange(rows, dtype=np.int64) % 10
    return pyarrow.table(columns)


def make(folder, rows):
    file = Path(folder, "table.parquet")
    done = Path(folder, "table.done")  # written last, to mark a complete file
    if not done.exists() or done.read_text() != str(rows):
        file.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(
            table(rows), file, row_group_size=GROUP, compression="none", use_dictionary=False
        )
        done.write_text(str(rows))
    return f"{rows} rows of 16 float32 and an int64, {-(-rows // GROUP)} row groups of {GROUP}"


if __name__ == "__main__":
    print(make(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 18))
