# SPDX-License-Identifier: BSL-1.0
"""The test docs/figures: the pages say what the result of a run holds.

    figures.py <the repository>

The result is the one of which docs/benchmarks.md says how the README's picture is drawn from it.
Every text below, with the run's figures put in, has to be in the page.
"""

import json
import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))
from reporting.results import programs_of  # noqa: E402
from reporting.table import summary  # noqa: E402


def short(value):
    """13.7 M, 0.81 M, 260 k."""
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value / 1e6:.2f} M"


def thousands(value):
    return f"{value / 1e3:.0f} k"


class Run:
    def __init__(self, file):
        self.report = json.loads(file.read_text(encoding="utf-8"))
        self.programs = self.report["programs"]

    def speed(self, function):
        """Samples a second of the fastest setting of a loader."""
        rows = self.programs["compare"]["rows"]
        return max(
            row["items_per_second"]["median"]
            for row in rows
            if row["name"].split("/")[0] == function and row.get("items_per_second")
        )

    def row(self, name):
        rows = self.programs["compare"]["rows"]
        return next(row for row in rows if row["name"] == name)["items_per_second"]["median"]

    def loop(self, program, technique):
        modes = self.programs[program]["modes"]
        return next(mode for mode in modes if mode["technique"] == technique)

    def microseconds(self, program, part):
        return self.programs[program]["batch_microseconds"][part]

    def ratio(self, program, name, floor):
        """Of a goal, the loader's fastest peer for a floor without its setting."""
        goals = self.programs[program]["goals"]
        return next(
            goal["ratio"]
            for goal in goals
            if goal["name"] == name and goal["floor"].split("/workers")[0] == floor
        )


def loop_row(run, name, technique):
    plain, warp = (run.loop(program, technique) for program in ("mlp", "mlp_augment"))
    strong = "**" if technique == "overlapped" else ""
    fed = [f"{loop['fed_over_resident']:.3f}" for loop in (plain, warp)]
    if technique == "resident":
        fed = ["1", "1"]
    return (
        f"| {name} | {plain['seconds_per_epoch']:.3f} | {strong}{fed[0]}{strong} "
        f"| {warp['seconds_per_epoch']:.3f} | {strong}{fed[1]}{strong} "
        f"| {strong}{warp['speedup_over_serial']:.2f}x{strong} |"
    )


def example_texts():
    """The rows of the main example, of the newest file of its runs: the medians of each part."""
    newest = max((Path(sys.argv[1]) / "bench/results").glob("*-mnist-example.txt"))
    parts = {"plain": [], "augment": []}
    for line in newest.read_text(encoding="utf-8").splitlines():
        if line.startswith(("== plain", "== --augment")):
            part = parts["plain" if "plain" in line else "augment"]
        elif line.startswith(("serial", "overlapped")):
            part.append((line.split()[0], float(line.split()[1])))
        elif line.startswith("A batch alone"):
            part += [(name, float(us)) for name, us in re.findall(r"(read|step) (\d+) us", line)]

    def median(part, name):
        return statistics.median(value for key, value in parts[part] if key == name)

    serial, fed = (median("augment", name) for name in ("serial", "overlapped"))
    yield f"| {serial:.3f} | **{fed:.3f}** | {serial / fed:.2f}x |"
    serial, fed = (median("plain", name) for name in ("serial", "overlapped"))
    yield (
        f"| {serial:.3f} | {fed:.3f} | no gain: a read {median('plain', 'read'):.0f} us, a step "
        f"{median('plain', 'step'):.0f} us |"
    )


def readme_texts(run):
    ours = run.speed("penstock")
    trained = run.speed("train_penstock_overlapped")
    peers = [run.speed(f"train_{name}") for name in ("DataLoader", "DataLoader_batched")]
    resident = run.speed("train_PyTorch_resident")
    single, batched = run.speed("DataLoader"), run.speed("DataLoader_batched")
    yield from example_texts()
    yield (
        f"a plain C++ loop {short(run.speed('plain_loop'))}, penstock {short(ours)}, libtorch "
        f"batched {short(run.speed('libtorch_batched'))}"
    )
    yield f"DataLoader {short(batched)} batched and {short(single)} per sample"
    yield f"DALI on the CPU {short(run.speed('DALI_cpu'))}"
    yield (
        f"| {short(single)}; {short(batched)} | **{short(ours)}** "
        f"| {ours / single:.0f}x per sample, {ours / batched:.0f}x batched |"
    )
    yield (
        f"| {thousands(peers[0])}; {thousands(peers[1])} | **{thousands(trained)}** "
        f"| {trained / peers[0]:.1f}x, {trained / peers[1]:.1f}x; "
        f"with resident data {trained / resident:.1f}x |"
    )


def benchmark_texts(run):
    programs = programs_of(run.report)
    counts = re.findall(r"\d+", summary(run.report, programs))
    yield f"{counts[0]} of {counts[1]} targets were met; {counts[3]} of the verdicts are *noisy*"
    for name, found in programs.items():
        for goal in found.get("goals") or []:
            # Two programs miss in shapes that the page puts together.
            if goal.get("met") is False and name not in ("batch_queue_bench", "worker_pool_bench"):
                yield f" | {goal['ratio']:.3f} | "
    yield loop_row(run, "serial", "serial")
    yield loop_row(run, "workers, blocking copy", "workers")
    yield loop_row(run, "**overlapped**", "overlapped")
    yield loop_row(run, "resident, the floor", "resident")
    warp = [run.microseconds("mlp_augment", part) for part in ("load", "compute")]
    yield f"reading costs {warp[0]:.0f} us and the step {warp[1]:.0f} us"
    fed = run.loop("mlp_augment", "overlapped")["fed_over_resident"] - 1
    above = run.programs["mlp_augment"]["overlapped_above_bound"]
    yield f"runs {100 * above:.1f} % above max("
    yield f"and {100 * fed:.1f} % above the resident loop"

    ours = run.speed("penstock")

    def times(function):
        factor = ours / run.speed(function)
        return f"{factor:.0f}x" if factor >= 10 else f"{factor:.1f}x"

    yield f"{short(run.speed('plain_loop'))} | {ours / run.speed('plain_loop'):.2f}x |"
    yield f"{short(run.row('penstock/workers:1'))}; {short(run.row('penstock/workers:2'))} |"
    for names in (
        ("libtorch_by_hand", "libtorch_batched", "libtorch"),
        ("PyTorch_no_loader", "DataLoader_batched"),
        ("DataLoader_TensorDataset", "DataLoader"),
        ("DALI_cpu", "SPDL"),
    ):
        speeds = "; ".join(short(run.speed(name)) for name in names)
        yield f"| {speeds} | {'; '.join(map(times, names))} |"
    trained = run.speed("train_penstock_overlapped")
    peers = [run.speed(f"train_{name}") for name in ("DataLoader_batched", "DataLoader")]
    yield (
        f"| {'; '.join(map(thousands, [trained, *peers]))} "
        f"| {'; '.join(f'{trained / peer:.1f}x' for peer in peers)} |"
    )
    resident = [run.speed(f"train_{name}_resident") for name in ("penstock", "PyTorch")]
    factor = f"{resident[0] / resident[1]:.1f}x"
    yield f"| {'; '.join(map(thousands, resident))} | {factor} |"
    yield f"in training, {factor} is what the network itself gains"
    worst = max(goal["ratio"] for goal in run.programs["overlap_bench"]["goals"])
    yield f"worst {worst:.3f}"
    for kind in ("float", "byte"):
        inline = run.ratio("loader_bench", f"loader/{kind}/workers:0", f"floor_inline/{kind}")
        worker = run.ratio("loader_bench", f"loader/{kind}/workers:1", f"floor_hand_off/{kind}")
        yield f"| {inline:.2f}; {worker:.2f} | >= 0.90 |"


def tuning_texts(run):
    seconds = {
        (program, name): f"{run.loop(program, name)['seconds_per_epoch']:.3f} s"
        for program in ("mlp", "mlp_augment")
        for name in ("serial", "overlapped", "resident")
    }
    yield (
        f"takes {run.microseconds('mlp', 'load'):.0f} us to read beside a step of "
        f"{run.microseconds('mlp', 'compute'):.0f} us: serial {seconds['mlp', 'serial']} an epoch, "
        f"overlapped {seconds['mlp', 'overlapped']}, resident {seconds['mlp', 'resident']}."
    )
    bound = run.microseconds("mlp_augment", "bound") * 1e-6
    bound *= run.programs["mlp_augment"]["batches_per_epoch"]
    yield (
        f"reading takes {run.microseconds('mlp_augment', 'load'):.0f} us: serial "
        f"{seconds['mlp_augment', 'serial']} an epoch, overlapped "
        f"{seconds['mlp_augment', 'overlapped']}, against a bound of {bound:.3f} s"
    )
    millions = [run.row(f"penstock/workers:{workers}") / 1e6 for workers in (0, 1, 2)]
    yield f"{millions[0]:.1f} with none, {millions[1]:.1f} with one, {millions[2]:.1f} with two"


PAGES = {
    "README.md": readme_texts,
    "docs/benchmarks.md": benchmark_texts,
    "docs/tuning.md": tuning_texts,
}


def main():
    root = Path(sys.argv[1])
    pages = {name: (root / name).read_text(encoding="utf-8") for name in PAGES}
    result = re.search(r"bench/results/\S+\.json", pages["docs/benchmarks.md"])
    run = Run(root / result[0])
    problems, count = [], 0
    for name, texts in PAGES.items():
        page = " ".join(pages[name].split())
        for text in texts(run):
            count += 1
            if text not in page:
                problems.append(f"{name} does not say: {text}")
    print("\n".join(problems) if problems else f"{count} texts have the figures of {result[0]}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
