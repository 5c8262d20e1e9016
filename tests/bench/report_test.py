# SPDX-License-Identifier: BSL-1.0
"""bench/report.py on results that are made up, and what the scripts beside it refuse."""

import contextlib
import copy
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import report  # noqa: E402
from reporting import drawing as svg, results as figures  # noqa: E402


def spread(value, apart=0.02):
    return {"median": value, "min": value * (1 - apart), "max": value * (1 + apart)}


def queue_bench():
    rows, goals = [], []
    for capacity in (16, 1024):
        for threads in (1, 2, 4, 8):
            shape = f"producers:{threads}/consumers:{threads}/capacity:{capacity}"
            for i, name in enumerate(("batch_queue", "boost_queue", "mutex_cv", "tbb_bounded")):
                speed = 1e7 / (1 + i / 50) / threads  # close: labels have to make room
                row = {"name": f"{name}/{shape}", "repetitions": 9}
                row.update(nanoseconds=spread(1e9 / speed), items_per_second=spread(speed))
                rows.append(row)
            goal = {"name": f"batch_queue/{shape}", "floor": f"boost_queue/{shape}"}
            goal.update(compares="speed", at_least=1, ratio=2.0, noisy=False, met=True)
            goals.append(goal)
    rows.append({"name": "moodycamel", "repetitions": 0, "left_out": "not installed | <here>"})
    return {"program": "batch_queue_bench", "rows": rows, "goals": goals}


def overlap_bench():
    rows = []
    for load in (1, 3, 10):
        for copied in (1, 3, 10):
            for computed in (1, 3, 10):
                times = {"load_us": load, "copy_us": copied, "compute_us": computed}
                times["bound_us"] = max(times.values())
                times["achieved_us"] = times["bound_us"] * 1.01
                times["serial_us"] = load + copied + computed
                counters = {key: spread(100.0 * value, 0) for key, value in times.items()}
                name = f"overlapped/load:{load}/copy:{copied}/compute:{computed}/workers:1"
                row = {"name": name, "repetitions": 9, "counters": counters}
                rows.append({**row, "nanoseconds": spread(1e5 * times["achieved_us"])})
    return {"program": "overlap_bench", "rows": rows, "goals": []}


def training():
    modes = [
        {"technique": name, "seconds": seconds, "seconds_of_runs": [seconds, seconds * 1.01]}
        for name, seconds in (("serial", 2.0), ("overlapped", 1.05), ("resident", 1.0))
    ]
    costs = {"bound": 200, "bound_by": "compute"}
    return {
        "data": {"name": "drawn digits"},
        "modes": modes,
        "options": {"epochs": 5},
        "batches_per_epoch": 938,
        "batch_microseconds": costs,
    }


def compare():
    def row(name, speed):
        counters = {"cpu_seconds": spread(3.0), "peak_mib": spread(512.0)}
        return {"name": name, "items_per_second": spread(speed), "counters": counters}

    rows = [row("penstock/workers:1", 7.7e6), row("a_loader_with_a_long_name/workers:12", 4e4)]
    return {"program": "compare", "rows": rows, "goals": []}


def results():
    return {
        "date": "2026-01-02T03:04:05Z",
        "commit": "abc1234",
        "dirty": True,
        "command": "bash bench/run.sh",
        "machine": {"cpu": "A <fast> & wide CPU", "cores": 4, "governor": "performance"},
        "steps": [
            {"name": "compare", "ended": "failed: status 3", "seconds": 1, "command": "compare"}
        ],
        "programs": {
            "batch_queue_bench": queue_bench(),
            "overlap_bench": overlap_bench(),
            "mlp": training(),
            "compare": compare(),
        },
    }


class Written:
    """What report.py makes of some results: its table, its plots, what it said."""

    def __init__(self, found):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "some.json"
            file.write_text(json.dumps(found))
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                self.status = report.main([str(file)])
            self.said = said.getvalue()
            self.table = (Path(folder) / "some.md").read_text()
            self.plots = {
                path.name.split(".")[1]: path.read_text() for path in Path(folder).glob("*.svg")
            }


RATIOS = "ratios-batch_queue_bench"
SVG = "{http://www.w3.org/2000/svg}"


def boxes_of(drawing):
    """(left, top, right, bottom, text) of each text, by the estimate for the widest font."""
    for node in xml.fromstring(drawing).iter(SVG + "text"):
        kinds = node.get("class", "").split()
        size = 17 if "title" in kinds else 12 if "small" in kinds else 13
        width = svg.text_width(node.text, size)
        x, y = float(node.get("x")), float(node.get("y"))
        x -= {"end": width, "middle": width / 2}.get(node.get("text-anchor"), 0)
        yield x, y - 0.75 * size, x + width, y + 0.2 * size, node.text


class Plots(unittest.TestCase):
    def test_each_plot_is_drawn_from_rows_of_its_program(self):
        whole = Written(results())
        ratios = {f"ratios-{name}" for name in ("batch_queue_bench", "mlp")}
        self.assertEqual(set(whole.plots), {*ratios, "queue", "overlap", "loaders"})
        for program, plot in (
            ("batch_queue_bench", "queue"),
            ("overlap_bench", "overlap"),
            ("compare", "loaders"),
        ):
            less = results()
            del less["programs"][program]
            written = Written(less)
            self.assertEqual(written.status, 0)
            self.assertNotIn(plot, written.plots)
            self.assertIn(f"No plot `{plot}`", written.table)
            self.assertIn(f"no plot {plot}", written.said)

    def test_results_without_rows_make_a_table_that_says_so(self):
        found = results()
        found["programs"] = {}
        written = Written(found)
        self.assertEqual((written.status, written.plots), (0, {}))
        self.assertEqual(written.table.count("No plot"), 4)

    def test_texts_lie_inside_and_apart(self):
        for plot, drawing in Written(results()).plots.items():
            boxes = list(boxes_of(drawing))
            self.assertGreater(len(boxes), 5)
            height = float(xml.fromstring(drawing).get("height"))
            for left, top, right, bottom, text in boxes:
                self.assertTrue(left >= 0 and right <= 880, f"{plot}: {text} is cut off")
                self.assertTrue(top >= 0 and bottom <= height, f"{plot}: {text} is cut off")
            for i, one in enumerate(boxes):
                for other in boxes[i + 1 :]:
                    apart = one[2] <= other[0] or other[2] <= one[0]
                    apart = apart or one[3] <= other[1] or other[3] <= one[1]
                    self.assertTrue(apart, f"{plot}: {one[4]} and {other[4]} overlap")

    def test_light_and_dark_and_no_text_below_12_px(self):
        for drawing in Written(results()).plots.values():
            self.assertIn("@media (prefers-color-scheme:dark)", drawing)
            sizes = [int(size) for size in re.findall(r"(?:font:|font-size:)(\d+)px", drawing)]
            self.assertGreaterEqual(min(sizes), 12)
            self.assertNotIn("<script", drawing)

    def test_a_bar_is_as_long_as_its_ratio_says(self):
        def bar(ratio):
            found = results()
            found["programs"] = {"batch_queue_bench": queue_bench()}
            for goal in found["programs"]["batch_queue_bench"]["goals"]:
                goal["ratio"] = ratio
            # Another goal keeps the axis the same.
            wide = {"name": "a", "floor": "b", "compares": "speed", "at_least": 1, "ratio": 16}
            found["programs"]["batch_queue_bench"]["goals"].append({**wide, "met": True})
            drawing = xml.fromstring(Written(found).plots[RATIOS])
            bars = [one for one in drawing.iter(SVG + "rect") if one.get("class") == "good"]
            return float(bars[0].get("width"))

        self.assertAlmostEqual(bar(4) / bar(2), 2, places=2)

    def test_ratios_beyond_the_axis_are_drawn_on_its_edge(self):
        found = results()
        goals = found["programs"]["batch_queue_bench"]["goals"]
        for ratio, bound in ((0, 1), (0.001, 2), (500, 50)):
            goal = {"name": f"of/a:{ratio}", "floor": f"of/a:{bound}", "compares": "speed"}
            goals.append({**goal, "at_least": bound, "ratio": ratio, "met": ratio > 1})
        drawing = xml.fromstring(Written(found).plots[RATIOS])
        for bar in drawing.iter(SVG + "rect"):
            if bar.get("x"):
                self.assertGreaterEqual(float(bar.get("x")), 372)
                self.assertLessEqual(float(bar.get("x")) + float(bar.get("width")), 690.1)
        texts = [node.text for node in drawing.iter(SVG + "text")]
        for said in ("0x", "< 0.01x", "500x", "of, a 500", "over of, a 50"):
            self.assertIn(said, texts)

    def test_the_worst_of_the_shapes_is_the_bar(self):
        found = results()
        goals = found["programs"]["batch_queue_bench"]["goals"]
        goals[3].update(ratio=0.5, met=False)
        drawing = Written(found).plots[RATIOS]
        self.assertIn("over boost_queue, worst of 8, 1 missed", drawing)
        self.assertIn(">0.500x<", drawing)
        self.assertIn(">missed<", drawing)

    def test_noisy_goals_are_marked_in_table_and_plot(self):
        self.assertNotIn("noisy<", Written(results()).plots[RATIOS])
        found = results()
        for goal in found["programs"]["batch_queue_bench"]["goals"]:
            goal["noisy"] = True
        written = Written(found)
        self.assertIn(">met, noisy<", written.plots[RATIOS])
        self.assertIn('class="good pale"', written.plots[RATIOS])  # met or missed is still seen
        self.assertIn("**met, noisy**", written.table)
        self.assertIn("8 of these verdicts are noisy", written.table)


class Table(unittest.TestCase):
    def test_it_says_what_was_run_and_where(self):
        table = Written(results()).table
        for said in ("abc1234, with changes that are not committed", "governor performance"):
            self.assertIn(said, table)
        self.assertIn("`compare` failed: status 3.", table)
        self.assertIn("left out: not installed \\| <here>", table)

    def test_training_is_judged_like_the_rest(self):
        self.assertIn("an epoch of drawn digits", Written(results()).table)
        self.assertIn(
            "| overlapped | resident | time | 1.050 | at most 1.02 | **missed** |",
            Written(results()).table,
        )

    def test_goals_that_were_not_measured_or_are_differences(self):
        found = results()
        found["programs"] = {"instructions": {"program": "instructions"}}
        found["programs"]["instructions"]["rows"] = [
            {"name": "worker/batch:64", "instructions_per_batch": 640, "threads": {"worker": 600}}
        ]
        goal = {"name": "worker/batch:64", "floor": "plain/batch:64", "at_most": 60}
        found["programs"]["instructions"]["goals"] = [
            {**goal, "difference": 12.5, "met": True},
            {**goal, "ratio": None},
        ]
        table = Written(found).table
        self.assertIn("| 12.5", table)
        self.assertIn("| at most 60 | not measured |", table)
        self.assertIn("instructions per batch 640; worker 600", table)
        self.assertIn("1 of 2 targets met, 0 missed, 1 not measured", table)

    def test_short_numbers(self):
        for value, said in ((1234567.0, "1,234,567"), (0.98765, "0.988"), (12.345, "12.35")):
            self.assertEqual(figures.number(value), said)
        self.assertEqual(figures.time_of(1.5e6), "1.50 ms")
        self.assertEqual(figures.rate_of(7.7e6), "7.70 M/s")


class Merging(unittest.TestCase):
    def merged(self, folder, steps, files):
        work = Path(folder) / "work"
        work.mkdir(exist_ok=True)
        (work / "steps.tsv").write_text(steps)
        for name, text in files.items():
            (work / name).write_text(text)
        known = {"began": "2026-01-02T03:04:05Z", "commit": "abc", "dirty": "null"}
        known.update(load_before="0.5", compiler="a compiler", command_line="bash bench/run.sh ")
        before = copy.copy(os.environ)
        said = io.StringIO()
        try:
            os.environ.update(known)
            with contextlib.redirect_stdout(said):
                self.assertEqual(report.main(["--merge", str(work), folder]), 0)
        finally:
            os.environ.clear()
            os.environ.update(before)
        return Path(said.getvalue().strip())

    def test_one_file_out_of_all_and_never_over_another_one(self):
        steps = "a\tpassed\t3\tprogram a\nb\tpassed\t4\tprogram b\nc\tskipped: no c\t0\tc\n"
        files = {"a.json": '{"rows": []}', "b.json": "{cut off"}
        with tempfile.TemporaryDirectory() as folder:
            first = self.merged(folder, steps, files)
            second = self.merged(folder, steps, files)
            self.assertNotEqual(first, second)
            self.assertRegex(first.name, r"^2026-01-02-[a-z0-9-]+-abc\.json$")
            found = json.loads(first.read_text())
            self.assertEqual(list(found["programs"]), ["a"])
            ended = {step["name"]: step["ended"] for step in found["steps"]}
            self.assertEqual((ended["a"], ended["c"]), ("passed", "skipped: no c"))
            self.assertTrue(ended["b"].startswith("failed: its JSON can't be read"))
            self.assertEqual(found["machine"]["load_before"], 0.5)


class Refusals(unittest.TestCase):
    def refused(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        return done.returncode, done.stderr

    def test_report_refuses_what_is_no_result(self):
        program = [sys.executable, "bench/report.py"]
        self.assertEqual(self.refused(*program)[0], 2)
        self.assertEqual(self.refused(*program, "--nonsense")[0], 2)
        self.assertEqual(self.refused(*program, "absent.json")[0], 1)
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "[]", "{}", '{"programs": 3}'):
                file = Path(folder) / "bad.json"
                file.write_text(text)
                status, said = self.refused(*program, str(file))
                self.assertEqual(status, 1, text)
                self.assertIn("bad.json", said)
                self.assertEqual(len(said.splitlines()), 1)

    def test_run_refuses_unknown_words_before_it_does_anything(self):
        for words in (["--nonsense"], ["--only"], ["--only", "no_such_bench"], ["--out"]):
            status, said = self.refused("bash", "bench/run.sh", *words)
            self.assertEqual(status, 2, words)
            self.assertIn("run.sh: ", said)

    def test_compile_cost_refuses_a_compiler_that_is_not_there(self):
        program = [sys.executable, "bench/compile_cost.py"]
        self.assertIn("not installed: no-such", self.refused(*program, "--cxx", "no-such")[1])
        self.assertEqual(self.refused(*program, "--repeat", "0")[0], 2)


if __name__ == "__main__":
    unittest.main()
