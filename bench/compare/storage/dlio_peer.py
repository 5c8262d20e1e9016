# SPDX-License-Identifier: BSL-1.0
"""One row by DLIO itself, the benchmark that MLPerf Storage is made of: its PyTorch framework and its readers of
jpeg and npz files. It has none of Parquet in this version, 2.0.0.

    python3 dlio_peer.py FOLDER ROW WORKERS WARM_EPOCHS EPOCHS

Prints {"utilisation": ..., "samples": ..., "samples_per_second": ...}, the first and the last as DLIO counts
them: each epoch without its first step, the nominal time of a step; the mean of the epochs with all steps.
Exits with 77 where dlio-benchmark is not installed. Its reader decodes a jpeg file by Pillow.

Two things are changed. It imports TensorFlow for a profiler and DALI for a loader that are not used here: where
they are missing, mocks stand in for them. For each sample it writes down the list of all files, for a message that is
not shown: that list has a short text here, as it would measure that and no reading where files are many.
"""

import contextlib
import importlib
import json
import os
import sys
from pathlib import Path
from unittest import mock

from workloads import WORKLOADS, paths


def files_of(folder, row, files):
    """The row's files where DLIO looks for them."""
    train = folder / "train"
    train.mkdir(parents=True, exist_ok=True)
    (folder / "valid").mkdir(exist_ok=True)
    for path in files:
        target = train / f"{path.stem}.{'jpeg' if row.ending == 'jpg' else row.ending}"
        if not target.exists():
            target.symlink_to(path.resolve())


def overrides(folder, name, workers, epochs):
    row = WORKLOADS[name]
    workload = {
        "model": name,
        "framework": "pytorch",
        "workflow.generate_data": False,
        "workflow.train": True,
        "workflow.evaluation": False,
        "workflow.checkpoint": False,
        "dataset.data_folder": folder.resolve(),
        "dataset.format": "jpeg" if row.ending == "jpg" else row.ending,
        "dataset.num_files_train": row.files,
        "dataset.num_files_eval": 0,
        "dataset.num_samples_per_file": 1,
        "dataset.num_subfolders_train": 0,
        "dataset.num_subfolders_eval": 0,
        "dataset.record_length": row.sample,
        "reader.data_loader": "pytorch",
        "reader.batch_size": row.batch,
        "reader.read_threads": workers,
        "reader.file_shuffle": "seed",
        "reader.sample_shuffle": "seed",
        "train.epochs": epochs,
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


def run(folder, name, workers, warm, epochs):
    os.environ["DFTRACER_ENABLE"] = "0"  # traces of every call otherwise
    epochs = int(warm) + int(epochs)
    for module in ("tensorflow", "nvidia.dali", "nvidia.dali.fn", "nvidia.dali.pipeline", "nvidia.dali.types"):
        try:
            importlib.import_module(module)
        except ImportError:
            sys.modules[module] = mock.MagicMock()
    try:
        from dlio_benchmark.main import main
    except ImportError as error:
        print(f"no dlio-benchmark here: {error}", file=sys.stderr)
        sys.exit(77)
    shorten_messages()
    folder = Path(folder, "dlio", name).resolve()
    files_of(folder, WORKLOADS[name], paths(folder.parent.parent, name))
    out = folder / "out"
    out.mkdir(exist_ok=True)
    for path in out.glob("*.json"):
        path.unlink()
    sys.argv = ["dlio_benchmark", *overrides(folder, name, workers, epochs)]
    with open(out / "messages.txt", "w") as messages, contextlib.redirect_stderr(messages):
        main()
    metric = json.loads((out / "summary.json").read_text())["metric"]
    steps = json.loads((out / "0_output.json").read_text())
    epochs = [steps[str(epoch + 1)] for epoch in range(epochs)]
    taken = sum(len(block) for epoch in epochs for block in epoch["proc"].values())
    return {
        "utilisation": metric["train_au_mean_percentage"] / 100,
        "samples": (taken - 1) * WORKLOADS[name].batch,  # without the first step, as the others
        "samples_per_second": metric["train_throughput_mean_samples_per_second"],
    }


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
