# SPDX-License-Identifier: BSL-1.0
"""Tests bench/gpu_report.sh and bench/gpu_report.py with stubs of the programs and of nvidia-smi.
The report is green only if every step ran, and red if any step is broken."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "bench" / "gpu_report.sh"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import gpu_report  # noqa: E402

PROGRAMS = [
    "penstock_gpu_tests",
    "penstock_gpu_torch",
    "penstock_mlp_gpu_tests",
    "penstock_cuda_transfer_bench",
    "penstock_cuda_graph_wait_bench",
    "penstock_nccl_on_gpu",
    "penstock_nvimgcodec_gpu_tests",
    "penstock_mlp_bench",
    "penstock_mlp",
]
STEPS = ["smoke", "tests", "torch", "mlp-tests", "nccl", "nvimgcodec", "mlp-cublas"]
STEPS += ["memcheck", "initcheck", "leak-check", "memcheck-mlp", "racecheck-fused"]
STEPS += ["synccheck-fused", "racecheck-cublas"]
STEPS += ["results", "graph-wait", "bulk", "registered", "example", "example-augment"]
STEPS += ["transfer", "mlp-modes", "mlp-seeds", "mlp-augment", "mlp-wide", "mlp-no-graph"]
STEPS += ["pytorch", "tests-contract", "tests-fault"]

# A stub for all programs. BREAK is a list of STEP:HOW.
STUB = r"""#!/bin/bash
how=
for one in $BREAK; do [ "${one%%:*}" != "$PENSTOCK_STEP" ] || how=${one#*:}; done
case $how in
  fail) exit 3 ;;
  skip) echo "skipped: no CUDA device"; exit 77 ;;
  nothing) exit 0 ;;
  crash) kill -SEGV $$ ;;
  hang) exec /bin/sleep 60 ;;
esac
case $0 in
  */pytorch) case "$*" in *gpu_torch.py*) echo "64 comparisons, 0 failures"; exit 0 ;; esac ;;
  *_nvimgcodec_gpu_tests) echo "All tests passed (9 assertions in 1 test case)"; exit 0 ;;
  */penstock_mlp) echo "serial            0.200       1.00x     0.05014    97.63 %"
    echo "overlapped        0.125       1.60x     0.05014    97.63 %"
    echo "All loops had the same losses and parameters, to the last bit."; exit 0 ;;
  *_nccl_on_gpu) echo "3 comparisons, 0 failures"; exit 0 ;;
  *_gpu_tests)
    tests=0
    case "$*" in
      */penstock_gpu_tests*) ;;
      *"~a GPU keeps the contract"*"~a kernel fault"*) tests=11 ;;
      "a GPU keeps the contract"*) tests=9 ;;
      "a kernel fault"* | "a program's own capture"*) tests=1 ;;
    esac
    case $0 in
      *mlp*)
        [[ $1 =~ ^[0-9]+$ ]] || exit 0
        [ -z "$2" ] && echo "18 comparisons, 0 failures" || echo "6 comparisons, 0 failures" ;;
      *) if [ $tests -eq 0 ]; then echo "No tests ran"; else
           echo "All tests passed (99 assertions in $tests test cases)"; fi ;;
    esac
    exit 0 ;;
esac
table=
while [ $# -gt 0 ]; do
  case $1 in
    --seeds) table=-seeds ;;
    --json) file=$2; shift ;;
  esac
  shift
done
kind=${0##*/}
if [ "$how" = killed ]; then
  part=$FIXTURES/$kind$table-part.json
  [ -e "$part" ] || part=$FIXTURES/$kind$table.json
  printf '%s\n' "$(<"$part")" >"$file"
  kill -KILL $$
fi
[ "$how" != "cut-off" ] || { echo '{"rows": [' >"$file"; exit 0; }
[ "$how" != "host" ] || table=-host
[ "$how" != "lost" ] || { echo "$LOST" >"$file"; exit 3; }
printf '%s\n' "$(<"$FIXTURES/$kind$table.json")" >"$file"
"""

SANITIZER = r"""#!/bin/bash
how=
for one in $BREAK; do [ "${one%%:*}" != "$PENSTOCK_STEP" ] || how=${one#*:}; done
while [[ $1 == --* ]]; do
  case $1 in --tool) tool=$2 ;; esac
  shift 2
done
case $how in
  unsupported) echo "========= Error: Device not supported"; exit 0 ;;
  untested) set -- /bin/true ;;
  silent) exec "$@" ;;
esac
"$@" || exit
case $tool-$how in
  *-hazard) echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)" ;;
  racecheck-*) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
  *) echo "========= ERROR SUMMARY: 0 errors" ;;
esac
"""

NVIDIA_SMI = r"""#!/bin/bash
case $1 in
  -L) [ "$BREAK" != "gpu:none" ] && echo "GPU 0: Stub GPU (UUID: GPU-0)" ;;
  --query-gpu=*)
    declare -A known=([name]="Stub GPU" [driver_version]=580.00 [compute_cap]=9.0
      [memory.total]="143771 MiB" [pcie.link.gen.max]=5 [pcie.link.width.max]=16
      [pcie.link.gen.current]=1)
    IFS=, read -ra fields <<<"${1#*=}"
    [[ $* != *-lms* ]] || echo $$ >"${0%/*}/clocks.pid"
    [[ $* != *-lms* ]] || exec /bin/sh -c '
      echo "2026/11/24 12:00:00.000, 345 MHz, 2619 MHz, 1, 16, 0 %, 30, 60.00 W"
      echo "2026/11/24 12:00:00.500, 1980 MHz, 2619 MHz, 5, 16, 99 %, 40, 400.00 W"
      exec /bin/sleep 300'
    for i in "${!fields[@]}"; do
      [ "$i" -eq 0 ] || printf ', '
      printf %s "${known[${fields[i]}]:-[not a field]}"
    done
    echo ;;
  *) echo "a table" ;;
esac
"""

PYTHON = r"""#!/bin/bash
case "$*" in
  *find_spec*) [ "$BREAK" != "torch:none" ]; exit ;;
  *pytorch_mnist.py* | *gpu_torch.py*) exec "$STUBS/pytorch" "$@" ;;
esac
exec "$REAL_PYTHON" "$@"
"""

CMAKE = r"""#!/bin/bash
if [ "$1" = -S ]; then
  [ "$BREAK" != "configure:fail" ] || exit 1
  mkdir -p "$4" && : >"$4/CMakeCache.txt" && exit
fi
case "$*" in *"--target help") echo "penstock_nvimgcodec_gpu_tests: phony"; exit ;; esac
status=0
for target in "$@"; do
  case $target in
    penstock_*)
      if [ "$BREAK" = "$target:absent" ]; then status=1; continue; fi
      mkdir -p "$2/bin" && cp "$STUBS/program" "$2/bin/$target" ;;
  esac
done
exit $status
"""


PACK_CMAKE = r"""#!/bin/bash
printf '%s\n' "$@"
for word in "$@"; do
  case $word in penstock_*) cp "$PROGRAM" "$BUILD/$word" ;; esac
  case $last in -B | --build)
    BUILD=$word && mkdir -p "$BUILD"
    echo "CMAKE_CUDA_COMPILER:FILEPATH=$(command -v nvcc)" >"$BUILD/CMakeCache.txt" ;;
  esac
  last=$word
done
"""


def mlp(kind="cuda", modes=("serial", "workers", "overlapped", "resident"), **chosen):
    rows = [
        {
            "technique": name,
            "seconds": 0.15,
            "fed_over_resident": 1.01,
            "fed_over_one_batch": 1.015,
            "test_accuracy": 0.975,
        }
        for name in modes
    ]
    options = {"epochs": 5, "batch": 64, "workers": 8, "seed": 1, **chosen}
    return {
        "device": {"kind": kind},
        "options": options,
        "batches_per_epoch": 938,
        "modes": rows,
    }


def mlp_seeds():
    """Returns the output of the MLP for several experiments in one process."""
    return [mlp(modes=("overlapped",), seed=n) for n in (1, 2, 3, 4, 5)]


def transfer():
    rows = [
        ("bandwidth", "transfer, pinned", 1 << 20, 50.0, "GB/s", 51.0),
        ("bandwidth", "transfer, pinned", 1 << 22, 52.0, "GB/s", 52.5),
        ("bandwidth", "transfer, registered", 1 << 22, 51.5, "GB/s", 52.5),
        ("download", "results", 1 << 16, 16.5, "GB/s", 17.0),
        ("bulk", "upload, 8 workers", 1 << 29, 44.0, "GB/s", 55.0),
        ("graph wait", "penstock, depth 4", 1024, 19.1, "us/batch", 19.0),
        ("tiny", "transfer, batches ready", 1024, 7.0, "us/batch", 5.0),
        ("tiny", "loader, 8 workers, thread's CPU", 64 * 785, 12.0, "us/batch", None),
    ]
    made = []
    for group, name, size, value, unit, floor in rows:
        row = {"group": group, "name": name, "bytes": size, "value": value, "unit": unit}
        made.append({**row, **({"floor": floor, "ratio": value / floor} if floor else {})})
    return {"driver_cuda": 13000, "runtime": 13000, "rows": made}


def pytorch():
    row = {"name": "resident", "seconds_per_epoch": 0.3, "accuracy": 0.97}
    return {"torch": "2.x", "gpu": "Stub GPU", "data": "random", "rows": [row]}


def write(path, text, executable=True):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if executable:
        path.chmod(0o755)


class Place:
    """A folder with stubs of all programs. Runs the script there."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.stubs = self.folder / "stubs"
        self.pack = self.folder / "pack"
        fixtures = self.folder / "fixtures"
        for name, text in (
            ("nvidia-smi", NVIDIA_SMI),
            ("compute-sanitizer", SANITIZER),
            ("python3", PYTHON),
            ("cmake", CMAKE),
            ("sleep", "#!/bin/bash\n"),
            ("pytorch", STUB),
            ("program", STUB),
        ):
            write(self.stubs / name, text)
        for name in PROGRAMS:
            write(self.pack / "bin" / name, STUB)
        write(self.pack / "pack.txt", "commit abc1234\nnvcc 13.0\n", False)
        for name, found in (
            ("penstock_cuda_transfer_bench", transfer()),
            ("penstock_cuda_graph_wait_bench", transfer()),
            ("penstock_mlp_bench", mlp()),
            ("penstock_mlp_bench-host", mlp("host")),
            ("penstock_mlp_bench-seeds", mlp_seeds()),
            ("penstock_mlp_bench-seeds-part", mlp_seeds()[:2]),
            ("pytorch", pytorch()),
        ):
            write(fixtures / f"{name}.json", json.dumps(found), False)
        failed = {"group": "fed", "name": "the whole group", "bytes": 0, "failed": "not tried"}
        lost = {**transfer(), "complete": False, "lost": "tiny: calls by hand"}
        lost["rows"].append(failed)
        self.environment = {
            "PATH": f"{self.stubs}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "FIXTURES": str(fixtures),
            "STUBS": str(self.stubs),
            "REAL_PYTHON": sys.executable,
            "LOST": json.dumps(lost),
            "PENSTOCK_BUILD": str(self.folder / "build"),
        }

    def run(self, *words, **more):
        done = subprocess.run(
            ["bash", str(SCRIPT), *words],
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        return done.returncode, done.stdout

    def report(self, breakage="", out="out", packed=True, **more):
        """Returns the exit status, report.json and report.txt."""
        words = ["--packed", str(self.pack)] if packed else []
        path = self.folder / out
        status, said = self.run(*words, str(path), BREAK=breakage, **more)
        try:
            return status, json.loads((path / "report.json").read_text()), said
        except OSError:
            return status, None, said


class Script(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.place = Place(self.temporary.name)

    def test_it_is_green_where_every_step_ran(self):
        status, report, said = self.place.report()
        self.assertEqual(status, 0, said)
        self.assertTrue(report["passed"])
        self.assertEqual([s["name"] for s in report["steps"]], STEPS)
        self.assertEqual({s["ended"] for s in report["steps"]}, {"passed"})
        tests = {s["name"]: s["tests"] for s in report["steps"] if s["tests"] is not None}
        expected = {"tests": 11, "tests-contract": 9, "tests-fault": 1, "mlp-tests": 18}
        expected.update({"nccl": 3, "torch": 64, "nvimgcodec": 1, "initcheck": 11, "leak-check": 1})
        expected.update({"memcheck": 11, "memcheck-mlp": 18, "racecheck-fused": 6})
        self.assertEqual(tests, {**expected, "synccheck-fused": 6, "racecheck-cublas": 6})
        self.assertIn("CLAIMS: 25 shown, 2 refuted, 0 not measured", said)
        self.assertIn("REFUTED: host time per batch, loader with 8 workers", said)
        for line in (
            "reached       results of 64 KiB over plain copies to the host: 0.9706 (target 0.95)",
            "reached       graph of 19 us, fed / resident, depth 4: 1.005 (target 1.02)",
            "MISSED        upload with 8 workers over one pinned copy: 0.8 (target 0.95)",
            "reached       registered_memory over a pinned slab, 1 MB and above, worst: 0.9904 ",
            "reached       the example on plain MNIST, serial / overlapped: 1.6 (target 1.5)",
        ):
            self.assertIn(line, said)
        self.assertIn(f"STEPS: {len(STEPS)} passed, 0 partial, 0 left out, 0 not", said)
        self.assertIn("PCIe generation 5 at most, 5 while transferring, 1 before, width 16", said)
        self.assertIn("  sm_mhz: least 345, median 1162.5, most 1980", said)
        self.assertTrue(any(line.startswith("Linux ") for line in report["machine"]), said)
        self.assertIn("Stub GPU, driver 580.00, driver for CUDA 13.0, runtime 13.0", said)
        self.assertIn("accuracy, median of five seeds: 0.975 ", said)
        runs = [line[:14].strip() for line in said.splitlines() if " overlapped " in line]
        for name in (f"seed {n}" for n in range(1, 6)):
            self.assertEqual(runs.count(name), 1, said)
        self.assertEqual(report["commit"], "abc1234")
        self.assertEqual(report["pack"]["nvcc"], "13.0")
        # Checks that only a few files are written, so that a user can easily send them back.
        left = sorted(path.name for path in (self.place.folder / "out").iterdir())
        self.assertEqual(left, ["logs.txt", "report.json", "report.txt"])

    def packed(self, variable, program, arguments, first=""):
        """Replaces the stub of a program in the pack. Returns false if there is no such program."""
        path = os.environ.get(variable)
        if path:
            script = f'#!/bin/bash\n{first}\nexec "{path}" {arguments}\n'
            write(self.place.pack / "bin" / program, script)
        return bool(path)

    def test_the_whole_run_is_green_on_the_fake_runtime(self):
        """Runs all programs that the fake can run, with little work. Stubs replace the other
        programs."""
        measured = {
            name: self.packed(
                f"{name}_BENCH_ON_FAKE", f"penstock_cuda_{name.lower()}_bench", '--quick "$@"'
            )
            for name in ("TRANSFER", "GRAPH_WAIT")
        }
        few = "--samples 4 --batch 4 --test-samples 4 --epochs 1 --repeat 1 --no-costs"
        has_mlp = self.packed("MLP_ON_FAKE", "penstock_mlp_bench", f'"$@" {few}')
        self.packed("MLP_GPU_TESTS_ON_FAKE", "penstock_mlp_gpu_tests", "9 cublas")
        few = "--device cpu --samples 96 --epochs 1"
        self.packed("EXAMPLE", "penstock_mlp", f'"$@" {few}')
        few = """case $PENSTOCK_STEP in
          memcheck | initcheck) set -- "$@" '*is replayed*' ;;
          tests) set -- "$@" '~*large batch*' '~every bit pattern*' ;;  # tests/kernels runs them
        esac"""
        has_tests = self.packed("GPU_TESTS_ON_FAKE", "penstock_gpu_tests", '"$@"', few)
        # The fake is slower than a GPU, and other tests run at the same time.
        status, report, said = self.place.report(PENSTOCK_REPORT_SECONDS="3500")
        self.assertEqual(status, 0, said)
        self.assertNotIn("NOT MEASURED", said)
        if measured["TRANSFER"]:
            self.assertEqual(len(report["transfer"]["rows"]), 14)
            names = {row["name"] for row in report["results"]["rows"]}
            self.assertLessEqual({f"results, depth {n}" for n in (1, 2, 4, 8)}, names)
            names = {row["name"] for row in report["bulk"]["rows"]}
            self.assertLessEqual({f"upload by memcpy, {n} workers" for n in (2, 4, 8)}, names)
        if measured["GRAPH_WAIT"]:
            rows = report["graph_wait"]["rows"]
            failed = {row["name"].partition(",")[0] for row in rows if "failed" in row}
            # The fake changes no nodes of graphs, and its streams wait for no values.
            unknown = {"the graph waits", "the graph copies", "the stream waits for a value"}
            self.assertEqual(failed, unknown)
        counted = {s["name"]: s["tests"] for s in report["steps"]}
        if has_mlp:
            self.check_mlp(report)
            self.assertEqual(counted["mlp-tests"], 6)
            self.assertEqual(counted["racecheck-fused"], 6)
        if has_tests:
            self.assertGreaterEqual(counted["tests"], 15)
            self.assertIn(counted["initcheck"], range(1, 5))
            self.assertEqual(counted["memcheck"], counted["initcheck"])
            # The test of faults runs in a parent and a child.
            self.assertEqual((counted["tests-contract"], counted["tests-fault"]), (1, 2))

    def check_mlp(self, report):
        modes = {m["technique"] for m in report["mlp"]["modes"]["modes"]}
        self.assertEqual(modes, {"serial", "workers", "overlapped", "resident"})
        runs = dict(gpu_report.mlp_runs(report["mlp"]))
        seeds = [f"seed {n}" for n in range(1, 6)]
        self.assertEqual([name for name in runs if " " in name], seeds)
        found = {(f["device"]["kind"], f["complete"]) for f in runs.values()}
        self.assertEqual(found, {("cuda", True)})

    def test_a_pack_without_nccl_is_green_and_says_so(self):
        (self.place.pack / "bin" / "penstock_nccl_on_gpu").unlink()
        status, report, said = self.place.report()
        self.assertEqual(status, 0, said)
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(ended["nccl"], "left out")
        self.assertIn("LEFT OUT: nccl\n", said)

    def test_a_pack_without_nvimagecodec_is_green_and_says_so(self):
        (self.place.pack / "bin" / "penstock_nvimgcodec_gpu_tests").unlink()
        status, _, said = self.place.report()
        self.assertEqual(status, 0, said)
        self.assertIn("LEFT OUT: nvimgcodec\n", said)

    def test_its_steps_take_less_than_six_minutes(self):
        _, report, _ = self.place.report()
        self.assertLessEqual(sum(s["share"] for s in report["steps"]), 350)

    def test_what_is_run_is_what_was_meant(self):
        _, report, _ = self.place.report()
        commands = {s["name"]: s["command"] for s in report["steps"]}
        for name in ("tests", "memcheck", "initcheck"):
            self.assertIn(" ~[.] ~a GPU keeps the contract* ~a kernel fault*", commands[name])
        self.assertRegex(commands["memcheck"], "--tool memcheck --report-api-errors no")
        for name in ("memcheck-mlp", "racecheck-fused", "synccheck-fused", "racecheck-cublas"):
            tool, kernels = name.split("-")
            samples = 65 if tool == "racecheck" else 640
            arguments = "640" if kernels == "mlp" else f"{samples} {kernels}"
            program = "penstock_mlp_gpu_tests"
            self.assertRegex(commands[name], f"--tool {tool} .*/{program} {arguments}$")
            self.assertIn("--error-exitcode 1", commands[name])
        self.assertNotIn("--kernels", commands["mlp-wide"])
        sources = "".join(path.read_text() for path in (ROOT / "tests" / "gpu").glob("*_test.cpp"))
        for name in ("a GPU keeps the contract", "a kernel fault"):
            self.assertRegex(sources, rf'TEST_CASE\([ \n]*"{name}')

    def broken(self, breakages, **more):
        def one(breakage):
            with tempfile.TemporaryDirectory() as folder:
                return (breakage, *Place(folder).report(breakage, **more))

        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(one, breakages))

    def test_each_broken_step_stands_in_the_report(self):
        status, report, said = self.place.report(" ".join(f"{step}:fail" for step in STEPS))
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(status, 1)
        self.assertEqual(list(ended), STEPS)
        skipped = {name for name in STEPS if ended[name] != "failed: status 3"}
        self.assertEqual({ended[name] for name in skipped}, {"left out"}, said)
        self.assertLessEqual(skipped, {"racecheck-cublas"})

    def test_one_broken_step_makes_it_red_and_changes_no_other(self):
        some = ("smoke", "mlp-cublas", "mlp-seeds", "pytorch", "tests", "racecheck-cublas")
        for breakage, status, report, said in self.broken(f"{step}:fail" for step in some):
            step = breakage.split(":")[0]
            self.assertEqual(status, 1, breakage)
            ended = {s["name"]: s["ended"] for s in report["steps"]}
            self.assertEqual(ended[step], "failed: status 3", said)
            self.assertEqual(list(ended), STEPS)  # the other steps still ran
            others = {ended[name] for name in STEPS if name != step}
            without_cublas = {"passed", "left out"} if step == "mlp-cublas" else {"passed"}
            self.assertEqual(report["steps"][STEPS.index(step)]["said"], "", breakage)
            self.assertEqual(others, without_cublas, breakage)
            self.assertRegex(said, r"STEPS: \d+ passed, 0 partial, \d+ left out, 1 not")

    def test_an_example_that_compared_nothing_is_red(self):
        status, report, said = self.place.report("example:nothing")
        self.assertEqual(status, 1)
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(ended["example"], "failed: its loops were not compared", said)
        self.assertEqual(ended["example-augment"], "passed")

    def test_what_a_step_had_written_when_it_was_killed_is_kept(self):
        kept = [s for s in STEPS[1:] if s in (*gpu_report.BENCHES, "pytorch")
                or s.startswith("mlp-") and s not in ("mlp-tests", "mlp-cublas")]
        status, report, said = self.place.report(" ".join(f"{step}:killed" for step in kept))
        self.assertEqual(status, 1)
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual({ended[name] for name in STEPS if name not in kept}, {"passed"}, said)
        self.assertIn(f", {len(kept)} partial, ", said)
        for step in kept:
            self.assertRegex(ended[step], "^partial: (time limit|status 137)$", step)
            if not step.startswith("mlp-"):
                self.assertTrue(report[step.replace("-", "_")], step)
                continue
            found = report["mlp"][step[len("mlp-"):]]
            if isinstance(found, list):  # the runs before the kill
                self.assertEqual(len(found), 2, step)
                for name, _ in gpu_report.mlp_runs({step[len("mlp-"):]: found}):
                    self.assertIn(f"\n{name} ", said)
        self.assertIn("NOT MEASURED  accuracy", said)
        for breakage, status, report, said in self.broken(["mlp-cublas:killed", "mlp-wide:killed"]):
            step = breakage.split(":")[0]
            ended = {s["name"]: s["ended"] for s in report["steps"]}
            self.assertEqual(status, 1, said)
            self.assertRegex(ended[step], "^partial: (time limit|status 137)$")
            self.assertIn(", 1 partial, ", said)
            self.assertNotIn("NOT MEASURED  accuracy", said)

    def test_a_lost_context_and_failed_rows_stand_in_the_verdict(self):
        status, report, said = self.place.report("transfer:lost")
        self.assertEqual(status, 1)
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(ended["transfer"], "partial: the GPU's context was lost at tiny: calls by hand")
        self.assertIn("LOST CONTEXT: transfer, tiny: calls by hand\n", said)
        self.assertIn("FAILED: transfer, fed: the whole group: not tried\n", said)
        self.assertEqual(len(report["transfer"]["rows"]), len(transfer()["rows"]) + 1)

    def test_the_query_of_clocks_ends_with_the_report(self):
        self.place.report()
        query = int((self.place.stubs / "clocks.pid").read_text())
        with self.assertRaises(ProcessLookupError):
            os.kill(query, 0)

    def test_what_ends_well_and_did_nothing_is_red(self):
        cases = {
            "tests:nothing": "failed: no test ran",
            "mlp-tests:nothing": "failed: no test ran",
            "tests-fault:skip": "failed: skipped beside a GPU",
            "mlp-tests:skip": "failed: skipped beside a GPU",
            "transfer:nothing": "failed: no JSON",
            "bulk:cut-off": "failed: no JSON",
            "nccl:nothing": "failed: no test ran",
            "nccl:skip": "failed: skipped beside a GPU",
            "mlp-seeds:nothing": "failed: no JSON",
            "mlp-modes:host": "failed: not run on the GPU",
            "pytorch:skip": "failed: skipped beside a GPU",
            "torch:nothing": "failed: no test ran",
            "memcheck:unsupported": "failed: no test ran",
            "memcheck-mlp:untested": "failed: no test ran",
            "synccheck-fused:silent": "failed: no summary of the tool",
            "racecheck-fused:hazard": "failed: RACECHECK SUMMARY: 2 hazards",
            "tests:crash": "failed: status 139",
        }
        runs = []  # each run breaks a step
        for case in cases:
            step = case.split(":")[0] + ":"
            run = next((run for run in runs if not any(c.startswith(step) for c in run)), None)
            run.append(case) if run else runs.append([case])
        for breakages, status, report, said in self.broken(" ".join(run) for run in runs):
            self.assertEqual(status, 1, breakages)
            ended = {s["name"]: s["ended"] for s in report["steps"]}
            broken = {case.split(":")[0]: cases[case] for case in breakages.split()}
            for step in STEPS:
                self.assertTrue(ended[step].startswith(broken.get(step, "passed")), (step, said))

    def test_a_step_that_hangs_ends_with_its_time_and_the_next_ones_run_out_of_it(self):
        status, report, _ = self.place.report("mlp-tests:hang", PENSTOCK_REPORT_SECONDS="6")
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(status, 1)
        self.assertEqual(ended["mlp-tests"], "failed: time limit")
        self.assertEqual(ended["tests-fault"], "out of time")
        self.assertEqual(list(ended), STEPS)

    def test_a_program_that_is_not_there_is_red(self):
        (self.place.pack / "bin" / "penstock_mlp_gpu_tests").unlink()
        (self.place.pack / "bin" / "penstock_cuda_transfer_bench").unlink()
        status, report, said = self.place.report()
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(status, 1)
        self.assertEqual((ended["mlp-tests"], ended["transfer"]), ("missing", "missing"))
        self.assertEqual(ended["racecheck-fused"], "failed: status 127")
        self.assertIn("NOT MEASURED", said)

    def test_what_is_known_to_be_missing_can_be_left_out(self):
        (self.place.stubs / "compute-sanitizer").unlink()
        without = {"PENSTOCK_REPORT_WITHOUT": "sanitizer cublas nccl"}
        status, report, said = self.place.report("torch:none", **without)
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(status, 0, said)
        self.assertEqual(list(ended), STEPS)
        self.assertEqual((ended["pytorch"], ended["torch"]), ("absent", "absent"))
        self.assertRegex(said, "LEFT OUT: torch, nccl, mlp-cublas, ")
        for name in ("mlp-cublas", "racecheck-cublas", "racecheck-fused"):
            self.assertEqual(ended[name], "left out")
        commands = {s["name"]: s["command"] for s in report["steps"]}
        self.assertIn("--kernels fused", commands["mlp-wide"])

    def test_a_missing_sanitizer_is_red_unless_left_out(self):
        (self.place.stubs / "compute-sanitizer").unlink()
        if shutil.which("compute-sanitizer") or list(Path("/usr/local").glob("cuda*/*/compute-s*")):
            self.skipTest("this machine has one")
        status, report, _ = self.place.report()
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual((status, ended["memcheck"]), (1, "missing"))

    def test_what_an_earlier_run_has_left_is_no_result(self):
        self.assertEqual(self.place.report()[0], 0)
        steps = self.place.folder / "out" / "gpu_report_steps"
        write(steps / "transfer.json", json.dumps(transfer()), False)
        status, report, _ = self.place.report("transfer:nothing")
        self.assertEqual((status, report["transfer"]), (1, None))

    def test_without_a_gpu_it_measures_nothing(self):
        status, report, said = self.place.report("gpu:none")
        self.assertEqual((status, report), (2, None))
        self.assertIn("no GPU here", said)

    def test_a_pack_for_a_newer_c_library_is_rejected(self):
        write(self.place.pack / "pack.txt", "commit abc1234\nglibc 99.9\n", False)
        status, report, said = self.place.report()
        self.assertEqual((status, report), (2, None))
        self.assertIn("the pack needs glibc 99.9", said)

    def test_it_rejects_what_it_does_not_know(self):
        rejected = [[], ["--nonsense"], ["--packed", "/tmp"], ["a", "b"], ["--packed", "/no", "o"]]
        for words in rejected:
            self.assertEqual(self.place.run(*words)[0], 2, words)


class Building(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.place = Place(self.temporary.name)

    def test_all_targets_are_built_in_one_go_and_then_measured(self):
        status, report, said = self.place.report(packed=False)
        self.assertEqual(status, 0, said)
        self.assertEqual([s["name"] for s in report["steps"]], ["configure", "build", *STEPS])
        command = report["steps"][1]["command"]
        for target in PROGRAMS:
            self.assertIn(f" {target} ", command)
        self.assertRegex(command, " -- -k")
        self.assertIn("FETCHCONTENT_FULLY_DISCONNECTED=ON", report["steps"][0]["command"])

    def test_a_target_that_can_t_be_built_is_red_and_the_others_are_measured(self):
        status, report, _ = self.place.report("penstock_mlp_gpu_tests:absent", packed=False)
        ended = {s["name"]: s["ended"] for s in report["steps"]}
        self.assertEqual(status, 1)
        self.assertEqual(ended["build"], "failed: status 1")
        self.assertEqual(ended["build-penstock_mlp_gpu_tests"], "failed: status 1")
        self.assertEqual((ended["mlp-tests"], ended["tests"]), ("missing", "passed"))

    def test_build_alone_says_what_it_could_not_build(self):
        self.assertEqual(self.place.run("--build")[0], 0)
        shutil.rmtree(self.place.folder / "build")
        status, said = self.place.run("--build", BREAK="penstock_mlp_bench:absent")
        self.assertEqual(status, 1)
        self.assertIn("not built: penstock_mlp_bench\n", said)


class RealPrograms(unittest.TestCase):
    """Checks that the report can read the output of the programs."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.file = str(Path(self.temporary.name) / "found.json")

    def program(self, variable, *words):
        path = os.environ.get(variable)
        if not path:
            self.skipTest(f"no {variable}")
        subprocess.run([path, *words, "--json", self.file], check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(self.file).read_text())

    def report_of(self, **found):
        empty = {"gpu": {}, "mlp": {}, "example": {}, "machine": []}
        empty.update(transfer=None, pytorch=None)
        made = {**empty, "steps": [], "date": "", "commit": "", "command": "", "pack": {}}
        made.update(found)
        made["passed"] = False
        made["targets"] = [
            {"what": what, "value": value, "target": target, "met": True}
            for what, value, target, _ in gpu_report.targets_of(made)
        ]
        return made, "\n".join(gpu_report.lines_of(made))

    def test_a_group_by_itself_and_one_that_there_is_not(self):
        found = self.program("TRANSFER_BENCH_ON_FAKE", "--quick", "--group", "bulk")
        self.assertEqual({row["group"] for row in found["rows"]}, {"bulk"})
        words = [os.environ["TRANSFER_BENCH_ON_FAKE"], "--quick", "--group", "nonsense"]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no group nonsense", done.stderr)

    def test_transfer_bench_on_the_fake(self):
        found = self.program("TRANSFER_BENCH_ON_FAKE", "--quick")
        self.assertIsNone(gpu_report.wrong_with_json("transfer", found))
        # A step of the report has some of the groups.
        report, text = self.report_of(transfer=found, results=found, bulk=found, registered=found)
        measured = [t["value"] is not None for t in report["targets"]]
        expected = [True, False, True, True, False, *(3 * [True]), *(3 * [False])]
        self.assertEqual(measured, expected, text)

    def bench(self, fails="none:0", **more):
        """Returns rows, status and text of transfer_bench with a failing call on the fake runtime."""
        path = os.environ.get("TRANSFER_BENCH_ON_FAKE")
        if not path:
            self.skipTest("no TRANSFER_BENCH_ON_FAKE")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "found.json"
            done = subprocess.run(
                [path, "--quick", "--json", str(file)],
                env={**os.environ, "PENSTOCK_FAIL_CALL": fails, **more},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            return json.loads(file.read_text()), done.returncode, done.stdout

    @staticmethod
    def failed(found):
        return [row for row in found["rows"] if "failed" in row]

    @staticmethod
    def group_of(row):
        """Returns the measurement group of a row. A group may name its rows differently."""
        loads = row["name"].startswith("loader, ")
        return "loaders" if loads else row["group"]

    def measured(self, found, but_of=()):
        failed = self.failed(found)
        rows = [(self.group_of(r), r["name"], r["bytes"]) for r in found["rows"] if r not in failed]
        return [row for row in rows if row[0] not in but_of]

    def test_each_call_may_fail_once_and_ends_its_row_or_group_and_no_other(self):
        # Calls that cannot fail, because they do not call the driver or the program requires them.
        never = "cudaPeekAtLastError cudaGetLastError cudaInitDevice cudaGetDeviceCount"
        seen = {}
        listed = Path(f"{self.file}.calls")
        whole, status, said = self.bench(PENSTOCK_LIST_CALLS=str(listed))
        self.assertEqual((status, whole["complete"]), (0, True), said)
        self.assertEqual(self.failed(whole), [])
        calls = [line.split() for line in listed.read_text().splitlines()]
        calls = [(name, int(count)) for name, count in calls if name not in never.split()]
        with ThreadPoolExecutor(2) as pool:
            ran = pool.map(lambda call: self.bench(f"{call[0]}:{call[1] // 2}"), calls)
            for (call, _), (found, status, said) in zip(calls, ran):
                self.assertEqual((status, found["complete"]), (0, True), f"{call} {said}")
                seen[call] = self.check_failed(whole, found, call)
        self.assertGreater(len(seen), 30)
        for call in ("cudaHostAlloc", "cudaLaunchKernel", "cudaMalloc"):
            self.assertEqual(seen[call], 1)
        # If cudaHostRegister fails, the library allocates memory in another way.
        self.assertEqual(seen["cudaHostRegister"], 0)

    def check_failed(self, whole, found, call):
        """Checks that failed rows belong to one named group, and that other rows exist."""
        failed = self.failed(found)
        groups = {self.group_of(row) for row in failed}
        self.assertLessEqual(len(groups), 1, (call, failed))
        for row in failed:
            self.assertIn("NotSupported", row["failed"], call)
        self.assertEqual(self.measured(found, groups), self.measured(whole, groups), call)
        self.report_of(transfer=found)  # the report has a line for it
        return len(groups)

    def test_a_lost_context_is_named_and_what_was_measured_before_is_kept(self):
        before = 0
        listed = Path(f"{self.file}.calls")
        self.bench(PENSTOCK_LIST_CALLS=str(listed))
        calls = [line.split() for line in listed.read_text().splitlines()]
        # Calls that only read the last error cannot fail.
        calls = sum(int(count) for name, count in calls if not name.endswith("LastError"))
        for call in (100, calls // 3, 2 * calls // 3):
            found, status, said = self.bench(f"lost:{call}")
            self.assertEqual((status, found["complete"]), (3, False), said)
            self.assertIn("the GPU's context was lost", said)
            self.assertTrue(found["lost"])
            rows = [row for row in found["rows"] if "failed" not in row]
            self.assertGreater(len(rows) + 1, before, call)
            before = len(rows)
            last = found["rows"][-1]
            self.assertEqual((last["group"], last["name"]), ("bulk", "the whole group"))
            self.assertIsNone(gpu_report.wrong_with_json("transfer", found))
        self.assertGreater(before, 5)

    def test_an_mlp_that_is_killed_has_written_its_rows(self):
        path = os.environ.get("MLP")
        if not path:
            self.skipTest("no MLP")
        command = [path, "--device", "host", "--samples", "320", "--epochs", "1"]
        command += ["--repeat", "1000", "--json", self.file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, universal_newlines=True) as process:
            ran = (line for line in process.stdout if line.startswith("ran "))
            self.assertEqual([next(ran).split()[1], next(ran).split()[1]], ["serial:", "workers:"])
            process.kill()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        found = json.loads(Path(self.file).read_text())
        self.assertFalse(found["complete"])
        self.assertEqual([m["technique"] for m in found["modes"]][:2], ["serial", "workers"])
        self.assertGreaterEqual(gpu_report.rows_of(found), 2)

    def test_an_mlp_that_is_killed_has_written_the_experiments_before(self):
        path = os.environ.get("MLP")
        if not path:
            self.skipTest("no MLP")
        command = [path, "--device", "host", "--samples", "16", "--test-samples", "16"]
        command += ["--batch", "16", "--epochs", "1", "--mode", "serial", "--no-costs", "--seeds"]
        command += [",".join(map(str, range(1, 1000))), "--json", self.file]
        with subprocess.Popen(command, stdout=subprocess.PIPE, universal_newlines=True) as process:
            ran = (line for line in process.stdout if line.startswith("ran "))
            self.assertEqual([next(ran).split()[1] for _ in range(3)], ["serial:"] * 3)
            process.kill()
        self.assertEqual(process.returncode, -signal.SIGKILL)
        found = json.loads(Path(self.file).read_text())
        self.assertGreaterEqual(gpu_report.rows_of(found), 3)
        self.assertEqual([one["options"]["seed"] for one in found], [*range(1, len(found) + 1)])
        self.assertEqual({one["complete"] for one in found[:-1]}, {True})

    def mlp_on_fake(self, *words, fails="none:0", **more):
        """Returns experiments, status and text of the MLP with a failing fake runtime call."""
        path = os.environ.get("MLP_ON_FAKE")
        if not path:
            self.skipTest("no MLP_ON_FAKE")
        small = "--device cuda --samples 4 --test-samples 4 --batch 4 --epochs 1 --workers 1"
        small += " --kernels fused --no-costs"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "found.json"
            done = subprocess.run(
                [path, *small.split(), *words, "--json", str(file)],
                env={**os.environ, "PENSTOCK_FAIL_CALL": fails, **more},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            found = json.loads(file.read_text()) if file.exists() else []
            return gpu_report.found_by(found), done.returncode, done.stdout

    def calls_of_mlp(self, *words):
        """Returns the name and the call count of each function that can fail."""
        listed = Path(f"{self.file}.calls")
        found, status, said = self.mlp_on_fake(*words, PENSTOCK_LIST_CALLS=str(listed))
        self.assertEqual((status, [one["failed"] for one in found]), (0, [[]] * len(found)), said)
        calls = [line.split() for line in listed.read_text().splitlines()]
        never = "cudaPeekAtLastError cudaGetLastError cudaInitDevice cudaGetDeviceCount"
        return [(name, int(count)) for name, count in calls if name not in never.split()]

    def test_each_call_of_the_mlp_may_fail_once_and_ends_its_row_and_no_other(self):
        words = ["--mode", "overlapped", "--seeds", "1,2,3"]
        ended = set()
        calls = self.calls_of_mlp(*words)
        with ThreadPoolExecutor(2) as pool:
            ran = pool.map(
                lambda call: self.mlp_on_fake(*words, fails=f"{call[0]}:{call[1] // 2}"), calls
            )
            for (call, _), (found, status, said) in zip(calls, ran):
                seeds = [one["options"]["seed"] for one in found]
                self.assertGreaterEqual(len(seeds), 2, (call, said))
                self.assertEqual(status, 0 if len(seeds) == 3 else 1, (call, said))
                if len(seeds) == 2:
                    self.assertIn("NotSupported", said, call)
                    ended.add(call)
        self.assertGreater(len(ended), 10, ended)
        self.assertLessEqual({"cudaGraphLaunch", "cudaMalloc", "cudaEventRecord"}, ended)

    def test_a_mode_of_the_mlp_whose_call_fails_is_reported_and_the_others_are_measured(self):
        techniques = ["serial", "workers", "overlapped", "resident"]
        for call, count in self.calls_of_mlp():
            if call not in ("cudaGraphLaunch", "cudaStreamEndCapture", "cudaEventRecord"):
                continue
            (found,), status, said = self.mlp_on_fake(fails=f"{call}:{count // 2}")
            self.assertEqual((status, found["complete"]), (1, True), (call, said))
            (failed,) = found["failed"]
            self.assertIn("NotSupported", failed["why"])
            self.assertIn(f"{failed['what']}: ", said)
            left = [one for one in techniques if one != failed["what"]]
            self.assertEqual([m["technique"] for m in found["modes"]], left, call)
            rows = list(gpu_report.failed_rows({"mlp": {"modes": found}}))
            self.assertEqual(rows, [("mlp-modes", failed["what"], failed["why"])])

    def test_where_the_mlp_loses_the_context_its_rows_are_kept(self):
        for words in ([], ["--mode", "overlapped", "--seeds", "1,2,3"]):
            calls = sum(count for _, count in self.calls_of_mlp(*words))
            found, status, said = self.mlp_on_fake(*words, fails=f"lost:{2 * calls // 3}")
            self.assertEqual(status, 3, said)
            self.assertIn("the GPU's context was lost", said)
            self.assertGreaterEqual(len(found[0]["modes"]), 1, said)
            self.assertIn("device", found[0])

    def test_mlp(self):
        found = self.program("MLP", "--device", "host", "--samples", "320", "--epochs", "1")
        self.assertEqual(gpu_report.wrong_with_json("mlp-modes", found), "not run on the GPU")
        report, text = self.report_of(mlp={"modes": found})
        measured = [t["value"] is not None for t in report["targets"]]
        self.assertEqual(measured, 8 * [False] + [True, True, False], text)


# The part of PyTorch that bench/gpu_torch.py uses, on the fake CUDA runtime. Creating a tensor
# copies its bytes on the current stream and waits for the copy.
TORCH = r"""
import ctypes, math, os
if os.environ.get("NO_TORCH"):
    raise ImportError("none")
runtime = ctypes.CDLL(os.environ["FAKE_CUDA"])
uint8, __version__ = "uint8", "stand-in"


class Capsule(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("device", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


class Tensor:
    def __init__(self, data, shape, of=None):
        self.data, self.shape, self.of = data, shape, of

    def __del__(self):
        if self.of is not None:
            self.of.deleter(ctypes.addressof(self.of))

    def reshape(self, *shape):
        return Tensor(self.data, shape)

    def to(self, where):
        return self

    def __getitem__(self, rows):
        row = math.prod(self.shape[1:])
        part = self.data[rows.start * row : rows.stop * row]
        return Tensor(part, (len(part) // row, *self.shape[1:]))

    def __ne__(self, other):
        assert tuple(self.shape) == tuple(other.shape), (self.shape, other.shape)
        return Tensor([a != b for a, b in zip(self.data, other.data)], self.shape)

    def sum(self):
        return sum(self.data)


def frombuffer(data, dtype):
    return Tensor(bytes(data), (len(data),))


def from_dlpack(capsule):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    one = Capsule.from_address(get(capsule, b"dltensor"))
    assert (one.kind, one.device, one.code, one.bits, one.lanes) == (2, 0, 1, 8, 1)
    shape = one.shape[: one.ndim]
    here = ctypes.create_string_buffer(math.prod(shape))
    stream = ctypes.c_void_p(cuda.current)
    source = ctypes.c_void_p(one.data + one.offset)
    assert runtime.cudaMemcpyAsync(here, source, ctypes.c_size_t(len(here)), 4, stream) == 0
    assert runtime.cudaStreamSynchronize(stream) == 0
    return Tensor(here.raw, shape, one)


class cuda:
    current = 0

    class Stream:
        def __init__(self, handle=None):
            made = ctypes.c_void_p(handle)
            if handle is None:
                assert runtime.cudaStreamCreateWithFlags(ctypes.byref(made), 1) == 0
            self.cuda_stream = made.value or 0

    class stream:
        def __init__(self, to):
            self.to = to

        def __enter__(self):
            cuda.current = self.to.cuda_stream

        def __exit__(self, *_):
            cuda.current = 0

    default_stream = staticmethod(lambda: cuda.Stream(0))
    is_available = staticmethod(lambda: True)
    synchronize = staticmethod(lambda: None)
    _sleep = staticmethod(lambda cycles: None)
"""


class Torch(unittest.TestCase):
    def run_with(self, torch, **more):
        library = os.environ.get("TORCH_FEED_ON_FAKE")
        if not library:
            self.skipTest("no TORCH_FEED_ON_FAKE")
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "torch.py", torch, False)
            done = subprocess.run(
                [sys.executable, str(ROOT / "bench" / "gpu_torch.py"), library],
                env={**os.environ, "PYTHONPATH": folder, **more},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            return done.returncode, done.stdout

    def test_tensors_of_pytorch_have_the_feed_s_bytes(self):
        status, said = self.run_with(TORCH)
        self.assertEqual(status, 0, said)
        self.assertEqual(gpu_report.tests_of(said), 64)
        self.assertIn("a stream of its own: 32 batches, 0 bytes wrong", said)

    def test_a_wrong_byte_is_found(self):
        wrong = TORCH.replace("return Tensor(here.raw,", "return Tensor(bytes(1) + here.raw[1:],")
        status, said = self.run_with(wrong)
        self.assertEqual(status, 1, said)
        self.assertRegex(said, "64 comparisons, [1-9]")

    def test_without_pytorch_it_is_skipped_and_says_so(self):
        self.assertEqual(
            self.run_with(TORCH, NO_TORCH="1"), (77, "skipped: there is no PyTorch here\n")
        )


class Judging(unittest.TestCase):
    def test_only_what_passed_or_was_not_asked_for_is_accepted(self):
        def accepted(status):
            step = {"name": "a", "status": status, "expects": ["-"], "tests": None}
            return gpu_report.judged(step, "", None) in gpu_report.ACCEPTED

        for status in ("0", "absent", "left out"):
            self.assertTrue(accepted(status), status)
        for status in ("1", "77", "124", "137", "139", "missing", "out of time", ""):
            self.assertFalse(accepted(status), status)

    def test_tests_are_counted_in_what_catch2_says(self):
        for log, tests in (
            ("All tests passed (81 assertions in 5 test cases)", 5),
            ("All tests passed (1 assertion in 1 test case)\n", 1),
            ("test cases:  7 |  6 passed | 1 failed\nassertions: 9 | 8 passed", 7),
            ("===\nNo tests ran\n", 0),
            ("No test cases matched '~x'\nNo tests ran", 0),
            ("  fused, graphs\n18 comparisons, 0 failures", 18),
            ("All tests passed (0 assertions in 0 test cases)", 0),
            ("", 0),
        ):
            self.assertEqual(gpu_report.tests_of(log), tests, log)

    def test_the_smaller_floor_judges(self):
        for resident, one_batch, worse in ((1.01, 1.2, 1.2), (1.3, 1.0, 1.3), (1.0, None, None)):
            found = mlp()
            for mode in found["modes"]:
                mode.update(fed_over_resident=resident, fed_over_one_batch=one_batch)
            report = {"example": {}, "mlp": {"modes": found}}
            values = {what: value for what, value, *_ in gpu_report.targets_of(report)}
            self.assertEqual(values["fed / the smaller floor of the two"], worse)

    def test_targets_that_were_not_measured_make_it_red(self):
        with tempfile.TemporaryDirectory() as folder:
            steps = Path(folder) / "gpu_report_steps"
            write(steps / "steps.tsv", "pytorch\tabsent\t0\t0\tjson\tnone\n", False)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(gpu_report.main([folder]), 1)
            self.assertEqual((Path(folder) / "report.txt").read_text().count("NOT MEASURED"), 11)


class Packing(unittest.TestCase):
    def test_it_rejects_before_it_builds(self):
        script = str(ROOT / "bench" / "gpu_pack.sh")
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "mine.txt", "not a pack", False)
            for words in ([], ["--nonsense"], [folder], ["x", "--arch", "ninety"], ["x", "--arch"]):
                done = subprocess.run(
                    ["bash", script, *words], stderr=subprocess.PIPE, universal_newlines=True
                )
                self.assertEqual(done.returncode, 2, words)
                self.assertIn("gpu_pack: ", done.stderr)
            self.assertTrue((Path(folder) / "mine.txt").exists())


    def test_what_is_packed_runs_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            stubs, mnist, pack = folder / "stubs", folder / "mnist", folder / "pack"
            compiler = os.environ.get("CXX_COMPILER") or shutil.which("c++")
            if not compiler or not shutil.which("readelf"):
                self.skipTest("no compiler")
            for name, rpath in (("good", "$ORIGIN/../lib"), ("bad", "/nowhere")):
                subprocess.run(
                    [compiler, "-x", "c++", "-", "-o", str(folder / name), f"-Wl,-rpath,{rpath}"],
                    input=b"#include <iostream>\nint main() { std::cout << 1; }",
                    check=True,
                )
            write(stubs / "cmake", PACK_CMAKE)
            write(stubs / "ccache", "#!/bin/bash\nexit 1\n")
            write(stubs / "nvcc", '#!/bin/bash\n[ "$1" = -x ] && echo 13 || echo release 13.0\n')
            for part in ("train", "t10k"):
                for kind in ("images-idx3", "labels-idx1"):
                    suffix = ".gz" if part == "train" else ""
                    write(mnist / f"{part}-{kind}-ubyte{suffix}", "digits", False)
            environment = {**os.environ, "PATH": f"{stubs}:{os.environ['PATH']}"}
            environment.update(MNIST_DIR=str(mnist), PROGRAM=str(folder / "good"))
            script = str(ROOT / "bench" / "gpu_pack.sh")
            words = ["--build", str(folder / "build"), "--arch", "80,90", str(pack)]

            def run(**more):
                return subprocess.run(
                    ["bash", script, *words],
                    env={**environment, **more},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    universal_newlines=True,
                )

            done = run()
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("-DCMAKE_CUDA_ARCHITECTURES=80-real;90\n", done.stdout)
            without = ("penstock_nccl_on_gpu", "penstock_nvimgcodec_gpu_tests")  # not found here
            packed = sorted(name for name in PROGRAMS if name not in without)
            self.assertEqual(sorted(p.name for p in (pack / "bin").iterdir()), packed)
            libraries = " ".join(path.name for path in (pack / "lib").iterdir())
            self.assertIn("libstdc++", libraries)
            self.assertNotIn("libc.so", libraries)
            self.assertEqual(len(list((pack / "mnist").glob("*.gz"))), 4)
            facts = (pack / "pack.txt").read_text()
            for fact in ("cublas libcublas.so.13", "architectures 80-real;90", "data MNIST"):
                self.assertIn(fact, facts)
            for name in ("gpu_report.sh", "gpu_report.py", "gpu_torch.py", "pytorch_mnist.py"):
                self.assertTrue((pack / name).exists(), name)
            self.assertEqual(run().returncode, 0)  # replaces an earlier pack

            done = run(PROGRAM=str(folder / "bad"))
            self.assertEqual(done.returncode, 2)
            self.assertIn("does not look into lib", done.stdout)
            with open(mnist / "train-images-idx3-ubyte.gz", "wb") as file:
                file.truncate(56_000_000)
            done = run()
            self.assertEqual(done.returncode, 2)
            self.assertIn("more than 55 MB", done.stdout)


class Fetching(unittest.TestCase):
    def test_system_stands_before_the_url(self):
        declared = 0
        modules = (ROOT.glob(f"{room}/*.cmake") for room in ("cmake", "tests/cmake", "bench/cmake"))
        for path in (path for room in modules for path in room):
            for call in re.findall(r"FetchContent_Declare\(([^)]*)\)", path.read_text()):
                declared += 1
                words = call.split()
                if "SYSTEM" in words:  # otherwise CMake 3.25 reads it as a second URL
                    self.assertLess(words.index("SYSTEM"), words.index("URL"), path.name)
        self.assertGreaterEqual(declared, 4)

    def test_without_catch2_and_network_the_rest_is_configured(self):
        if not os.environ.get("CMAKE"):
            self.skipTest("no CMAKE")
        with tempfile.TemporaryDirectory() as folder:
            hidden = [
                f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON"
                for name in ("Catch2", "benchmark", "nlohmann_json")
            ]
            options = ["-DFETCHCONTENT_FULLY_DISCONNECTED=ON", "-DPENSTOCK_BUILD_CUDA=OFF"]
            done = subprocess.run(
                [os.environ["CMAKE"], "-S", str(ROOT), "-B", folder, *hidden, *options],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                universal_newlines=True,
            )
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("penstock: no tests: there is no Catch2", done.stdout)


if __name__ == "__main__":
    unittest.main()
