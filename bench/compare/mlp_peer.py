# SPDX-License-Identifier: BSL-1.0
"""The training program bench/mlp as a peer. peer.py describes the command line, which the path of
the program precedes.

The CPU time is the difference between a process of five epochs and a process of one epoch, which
excludes the startup.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile

import peer

EPOCHS = 5


def run(program, data, mode, epochs):
    """Returns the program's results, its CPU seconds and its peak memory in MiB."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        process = subprocess.Popen(
            [program, "--device", "host", "--data", data, "--epochs", str(epochs)]
            + ["--mode", mode, "--json", out.name],
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{program} ended with {process.returncode}")
        # The file is opened again, because the program has replaced it.
        with open(out.name, encoding="utf-8") as found:
            return json.load(found), used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def train(program, mode, data):
    _, few, _ = run(program, data, mode, 1)
    found, many, peak = run(program, data, mode, EPOCHS)
    trained = found["modes"][0]
    return {
        "group": "train",
        "items_per_second": EPOCHS * found["data"]["train_samples"] / trained["seconds"],
        "nanoseconds": trained["seconds_per_epoch"] * 1e9,
        "cpu_seconds": (many - few) / (EPOCHS - 1),
        "peak_mib": peak,
        "epochs": EPOCHS,
        "checked": {"accuracy": trained["test_accuracy"]},
    }


if __name__ == "__main__":
    program = sys.argv.pop(1)
    rows = {
        f"train_penstock_{mode}": functools.partial(train, program, mode)
        for mode in ("overlapped", "resident")
    }
    peer.main(rows, {})
