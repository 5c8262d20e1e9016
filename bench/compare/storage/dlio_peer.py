# SPDX-License-Identifier: BSL-1.0
"""Runs one row with DLIO 3.0.2, the mlcommons benchmark that MLPerf Storage uses, with its PyTorch
framework and its readers of jpeg, npz and Parquet files.

    python3 dlio_peer.py FOLDER ROW WORKERS WARM_EPOCHS EPOCHS

Prints {"utilisation": ..., "samples": ..., "samples_per_second": ...} as DLIO counts them, without
the first step. The utilization is the planned time of the steps divided by the time of the loop, as
for the other sides; DLIO itself would count the excess time of a sleep as work. Exits with 77 if
DLIO is not installed. Without WARM_EPOCHS, the files are read from the disk.

DLIO measures the storage and decodes nothing. A reader reads the bytes of files, or of a row group
from the first to the last required column, discards them, and returns an array that is created
once: one array per sample for files (2 MiB for unet3d, as in the benchmark's row), and one per
batch for Parquet rows.

All epochs are a single epoch of DLIO, in which the files occur repeatedly. The Parquet reader reads
8 row groups ahead in each worker instead of 64.

The script changes three things. DLIO's Parquet reader assumes that each column has a dictionary,
and fails otherwise. It also does not repeat the reads of a warm-up before the clock of an epoch
starts; here, it does. Workers are forked, so that they inherit these changes. After the warm-up,
DLIO drops all files from the page cache if it is permitted to. Here it drops nothing, or only the
files of the row if they must come from the disk.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import types
from pathlib import Path

from workloads import WORKLOADS, drop, paths, read_columns


def files_of(folder, row, files, epochs):
    """Lists the files of the row where DLIO searches for them, as often as there are epochs."""
    train = folder / "train"
    train.mkdir(parents=True, exist_ok=True)
    (folder / "valid").mkdir(exist_ok=True)
    for epoch, path in itertools.product(range(epochs), files):
        target = train / f"{epoch:03}_{path.stem}.{'jpeg' if row.ending == 'jpg' else row.ending}"
        if not target.exists():
            target.symlink_to(path.resolve())


def overrides(folder, name, workers, count):
    row = WORKLOADS[name]
    workload = {
        "model.name": name,
        "framework": "pytorch",
        "workflow.generate_data": False,
        "workflow.train": True,
        "workflow.evaluation": False,
        "workflow.checkpoint": False,
        "dataset.data_folder": folder.resolve(),
        "dataset.format": "jpeg" if row.ending == "jpg" else row.ending,
        "dataset.num_files_train": count,
        "dataset.num_files_eval": 0,
        "dataset.num_samples_per_file": row.samples_a_file,
        "dataset.num_subfolders_train": 0,
        "dataset.num_subfolders_eval": 0,
        "dataset.record_length_bytes": row.sample,
        "reader.data_loader": "pytorch",
        "reader.multiprocessing_context": "fork",
        "reader.batch_size": row.batch,
        "reader.read_threads": workers,
        "reader.file_shuffle": "seed",
        "reader.sample_shuffle": "seed",
        "train.epochs": 1,
        "train.computation_time": row.step,
    }
    if row.ending == "npz":
        workload["dataset.record_length_bytes_resize"] = 2 << 20
    if row.ending == "parquet":
        workload["storage.storage_options.columns"] = f"[{','.join(read_columns(name))}]"
        workload["storage.storage_options.prefetch_window"] = 8
    return [f"hydra.run.dir={folder / 'out'}", *(f"++workload.{key}={value}" for key, value in workload.items())]


def byte_range(self, file, number):
    """Returns the start and the size of the required columns in a row group, and the size of all
    columns."""
    group = file.metadata.row_group(number)
    columns = [group.column(place) for place in range(group.num_columns)]
    names = set(self._columns)
    taken = [column for column in columns if column.path_in_schema in names]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in taken]
    end = max(start + column.total_compressed_size for start, column in zip(starts, taken))
    return min(starts), end - min(starts), sum(column.total_compressed_size for column in columns)


def found(out, row):
    """Returns the results that DLIO has written for a run."""
    metric = json.loads((out / "summary.json").read_text())["metric"]
    speed = metric["train_throughput_mean_samples_per_second"]
    steps = json.loads((out / "0_output.json").read_text())["1"]["proc"].values()
    return {
        "utilisation": speed * row.step / row.batch,
        "samples": (sum(map(len, steps)) - 1) * row.batch,
        "samples_per_second": speed,
    }


def run(folder, name, workers, warm, epochs):
    os.environ["DFTRACER_ENABLE"] = "0"  # DLIO would otherwise trace every call
    is_cold, epochs = int(warm) == 0, int(warm) + int(epochs)
    row, files = WORKLOADS[name], paths(folder, name, is_cold)
    try:
        from dlio_benchmark import main
        from dlio_benchmark.data_loader.torch_data_loader import TorchIterableDataset
        from dlio_benchmark.reader.parquet_reader_file_iterable import ParquetReaderFileIterable
    except ImportError as error:
        print(f"no dlio-benchmark of mlcommons here: {error}", file=sys.stderr)
        sys.exit(77)
    ParquetReaderFileIterable._rg_byte_range = byte_range
    batches = TorchIterableDataset.__iter__

    def batches_anew(dataset):
        for kept in (dataset.reader._prefetch_futures, dataset.reader._pf_cache, dataset.reader._rg_cache):
            kept.clear()
        return batches(dataset)

    TorchIterableDataset.__iter__ = batches_anew
    dropping = {"run": lambda *_, **__: drop(files if is_cold else [])}
    main.subprocess = types.SimpleNamespace(**vars(subprocess) | dropping)
    folder = Path(folder, "dlio", name).resolve()
    files_of(folder, row, files, epochs)
    out = folder / "out"
    out.mkdir(exist_ok=True)
    for path in out.glob("*.json"):
        path.unlink()
    sys.argv = ["dlio_benchmark", *overrides(folder, name, workers, len(files) * epochs)]
    said = out / "messages.txt"
    try:
        with open(said, "w") as file, contextlib.redirect_stderr(file), contextlib.redirect_stdout(file):
            main.main()
    except SystemExit:
        sys.exit(f"DLIO failed, as {said} says")
    return found(out, row)


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
