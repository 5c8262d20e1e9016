# SPDX-License-Identifier: BSL-1.0
"""One row by DLIO itself, the benchmark that MLPerf Storage is made of: its PyTorch framework with npy files.

    python3 dlio_peer.py FOLDER ROW WORKERS [whole]

Prints {"utilisation": ..., "samples": ..., "samples_per_second": ...}, the first and the last as DLIO counts
them: each epoch without its first step, the nominal time of a step; the mean of the epochs with all steps.
Exits with 77 where dlio-benchmark is not installed.

Its PyTorch loader takes a sample a file, so rows of several are split. It hands over as many bytes of a sample
as its workload file says, which are others than were read; `whole`: as many as were read.

Two things are changed. It imports TensorFlow for a profiler that is not used here: an empty module stands in for
it where it is missing. For each sample it writes down the list of all files, for a message that is not shown: that
list has a short text here, as it would measure that and no reading where files are many.
"""

import contextlib
import json
import os
import sys
import types
from pathlib import Path

from workloads import WORKLOADS, paths


def files_of(folder, name, files):
    """The row's samples as DLIO wants them, a file each: links, or copies of the lines of a larger file."""
    import numpy as np

    row, train = WORKLOADS[name], folder / "train"
    train.mkdir(parents=True, exist_ok=True)
    (folder / "valid").mkdir(exist_ok=True)
    for number, path in enumerate(files):
        lines = None
        for line in range(row.samples_a_file):
            target = train / f"{number * row.samples_a_file + line:05}.npy"
            if target.exists():
                continue
            if row.samples_a_file == 1:
                target.symlink_to(path.resolve())
                continue
            if lines is None:
                lines = np.load(path, mmap_mode="r")
            np.save(target, lines[line : line + 1])
    for path in train.iterdir():
        path.read_bytes()  # into the page cache


def overrides(folder, name, workers, is_whole):
    row = WORKLOADS[name]
    workload = {
        "model": name,
        "framework": "pytorch",
        "workflow.generate_data": False,
        "workflow.train": True,
        "workflow.evaluation": False,
        "workflow.checkpoint": False,
        "dataset.data_folder": folder.resolve(),
        "dataset.format": "npy",
        "dataset.num_files_train": row.files * row.samples_a_file,
        "dataset.num_files_eval": 0,
        "dataset.num_samples_per_file": 1,
        "dataset.num_subfolders_train": 0,
        "dataset.num_subfolders_eval": 0,
        "dataset.record_length": row.sample,
        "dataset.record_length_resize": 0 if is_whole else row.handed,
        "reader.data_loader": "pytorch",
        "reader.batch_size": row.batch,
        "reader.read_threads": workers,
        "reader.file_shuffle": "seed",
        "reader.sample_shuffle": "seed",
        "train.epochs": row.epochs,
        "train.computation_time": row.step,
    }
    return [f"hydra.run.dir={folder / 'out'}", *(f"++workload.{key}={value}" for key, value in workload.items())]


class Unwritten(dict):
    """A dictionary with a short text."""

    def __repr__(self):
        return f"{len(self)} samples"


def shorten_messages():
    from dlio_benchmark.utils.config import ConfigArguments

    listed = ConfigArguments.get_global_map_index
    ConfigArguments.get_global_map_index = lambda *words: Unwritten(listed(*words))


def run(folder, name, workers, is_whole):
    os.environ["DFTRACER_ENABLE"] = "0"  # traces of every call otherwise
    try:
        import tensorflow  # noqa: F401
    except ImportError:
        sys.modules["tensorflow"] = types.ModuleType("tensorflow")
    try:
        from dlio_benchmark.main import main
    except ImportError as error:
        print(f"no dlio-benchmark here: {error}", file=sys.stderr)
        sys.exit(77)
    shorten_messages()
    folder = Path(folder, "dlio", name).resolve()
    files_of(folder, name, paths(folder.parent.parent, name))
    out = folder / "out"
    out.mkdir(exist_ok=True)
    for path in out.glob("*.json"):
        path.unlink()
    sys.argv = ["dlio_benchmark", *overrides(folder, name, workers, is_whole)]
    with open(out / "messages.txt", "w") as messages, contextlib.redirect_stderr(messages):
        main()
    metric = json.loads((out / "summary.json").read_text())["metric"]
    steps = json.loads((out / "0_output.json").read_text())
    epochs = [steps[str(epoch + 1)] for epoch in range(WORKLOADS[name].epochs)]
    taken = sum(len(block) for epoch in epochs for block in epoch["proc"].values())
    return {
        "utilisation": metric["train_au_mean_percentage"] / 100,
        "samples": (taken - 1) * WORKLOADS[name].batch,  # without the first step, as the others
        "samples_per_second": metric["train_throughput_mean_samples_per_second"],
    }


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:4], "whole" in sys.argv[4:])))
