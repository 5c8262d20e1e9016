# SPDX-License-Identifier: BSL-1.0
"""Compares loaders of rows from a Parquet file: penstock, pyarrow, Hugging Face datasets.

    python3 tables.py --ours PROGRAM --python PYTHON [--rows N] [--rounds N] [--folder FOLDER]
                      [--json FILE] [--only ROW]...

PROGRAM is penstock_tables_peer. PYTHON is an interpreter with numpy, pyarrow and, for its rows,
datasets. Each side returns batches of 1,024 rows, column by column. The file is in the page cache.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import side_by_side  # noqa: E402
from side_by_side import PER_CPU  # noqa: E402

# penstock's row, the peer's row, the compared quantity, and its minimum.
AIMS = (
    ("penstock/workers:0", "pyarrow_scan/threads:1", PER_CPU, 0.9),
    ("penstock/workers:0", "pyarrow_shuffled/threads:1", PER_CPU, 0.9),
    ("penstock/workers:2", "pyarrow_scan/threads:2", "items_per_second", 0.9),
    ("penstock_random_rows/workers:0", "HF_datasets", PER_CPU, 20),
)


def judge(ranked):
    """Prints the goals and returns them for the JSON file."""
    by_name, judged = {row.name: row for row in ranked}, []
    print()
    for ours, peer, measure, least in AIMS:
        if ours not in by_name or peer not in by_name:
            print(f"{ours} over {peer}: not measured")
            continue
        ratio = by_name[ours].median(measure) / by_name[peer].median(measure)
        met = ratio >= least
        judged.append({"name": ours, "floor": peer, "compares": measure, "ratio": ratio, "met": met})
        print(f"{ours} over {peer}, {measure}: {ratio:.2f}; at least {least}: {'met' if met else 'MISSED'}")
    return judged


def main():
    parser = side_by_side.parser()
    parser.add_argument("--rows", type=int, default=1 << 18)
    parser.add_argument("--folder", default=str(HERE.parent.parent.parent / "build" / "compare" / "tables"))
    chosen = parser.parse_args()
    data = side_by_side.made(chosen, HERE / "table_files.py", chosen.folder, chosen.rows)
    compared = side_by_side.Comparison(chosen, HERE / "table_peers.py", ("pyarrow", "huggingface"))
    compared.measure(chosen.folder)
    side_by_side.require_equal(compared.rows)
    compared.show_head(data)
    side_by_side.show(compared.ranked())
    compared.finish("compare_tables", data, goals=judge(compared.ranked()))


if __name__ == "__main__":
    main()
