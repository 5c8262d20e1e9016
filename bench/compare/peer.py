# SPDX-License-Identifier: BSL-1.0
"""The common parts of the Python peers: the data, the clock, and the command line.

    python3 <peer>.py --list                        prints the names of its rows, one per line
    python3 <peer>.py --data FOLDER --row NAME      measures one row, prints it as JSON (see README.md)

FOLDER contains MNIST's four unpacked files. The module requires Linux, because it reads CPU time
and memory from /proc.
"""

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path

BATCH = 64
PIXELS = 28 * 28
MEAN, DEVIATION = 0.1307, 0.3081
# (x / 255 - mean) / deviation, as a multiplication and an addition. Each side computes the same
# expression.
SCALE = 1 / (255 * DEVIATION)
SHIFT = -MEAN / DEVIATION
LEAST_SECONDS = 0.5
LEAST_EPOCHS = 2


def idx_files(folder, part):
    """Returns the images and the labels of `part` as bytearrays."""
    images = Path(folder, f"{part}-images-idx3-ubyte").read_bytes()[16:]
    labels = Path(folder, f"{part}-labels-idx1-ubyte").read_bytes()[8:]
    return bytearray(images), bytearray(labels)


def family(pid=None):
    """Returns the IDs of this process and all its descendants."""
    pid = pid or os.getpid()
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found += family(int(child))
        except OSError:  # the process has ended in the meantime
            pass
    return found


def memory_mib():
    """Returns the total proportional set size of all processes, which counts shared memory once."""
    total = 0
    for pid in family():
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total / 1024


def cpu_seconds():
    """Returns the user and system time of all processes, including those that have ended."""
    used = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        used += usage.ru_utime + usage.ru_stime
    tick = os.sysconf("SC_CLK_TCK")
    for pid in family()[1:]:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / tick
        except OSError:
            pass
    return used


def load(make, consume):
    """Measures a loader over whole epochs, for at least half a second and two epochs.

    make() returns an object with an iterator for each epoch. consume(batch) reads every value and
    returns (sum of the values, sum of the labels, samples).
    """
    values, labels, samples, most = 0.0, 0, 0, memory_mib()
    begin = time.perf_counter()
    loader = make()
    cold = None
    for number, batch in enumerate(loader):  # the warm-up epoch, which is also the checked epoch
        x, y, count = consume(batch)
        if cold is None:
            cold = time.perf_counter() - begin
        values, labels, samples = values + x, labels + y, samples + count
        if number in (1, 450):
            most = max(most, memory_mib())

    epochs, timed = 0, 0
    cpu = cpu_seconds()
    start = time.perf_counter()
    while epochs < LEAST_EPOCHS or time.perf_counter() - start < LEAST_SECONDS:
        for batch in loader:
            timed += consume(batch)[2]
        epochs += 1
    seconds = time.perf_counter() - start
    cpu = cpu_seconds() - cpu
    most = max(most, memory_mib())
    return {
        "group": "load",
        "items_per_second": timed / seconds,
        "nanoseconds": seconds / epochs * 1e9,
        "cpu_seconds": cpu / epochs,
        "peak_mib": most,
        "first_batch_cold_ms": cold * 1e3,
        "epochs": epochs,
        "checked": {"samples": samples, "values": float(values), "labels": int(labels)},
    }


def load_spdl(source, add_stages, buffered, threads, consume, **options):
    """Measures an SPDL pipeline that serves all epochs. add_stages(builder) adds its stages."""
    from spdl.pipeline import PipelineBuilder

    pipelines = []

    def make():
        builder = add_stages(PipelineBuilder().add_source(source, continuous=True))
        pipelines.append(builder.add_sink(buffered).build(num_threads=threads, **options))
        pipelines[-1].start()
        return pipelines[-1]

    try:
        return load(make, consume)
    finally:
        for pipeline in pipelines:
            pipeline.stop()


def train(epochs, samples, run, accuracy):
    """Measures run(), which trains for all epochs, and then calls accuracy()."""
    cpu = cpu_seconds()
    begin = time.perf_counter()
    run()
    seconds = time.perf_counter() - begin
    cpu = cpu_seconds() - cpu
    return {
        "group": "train",
        "items_per_second": epochs * samples / seconds,
        "nanoseconds": seconds / epochs * 1e9,
        "cpu_seconds": cpu / epochs,
        "peak_mib": memory_mib(),
        "epochs": epochs,
        "checked": {"accuracy": accuracy()},
    }


def main(rows, versions):
    """Runs a peer. `rows` maps each row name to a function that measures the row for a folder."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--data")
    parser.add_argument("--row", choices=rows)
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(rows))
        return
    if chosen.data is None or chosen.row is None:
        parser.error("--data and --row, or --list")
    row = {"name": chosen.row, **rows[chosen.row](chosen.data)}
    json.dump({"versions": versions, "rows": [row]}, sys.stdout)
    print()


def main_of(peers):
    """Runs one of several peers, whose name is the first argument. Each of `peers` is a function
    that imports its packages and returns its rows and versions."""
    names = {peer.__name__: peer for peer in peers}
    if sys.argv[1:2] and sys.argv[1] in names:
        main(*names[sys.argv.pop(1)]())
    else:
        sys.exit(f"the first argument is one of {', '.join(names)}")
