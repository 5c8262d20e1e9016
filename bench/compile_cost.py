#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Measures the cost of `#include <penstock/penstock.hpp>` for a translation unit: the time to
preprocess it and to compile it with -O0, and its lines and headers.

Compares with an empty file, the standard headers that penstock includes, Boost.Lockfree's queue,
the CUDA umbrella header, and a small program, all in the same run. With -O2, the text size in bytes
is also measured: for this program; for the same loop written by hand, with a thread and a queue under a
mutex; for the program with a second dataset, record, loader and transfer; for both with
penstock::compiled; for all of these with other versions of penstock; and for the program on a CUDA
device, with and without penstock::compiled_cuda.

  python3 bench/compile_cost.py [--json FILE] [--repeat N] [--cxx COMPILER]... [--include DIR]...
                                [--beside DIR]...
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
    parser.add_argument(
        "--cxx",
        action="append",
        metavar="COMPILER",
        help="may be given again; default: g++ and clang++, where installed",
    )
    parser.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="DIR",
        help="one more include folder, for a Boost that lies elsewhere",
    )
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
        (
            "std_headers",
            including(*standard),
            ours,
            f"the {len(standard)} standard headers it includes",
        ),
        ("boost_lockfree_queue", including("boost/lockfree/queue.hpp"), ours, ""),
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


def sizes(command):
    """Returns the number of lines after preprocessing and the number of opened headers."""
    done = subprocess.run([*command, "-E", "-P", "-H"], capture_output=True, text=True, check=True)
    lines = sum(1 for line in done.stdout.splitlines() if line.strip())
    return lines, len(
        {line.lstrip(". ") for line in done.stderr.splitlines() if re.match(r"\.+ ", line)}
    )


def text_bytes(command, out):
    """Returns the size of code and constants in the object file in bytes."""
    subprocess.run([*command, "-c", "-o", out], check=True, capture_output=True)
    done = subprocess.run(["size", out], capture_output=True, text=True, check=True)
    return int(done.stdout.split("\n")[1].split()[0])


def measured(compiler, folder, options):
    """Returns the rows of one compiler. Each round times every source once, so that all are subject
    to the same noise."""
    commands, rows = {}, []
    for name, text, extra, label in sources(options.beside):
        file = Path(folder) / f"{name.replace('.', '_')}.cpp"
        file.write_text(text)
        commands[name] = [
            compiler,
            "-std=c++20",
            *extra,
            *(f"-I{one}" for one in options.include),
            str(file),
        ]
        rows.append((name, label))
    phases = {"preprocess": ["-E"], "compile": ["-c"]}
    taken, errors = {}, {}
    for round_number in range(options.repeat + 1):  # the first round fills the file cache
        for name, command in commands.items():
            for phase, flags in phases.items():
                if name in errors:
                    continue
                try:
                    wall, cpu = timed([*command, *flags, "-o", f"{folder}/out"])
                except failed as error:
                    errors[name] = str(error)
                    continue
                if round_number > 0:
                    kept = taken.setdefault((phase, name), ([], []))
                    kept[0].append(wall * 1e9)
                    kept[1].append(cpu)
    for name, label in rows:
        counted = None if name in errors else sizes(commands[name])
        text = 0 if name in errors else text_bytes(commands[name], f"{folder}/out")
        for phase in phases:
            row = {"name": f"{phase}/compiler:{Path(compiler).name}/of:{name}", "repetitions": 0}
            if label:
                row["label"] = label
            if counted is None:
                row["skipped"] = errors[name]
            else:
                wall, cpu = taken[phase, name]
                row.update(
                    repetitions=len(wall),
                    nanoseconds=spread(wall),
                    counters={
                        "cpu_seconds": spread(cpu),
                        "lines": spread([counted[0]]),
                        "headers": spread([counted[1]]),
                        "text": spread([text]),
                    },
                )
            yield row


def goals(rows, compilers, beside):
    """Returns ratios to the floors. For g++, the time itself is compared with its target, as a
    ratio to one second. The smallest program is compared with other versions of penstock by
    processor time."""
    by_name = {row["name"]: row for row in rows}
    second = {"name": "1 s", "nanoseconds": spread([1e9])}
    for compiler in compilers:
        ours = by_name[f"compile/compiler:{compiler}/of:penstock.hpp"]
        floors = [
            by_name[f"compile/compiler:{compiler}/of:{of}"]
            for of in ("std_headers", "boost_lockfree_queue")
        ]
        for below in [*floors, second] if compiler == "g++" else floors:
            goal = {"name": ours["name"], "floor": below["name"], "compares": "time"}
            if below is second:
                goal["at_most"] = TARGET_SECONDS
            goal["ratio"] = None
            if "nanoseconds" in ours and "nanoseconds" in below:
                goal["ratio"] = ours["nanoseconds"]["median"] / below["nanoseconds"]["median"]
                # One second never varies, so the spread of the measured time decides.
                still = ours if below is second else below
                goal["noisy"] = still["nanoseconds"]["max"] > 1.2 * still["nanoseconds"]["min"]
                if "at_most" in goal:
                    goal["met"] = goal["ratio"] <= goal["at_most"]
            yield goal
        for tree in beside:
            ours = by_name[f"compile/compiler:{compiler}/of:first_batch.cpp-O2"]
            below = by_name[f"{ours['name']}@{tree.name}"]
            goal = {"name": ours["name"], "floor": below["name"], "compares": "cpu", "ratio": None}
            if "counters" in ours and "counters" in below:
                spent, floor = (one["counters"]["cpu_seconds"] for one in (ours, below))
                goal["ratio"] = spent["median"] / floor["median"]
                goal["noisy"] = floor["max"] > 1.2 * floor["min"]
            yield goal


def first_line(path):
    try:
        return Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


def machine(compilers):
    try:
        model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        model = None
    versions = [
        subprocess.run([one, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
        for one in compilers
    ]
    return {
        "cpu": model[1] if model else "unknown",
        "cores": os.cpu_count(),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        or "unknown",
        "load_before": os.getloadavg()[0],
        "compiler": ", ".join(versions),
    }


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
    wanted = options.cxx or ["g++", "clang++"]
    there = [one for one in wanted if shutil.which(one)]
    if options.cxx and there != wanted or not there:
        sys.exit(
            "compile_cost: not installed: " + ", ".join(one for one in wanted if one not in there)
        )
    result = {"program": "compile_cost", "machine": machine(there), "rows": [], "goals": []}
    with tempfile.TemporaryDirectory() as folder:
        for compiler in there:
            result["rows"] += measured(compiler, folder, options)
    for compiler in wanted:
        if compiler not in there:
            result["rows"].append(
                {
                    "name": f"compile/compiler:{compiler}/of:penstock.hpp",
                    "repetitions": 0,
                    "skipped": f"{compiler} is not installed",
                }
            )
    result["goals"] += goals(result["rows"], [Path(one).name for one in there], options.beside)

    print(f"{'':50} {'s':>7} {'cpu s':>7} {'lines':>9} {'headers':>8} {'text':>8}")
    for row in result["rows"]:
        if "skipped" in row:
            print(f"{row['name']:50} left out: {row['skipped']}")
            continue
        numbers = {key: value["median"] for key, value in row["counters"].items()}
        print(
            f"{row['name']:50} {row['nanoseconds']['median'] / 1e9:7.3f} "
            f"{numbers['cpu_seconds']:7.3f} "
            f"{numbers['lines']:9} {numbers['headers']:8} {numbers['text']:8}"
        )
    print()
    for goal in result["goals"]:
        if goal["ratio"] is None:
            print(f"{goal['name']} over {goal['floor']}: not measured")
            continue
        judged = (
            f"; at most {goal['at_most']:.2f}: {'met' if goal['met'] else 'missed'}"
            if "met" in goal
            else ""
        )
        print(
            f"{goal['name']} over {goal['floor']}: {goal['ratio']:.3f} of its "
            f"{'processor time' if goal['compares'] == 'cpu' else 'time'}{judged}"
            + ("  NOISY: it moved by more than 20 %" if goal["noisy"] else "")
        )
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    compiled = all(
        "nanoseconds" in row
        for row in result["rows"]
        if "is not installed" not in row.get("skipped", "")
    )
    return 0 if compiled else 1


if __name__ == "__main__":
    sys.exit(main())
