#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Measures the cost of penstock for a translation unit: the time to compile it, and its code.

  python3 bench/compile_cost.py [--json FILE] [--repeat N] [--cxx COMPILER] [--nvcc]

The sources are an empty file; the umbrella headers, with -O0; the smallest program, with a second
dataset, record, loader and transfer, with penstock::compiled, and on a CUDA device, with -O2; and
the same loop by hand, with a thread and a queue under a mutex. With --nvcc, nvcc compiles those
that have a target for it, and its user seconds count: the minimum of N runs, because other work on
the machine only increases the time.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reporting.results import spread

ROOT = Path(__file__).resolve().parent.parent
TARGET_SECONDS = 1.5  # of the umbrella header
# User seconds of nvcc on an idle machine, by source name.
NVCC_TARGETS = {"cuda.hpp": 3, "cuda_batch.cpp-O2": 10, "cuda_batch.cpp-O2-compiled": 4}
NVCC_SOURCES = {"nothing", "by_hand.cpp-O2", *NVCC_TARGETS}
# The loop of examples/01_first_batch.cpp by hand: one thread, no reuse of memory, no errors.
BY_HAND = """#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <numeric>
#include <queue>
#include <random>
#include <thread>
#include <vector>

int main() {
  std::mutex mutex;
  std::condition_variable changed;
  std::queue<std::vector<std::uint64_t>> ready;
  std::thread reader{[&] {
    std::vector<std::uint64_t> order(1000);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64{1});
    for (std::size_t begin = 0; begin < order.size(); begin += 64) {
      std::vector<std::uint64_t> batch;
      for (auto i = begin; i < std::min(begin + 64, order.size()); ++i)
        batch.push_back(order[i] * order[i]);
      std::unique_lock lock{mutex};
      changed.wait(lock, [&] { return ready.size() < 3; });
      ready.push(std::move(batch));
      changed.notify_all();
    }
  }};
  std::uint64_t sum = 0;
  for (int batches = 0; batches < 16; ++batches) {
    std::unique_lock lock{mutex};
    changed.wait(lock, [&] { return !ready.empty(); });
    const auto batch = std::move(ready.front());
    ready.pop();
    lock.unlock();
    changed.notify_all();
    for (const auto value : batch) sum += value;
  }
  reader.join();
  std::cout << "sum of all squares: " << sum << '\\n';
}
"""


def cuda_include():
    """Returns the folder of cuda_runtime_api.h: a toolkit's folder, or the stand-in that the tests
    use."""
    for folder in (os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include", "/usr/include"):
        if (Path(folder) / "cuda_runtime_api.h").is_file():
            return folder
    return str(ROOT / "tests/fake_cuda/standin")


def with_a_second(program):
    body = program[program.index("struct ") :]
    dataset = re.match(r"struct (\w+)", body)[1]
    for old, new in ((dataset, "others"), ('"value"', '"other"'), ("main()", "other()")):
        body = body.replace(old, new)
    return program + body


def on_cuda(program):
    for old, new in (
        ("penstock/penstock.hpp", "penstock/cuda.hpp"),
        ("int main() {", "int main() {  const ps::cuda_device device; const auto stream = device.make_stream();"),
        ("{.seed = 1}, {.batch_size", "{.seed = 1}, device, {.batch_size"),
        ("feed{loader}", "feed{loader, stream}"),
    ):
        if program.count(old) != 1:
            raise ValueError(f"examples/01_first_batch.cpp has no, or more than one, {old!r}")
        program = program.replace(old, new)
    return program


def sources():
    """Yields the (name, text, options) of each source."""
    program = (ROOT / "examples/01_first_batch.cpp").read_text()
    cuda = f"-isystem{cuda_include()}"
    yield "nothing", "", []
    yield "penstock.hpp", "#include <penstock/penstock.hpp>\n", []
    yield "cuda.hpp", "#include <penstock/cuda.hpp>\n", [cuda]
    yield "first_batch.cpp", program, []
    yield "by_hand.cpp-O2", BY_HAND, ["-O2"]
    for suffix, defined in (
        ("-O2", []),
        ("-O2-compiled", ["-DPENSTOCK_COMPILED=1", "-DPENSTOCK_COMPILED_CUDA=1"]),
    ):
        yield "first_batch.cpp" + suffix, program, ["-O2", *defined[:1]]
        yield "two_loaders.cpp" + suffix, with_a_second(program), ["-O2", *defined[:1]]
        yield "cuda_batch.cpp" + suffix, on_cuda(program), ["-O2", cuda, *defined]


def timed(command):
    """Returns the wall, processor and user seconds of a command. Exits with its first error if the
    command fails."""
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    wall, after = time.perf_counter() - began, os.times()
    if done.returncode != 0:
        lines = done.stderr.splitlines() or [f"exit status {done.returncode}"]
        sys.exit("compile_cost: " + next((line for line in lines if "error" in line), lines[0]))
    user = after.children_user - before.children_user
    return wall, user + after.children_system - before.children_system, user


def text_bytes(file):
    """Returns the size of code and constants in an object file in bytes."""
    done = subprocess.run(["size", file], capture_output=True, text=True, check=True)
    return int(done.stdout.split("\n")[1].split()[0])


def measured(folder, chosen):
    """Returns the seconds of each source in each round, and the size of its code. Each round times
    every source once, so that all are subject to the same noise. The first round fills the file
    cache and does not count."""
    compiler, suffix = ("nvcc", "cu") if chosen.nvcc else (chosen.cxx, "cpp")
    taken, text = {}, {}
    for turn in range(chosen.repeat + (0 if chosen.nvcc else 1)):
        for name, source, options in sources():
            if chosen.nvcc and name not in NVCC_SOURCES:
                continue
            file, out = Path(folder) / f"{name.replace('.', '_')}.{suffix}", f"{folder}/out"
            file.write_text(source)
            kept = [one for one in options if one.startswith("-D") or not chosen.nvcc]
            command = [compiler, "-std=c++20", f"-I{ROOT / 'include'}", *kept, "-c", "-o", out, str(file)]
            seconds = timed(command)
            if turn > 0 or chosen.nvcc:
                taken.setdefault(name, []).append(seconds)
                text[name] = text_bytes(out)
    return taken, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--json", metavar="FILE", help="write the results of --cxx to this file")
    parser.add_argument(
        "--repeat",
        type=int,
        choices=range(1, 1000),
        default=7,
        metavar="N",
        help="timings of each source, interleaved (default 7)",
    )
    parser.add_argument("--cxx", default="g++", metavar="COMPILER", help="default: g++")
    parser.add_argument("--nvcc", action="store_true", help="the user seconds of nvcc instead")
    chosen = parser.parse_args()
    compiler = "nvcc" if chosen.nvcc else chosen.cxx
    if not shutil.which(compiler):
        sys.exit(f"compile_cost: not installed: {compiler}")
    with tempfile.TemporaryDirectory() as folder:
        taken, text = measured(folder, chosen)
    rows = []
    for name, seconds in taken.items():
        wall, cpu, user = (spread(one) for one in zip(*seconds))
        if chosen.nvcc:
            target = f"; target {NVCC_TARGETS[name]}" if name in NVCC_TARGETS else ""
            print(f"nvcc/of:{name:30} {user['min']:6.2f} user s{target}")
            continue
        print(f"{name:30} {wall['median']:7.3f} s {cpu['median']:7.3f} cpu s {text[name]:8} bytes of text")
        rows.append({"name": f"compile/of:{name}", "repetitions": len(seconds)})
        rows[-1]["nanoseconds"] = {key: 1e9 * value for key, value in wall.items()}
        rows[-1]["counters"] = {"cpu_seconds": cpu, "text": spread([text[name]])}
    if chosen.nvcc:
        return
    wall = spread([one[0] for one in taken["penstock.hpp"]])
    goal = {"name": "compile/of:penstock.hpp", "floor": "1 s", "compares": "time", "ratio": wall["median"]}
    goal.update(noisy=wall["max"] > 1.2 * wall["min"], at_most=TARGET_SECONDS)
    goal["met"] = goal["ratio"] <= TARGET_SECONDS
    print(f"penstock.hpp: at most {TARGET_SECONDS} s: {'met' if goal['met'] else 'missed'}")
    if chosen.json:
        result = {"program": "compile_cost", "rows": rows, "goals": [goal]}
        Path(chosen.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
