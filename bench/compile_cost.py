#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Measures the cost of `#include <penstock/penstock.hpp>` for a translation unit: the time to
compile it with -O0.

Compares with an empty file and the standard headers that penstock includes in the same run. With
-O2, the text size in bytes is also measured: for a small program; for the same loop written by
hand, with a thread and a queue under a mutex; for the program with a second dataset, record, loader
and transfer; for both with penstock::compiled; for all of these with other versions of penstock;
and for the program on a CUDA device, with and without penstock::compiled_cuda.

  python3 bench/compile_cost.py [--json FILE] [--repeat N] [--cxx COMPILER] [--beside DIR]...
  python3 bench/compile_cost.py --nvcc [--repeat N]

With --nvcc, only the user seconds of nvcc are measured. The result is the minimum of N runs,
because other work on the machine only increases the time.
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

ROOT = Path(__file__).resolve().parent.parent
TARGET_SECONDS = 1.5
# User seconds of nvcc on an idle machine, by source name.
NVCC_TARGETS = {"cuda.hpp": 3, "cuda_batch.cpp-O2": 10, "cuda_batch.cpp-O2-compiled": 4}
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


def spread(values):
    values = sorted(values)
    return {"median": values[len(values) // 2], "min": values[0], "max": values[-1]}


def whole_number(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return int(text)


def parsed_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", metavar="FILE", help="write the results to this file")
    parser.add_argument(
        "--repeat",
        type=whole_number,
        default=7,
        metavar="N",
        help="timings of each source, interleaved; medians are kept (default 7)",
    )
    parser.add_argument("--cxx", default="g++", metavar="COMPILER", help="default: g++")
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="the checkout of another version, whose smallest program is compiled too, with -O2",
    )
    parser.add_argument(
        "--nvcc", action="store_true", help="only the user seconds of nvcc, against their targets"
    )
    return parser.parse_args()


def standard_headers():
    """Returns the standard headers that the umbrella header includes, directly or through penstock
    headers."""
    seen, todo, standard = set(), ["penstock/penstock.hpp"], set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        for included in re.findall(
            r"^\s*#\s*include <([^>]+)>", (ROOT / "include" / name).read_text(), re.M
        ):
            if included.startswith("penstock/"):
                todo.append(included)
            elif re.fullmatch(r"[a-z_]+", included):
                standard.add(included)
    return sorted(standard)


def cuda_include():
    """Returns the folder of cuda_runtime_api.h: a toolkit's folder, or the stand-in that the tests
    use."""
    for folder in (os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include", "/usr/include"):
        if (Path(folder) / "cuda_runtime_api.h").is_file():
            return folder, "with " + folder
    return str(ROOT / "tests/fake_cuda/standin"), "with the tests' stand-in for the CUDA runtime"


def sources(beside):
    """Returns the (name, text, options, label) of each source, starting with the floors."""

    def including(*headers):
        return "".join(f"#include <{header}>\n" for header in headers)

    def smallest_program(tree):
        return (tree / "examples/01_first_batch.cpp").read_text()

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

    def optimised(tree, suffix, flags, label):
        flags = ["-O2", f"-I{tree / 'include'}", *flags]
        first = smallest_program(tree)
        yield f"first_batch.cpp-O2{suffix}", first, flags, f"the program {label}"
        yield f"two_loaders.cpp-O2{suffix}", with_a_second(first), flags, f"with a second {label}"

    ours = ["-O0", f"-I{ROOT / 'include'}"]
    standard = standard_headers()
    cuda, label = cuda_include()
    return [
        ("nothing", "", ours, "an empty file"),
        ("std_headers", including(*standard), ours, f"the {len(standard)} standard headers"),
        ("penstock.hpp", including("penstock/penstock.hpp"), ours, ""),
        ("cuda.hpp", including("penstock/cuda.hpp"), [*ours, "-isystem", cuda], label),
        (
            "first_batch.cpp",
            smallest_program(ROOT),
            ours,
            "a whole program: examples/01_first_batch.cpp",
        ),
        ("by_hand.cpp-O2", BY_HAND, ["-O2"], "the same loop by hand, with -O2"),
        *optimised(ROOT, "", [], "with -O2"),
        *optimised(ROOT, "-compiled", ["-DPENSTOCK_COMPILED=1"], "with penstock::compiled"),
        *(
            (
                f"cuda_batch.cpp-O2{suffix}",
                on_cuda(smallest_program(ROOT)),
                ["-O2", *ours[1:], "-isystem", cuda, *(f"-D{name}=1" for name in names)],
                f"the program on a CUDA device {words}",
            )
            for suffix, names, words in (
                ("", (), "with -O2"),
                ("-compiled", ("PENSTOCK_COMPILED", "PENSTOCK_COMPILED_CUDA"), "with penstock::compiled_cuda"),
            )
        ),
        *(
            one
            for tree in beside
            for one in optimised(tree, f"@{tree.name}", [], "of another version")
        ),
    ]


class failed(Exception):
    pass


def timed(command):
    """Returns the wall and CPU seconds of a command. Raises an exception with its first error if
    the command fails."""
    with tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            lines = errors.read().splitlines() or [f"exit status {child.returncode}"]
            raise failed(next((line for line in lines if "error" in line), lines[0]))
    return wall, used.ru_utime + used.ru_stime


def text_bytes(command, out):
    """Returns the size of code and constants in the object file in bytes."""
    subprocess.run([*command, "-c", "-o", out], check=True, capture_output=True)
    done = subprocess.run(["size", out], capture_output=True, text=True, check=True)
    return int(done.stdout.split("\n")[1].split()[0])


def measured(folder, options):
    """Returns the rows. Each round times every source once, so that all are subject to the same
    noise."""
    commands, rows, taken = {}, {}, {}
    for name, text, extra, label in sources(options.beside):
        file = Path(folder) / f"{name.replace('.', '_')}.cpp"
        file.write_text(text)
        commands[name] = [options.cxx, "-std=c++20", *extra, str(file)]
        rows[name] = {"name": f"compile/of:{name}", "repetitions": 0, "label": label}
    for round_number in range(options.repeat + 1):  # the first round fills the file cache
        for name, command in commands.items():
            if "left_out" in rows[name]:
                continue
            try:
                seconds = timed([*command, "-c", "-o", f"{folder}/out"])
            except failed as error:
                rows[name]["left_out"] = str(error)
                continue
            if round_number > 0:
                taken.setdefault(name, []).append(seconds)
    for name, row in rows.items():
        if "left_out" not in row:
            wall, cpu = zip(*taken[name])
            text = text_bytes(commands[name], f"{folder}/out")
            row.update(
                repetitions=len(wall),
                nanoseconds=spread([1e9 * one for one in wall]),
                counters={"cpu_seconds": spread(cpu), "text": spread([text])},
            )
    return list(rows.values())


def goals(rows, beside):
    """Returns ratios to the floors. The time itself is compared with its target, as a ratio to one
    second. The smallest program is compared with other versions of penstock by processor time."""
    by_name = {row["name"].removeprefix("compile/of:"): row for row in rows}

    def goal(of, floor, key, at_most=None):
        made = {"name": f"compile/of:{of}", "floor": floor, "compares": key, "ratio": None}
        ours, below = by_name[of], by_name.get(floor)
        if "counters" in ours and (below is None or "counters" in below):
            # One second never varies, so the spread of the measured time decides.
            spent, least = (
                one["counters"]["cpu_seconds"] if key == "cpu" else one["nanoseconds"]
                for one in (ours, below or ours)
            )
            made["ratio"] = spent["median"] / (least["median"] if below else 1e9)
            made["noisy"] = least["max"] > 1.2 * least["min"]
            if at_most is not None:
                made.update(at_most=at_most, met=made["ratio"] <= at_most)
        return made

    yield goal("penstock.hpp", "std_headers", "time")
    yield goal("penstock.hpp", "1 s", "time", TARGET_SECONDS)
    for tree in beside:
        yield goal("first_batch.cpp-O2", f"first_batch.cpp-O2@{tree.name}", "cpu")


def print_nvcc_times(repeat):
    """Prints nvcc's user seconds for an empty source, the loop by hand, and the sources that have a
    target."""
    taken = {}
    with tempfile.TemporaryDirectory() as folder:
        commands = {}
        for name, text, extra, _ in sources([]):
            if name not in ("nothing", "by_hand.cpp-O2", *NVCC_TARGETS):
                continue
            file = Path(folder) / f"{name.replace('.', '_')}.cu"
            file.write_text(text)
            defined = [flag for flag in extra if flag.startswith("-D")]
            out = ["-c", "-o", f"{folder}/out", str(file)]
            commands[name] = ["nvcc", "-std=c++20", f"-I{ROOT / 'include'}", *defined, *out]
        for _ in range(repeat):
            for name, command in commands.items():
                before = os.times().children_user
                subprocess.run(command, check=True)
                taken.setdefault(name, []).append(os.times().children_user - before)
    for name, seconds in taken.items():
        target = f"; target {NVCC_TARGETS[name]}" if name in NVCC_TARGETS else ""
        print(f"nvcc/of:{name:30} {min(seconds):6.2f} user s{target}")


def main():
    options = parsed_arguments()
    if options.nvcc:
        if not shutil.which("nvcc"):
            sys.exit("compile_cost: not installed: nvcc")
        return print_nvcc_times(options.repeat)
    if not shutil.which(options.cxx):
        sys.exit(f"compile_cost: not installed: {options.cxx}")
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(folder, options)
    result = {"program": "compile_cost", "rows": rows, "goals": [*goals(rows, options.beside)]}
    print(f"{'':40} {'s':>7} {'cpu s':>7} {'text':>8}")
    for row in rows:
        if "left_out" in row:
            print(f"{row['name']:40} left out: {row['left_out']}")
            continue
        cpu, text = (row["counters"][key]["median"] for key in ("cpu_seconds", "text"))
        print(f"{row['name']:40} {row['nanoseconds']['median'] / 1e9:7.3f} {cpu:7.3f} {text:8}")
    print()
    for goal in result["goals"]:
        if goal["ratio"] is None:
            print(f"{goal['name']} over {goal['floor']}: not measured")
            continue
        kind = "processor time" if goal["compares"] == "cpu" else "time"
        print(
            f"{goal['name']} over {goal['floor']}: {goal['ratio']:.3f} of its {kind}"
            + (f"; at most {goal['at_most']:.2f}" if "at_most" in goal else "")
            + {True: ": met", False: ": missed", None: ""}[goal.get("met")]
            + ("  NOISY: it moved by more than 20 %" if goal["noisy"] else "")
        )
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if any("left_out" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
