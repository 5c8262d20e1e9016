# SPDX-License-Identifier: BSL-1.0
"""The test docs/figures: every figure of a page is in the run that the page links to.

    figures.py <the repository>

A figure is a number with a unit in prose, or any number in a table outside of the first column and
of the columns `aim` and `why`. Its sources are the files of bench/results that its paragraph, list
item or table row links to. Without such a link, its sources are the files that the section has
linked to so far. Without these, its source is the source of the page: docs/benchmarks.md for the
README, and for that page the report from which its chart of loaders is drawn. A page without a
source has no figures. A link may end with lines, #L20-L28. Then the figure must be in these lines.

The source must have a number with the same unit or without a unit that rounds to the shown digits.
A number without a unit may differ by a power of 1,000, or be the share for a percentage. A comment
below the paragraph or table explains a computed figure. Its operands must be in a source exactly as
they are written, or be powers of ten. The result may differ by a power of 1,000:

    <!-- computed: 138 = 1,299,821 / 9,409; 0.63 = 3.08 / 4.89 -->

A report in JSON has too many numbers for a search. Its figures must be in one of the texts below,
which contain figures of the report. Each of these texts must be in its page.
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
        """Returns samples per second of the fastest setting of a loader."""
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
        """Returns the ratio of a goal. `floor` names the fastest peer that lacks the setting."""
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
    """Returns the medians of each part of the main example, from its newest result file."""
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


def loader_texts(run):
    single, batched = run.speed("DataLoader"), run.speed("DataLoader_batched")
    yield (
        f"a plain C++ loop {short(run.speed('plain_loop'))}, penstock "
        f"{short(run.speed('penstock'))}, libtorch batched {short(run.speed('libtorch_batched'))}"
    )
    yield f"DataLoader {short(batched)} batched and {short(single)} per sample"
    yield f"DALI on the CPU {short(run.speed('DALI_cpu'))}"


def benchmark_texts(run):
    yield from loader_texts(run)
    programs = programs_of(run.report)
    counts = re.findall(r"\d+", summary(run.report, programs))
    yield f"{counts[0]} of {counts[1]} targets were met; {counts[3]} of the verdicts are *noisy*"
    for found in programs.values():
        for goal in found.get("goals") or []:
            if goal.get("met") is False:
                yield f" | {goal['ratio']:.3f} | "
    yield loop_row(run, "serial", "serial")
    yield loop_row(run, "workers, blocking copy", "workers")
    yield loop_row(run, "**overlapped**", "overlapped")
    yield loop_row(run, "resident, the floor", "resident")
    plain = [run.microseconds("mlp", part) for part in ("load", "compute")]
    yield f"costs {plain[0]:.1f} us to read beside a step of {plain[1]:.0f} us"
    right = [100 * run.loop(of, "overlapped")["test_accuracy"] for of in ("mlp", "mlp_augment")]
    yield f"is {right[0]:.1f} %, with the warp {right[1]:.1f} %"
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
    yield f"no workers | **{short(ours)}** |"
    yield f"A batch costs {64e6 / ours:.0f} us here"
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
    yield f"The {' and '.join(f'{trained / peer:.1f}x' for peer in peers)} in training"
    resident = [run.speed(f"train_{name}_resident") for name in ("penstock", "PyTorch")]
    factor = f"{resident[0] / resident[1]:.1f}x"
    yield f"| {'; '.join(map(thousands, resident))} | {factor} |"
    yield f"in training include {factor}, which the network itself gains"
    worst = max(goal["ratio"] for goal in run.programs["overlap_bench"]["goals"])
    yield f"worst {worst:.3f}"
    pairs = (
        (
            run.ratio("loader_bench", f"loader/{kind}/workers:0", f"floor_inline/{kind}"),
            run.ratio("loader_bench", f"loader/{kind}/workers:1", f"floor_hand_off/{kind}"),
        )
        for kind in ("float", "byte")
    )
    yield f"| {'; '.join(f'{inline:.2f}, {worker:.2f}' for inline, worker in pairs)} | >= 0.90, "


def tuning_texts(run):
    millions = [run.row(f"penstock/workers:{workers}") / 1e6 for workers in (0, 1, 2)]
    yield f"{millions[0]:.1f} with none, {millions[1]:.1f} with one, {millions[2]:.1f} with two"


TEXTS = {
    "README.md": lambda _: example_texts(),
    "docs/benchmarks.md": benchmark_texts,
    "docs/tuning.md": tuning_texts,
}

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[-+]?\d+)?"
# For each unit, its kind and its factor to the base unit of that kind.
UNITS = {"%": ("share", 0.01), "x": ("ratio", 1), "times": ("ratio", 1)}
UNITS |= {"ns": ("s", 1e-9), "us": ("s", 1e-6), "ms": ("s", 1e-3), "s": ("s", 1)}
UNITS |= {"second": ("s", 1), "seconds": ("s", 1), "min": ("s", 60), "minutes": ("s", 60)}
UNITS |= {"million": ("count", 1e6), "k": ("count", 1e3), "M": ("count", 1e6), "G": ("count", 1e9)}
UNITS |= {"B": ("byte", 1), "kB": ("byte", 1e3), "MB": ("byte", 1e6), "GB": ("byte", 1e9)}
UNITS |= {"KiB": ("byte", 2**10), "MiB": ("byte", 2**20), "GiB": ("byte", 2**30)}
# The x of "28 x 28" is no unit.
UNIT = rf"(?:{'|'.join(sorted(UNITS, key=len, reverse=True))})(?!\w|(?<=x) \d)"
IN_SOURCE = re.compile(rf"(?<![\w.:-])({NUMBER}) ?({UNIT})?")
# The numbers of a list share the unit after the last number. A table may omit the unit.
LIST = r" ?(?:;|,|/|and|to|or|against) "
FIGURES = re.compile(
    rf"(?<![\w.,:/^-])((?:(?:{NUMBER}){LIST})*(?:{NUMBER}))(?: ?({UNIT})|(?!\w|[.,/]\d))"
)
LINK = re.compile(r"bench/results/[\w.-]+\.\w+(?:#L\d+(?:-L\d+)?)?|benchmarks\.md")
COMPUTED = re.compile(rf"({NUMBER}) = ({NUMBER}) ([-+*/]) ({NUMBER})")


def value_of(text):
    return float(text.replace(",", ""))


def step_of(text):
    """Returns the value of the last shown digit: 0.01 for 1.81, 100 for 185,900, 1 for 100."""
    whole, _, decimals = text.partition(".")
    if decimals:
        return 10.0 ** -len(decimals)
    digits = whole.replace(",", "")
    return 10.0 ** (len(digits) - len(digits.rstrip("0"))) if "," in whole else 1.0


class Source:
    """The numbers of a file, each with its unit or None."""

    def __init__(self, text):
        self.numbers = {(value_of(n), unit or None) for n, unit in IN_SOURCE.findall(text)}
        self.texts = set(re.findall(rf"(?<![\w.,])(?:{NUMBER})", text))

    def has(self, text, unit):
        shown, half = value_of(text), step_of(text) / 2 * (1 + 1e-9)
        for value, other in self.numbers:
            if unit and other:
                (kind, size), (other_kind, other_size) = UNITS[unit], UNITS[other]
                is_same = kind == other_kind or (kind, other_kind) == ("byte", "count")
                factors = [other_size / size] if is_same else []
            elif unit == "%":
                factors = [100]
            elif unit and UNITS[unit][0] != "ratio":
                factors = [1e-9, 1e-6, 1e-3, 1, 1e3, 1e6]
            else:
                factors = [1]
            if any(abs(value * factor - shown) <= half for factor in factors):
                return True
        return False


def is_computed(result, left, operator, right):
    """Returns whether the result of an operation is the shown value, or that value times a power of
    1,000."""
    a, b = value_of(left), value_of(right)
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else 0}[operator]
    shown, half = value_of(result), step_of(result) / 2 * (1 + 1e-9)
    return any(abs(value * 10.0**e - shown) <= half for e in (-9, -6, -3, 0, 3, 6))


def blocks_of(text):
    """Returns each heading, paragraph, list item and table as numbered lines."""
    blocks, in_code, is_open = [], False, False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("```"):
            in_code, is_open = not in_code, False
        elif in_code or not line.strip():
            is_open = False
        else:
            starts = line.lstrip().startswith(("- ", "#", "<!--"))
            if not is_open or starts or line.startswith("|") != blocks[-1][0][1].startswith("|"):
                blocks.append([])
            blocks[-1].append((number, line))
            is_open = not line.startswith("#")
    return blocks


def plain(line):
    """Returns a line without addresses, emphasis and aims."""
    line = re.sub(r"\]\([^)]*\)|\*\*", " ", line)
    return re.sub(r"\(aim[^)]*\)|[<>]= ?[\d.]+", "", line)


def rows_of(block):
    """Returns the rows of a table without headings, first cells, and the columns `aim` and `why`.
    Returns any other block as a whole. Each result has the number of its first line."""
    if not block[0][1].startswith("|"):
        return [(block[0][0], " ".join(line.strip() for _, line in block))]
    heads = [head.strip() for head in block[0][1].strip("|").split("|")]
    skipped = {0, *(i for i, head in enumerate(heads) if head in ("aim", "why"))}
    return [(number, line, skipped) for number, line in block[2:]]


def figures_of(row, skipped=None):
    """Returns each number in a row or in prose, with its unit as written."""
    if skipped is None:
        found = (match for match in FIGURES.finditer(plain(row)) if match[2])
    else:
        cells = enumerate(row.strip("|").split("|"))
        kept = [plain(cell) for i, cell in cells if i not in skipped]
        found = (match for cell in kept for match in FIGURES.finditer(cell))
    for match in found:
        for figure in re.findall(NUMBER, match[1]):
            yield figure, match[2] or ""


class Checker:
    def __init__(self, root):
        self.root, self.sources, self.count = root, {}, 0
        page = (root / "docs/benchmarks.md").read_text(encoding="utf-8")
        run = re.search(r"bench/results/\S+\.json", page)[0]
        self.page_sources = {"README.md": ["docs/benchmarks.md"], "docs/benchmarks.md": [run]}
        self.texts = {page: list(texts(Run(root / run))) for page, texts in TEXTS.items()}

    def source(self, name):
        if name not in self.sources:
            path, _, lines = name.partition("#L")
            text = (self.root / path).read_text(encoding="utf-8")
            if lines:
                first, _, last = lines.partition("-L")
                text = "\n".join(text.splitlines()[int(first) - 1 : int(last or first)])
            self.sources[name] = Source(text)
        return self.sources[name]

    def is_right(self, figure, unit, names, computed):
        sources = [self.source(name) for name in names if not name.endswith(".json")]
        if any(source.has(figure, unit) for source in sources):
            return True
        known = set().union(*(source.texts for source in sources))
        return any(
            all(one in known or re.fullmatch("10+", one) for one in (left, right))
            and is_computed(result, left, operator, right)
            for result, left, operator, right in computed
            if result == figure
        )

    def problems_of(self, page, text):
        texts = self.texts.get(page, [])
        flat = " ".join(text.split())
        self.count += len(texts)
        yield from (f"{page} does not say: {one}" for one in texts if one not in flat)
        section = []
        blocks = blocks_of(text)
        for block, below in zip(blocks, [*blocks[1:], [(0, "")]]):
            whole = " ".join(line.strip() for _, line in block)
            if whole.startswith("#"):
                section = []
            if whole.startswith(("#", "<!--")):
                continue  # skips headings and comments
            own = self.links(page, whole)
            section += own
            note = " ".join(line.strip() for _, line in below)
            computed = COMPUTED.findall(note) if note.startswith("<!-- computed:") else []
            for first, row, *skipped in rows_of(block):
                names = (self.links(page, row) if skipped else own) or section
                names = names or self.page_sources.get(page, [])
                for one in texts:  # the figures of these texts are checked
                    row = row.replace(one, re.sub(r"\d", "_", one))
                for figure, unit in figures_of(row, *skipped) if names else []:
                    self.count += 1
                    if not self.is_right(figure, unit, names, computed):
                        rest = [n for n, line in block if n >= first and figure in line]
                        at = f"{page}:{(rest or [first])[0]}"
                        wanted = ", ".join(dict.fromkeys(names))
                        yield f"{at}: {figure} {unit}".rstrip() + f" is not in {wanted}"

    def links(self, page, text):
        names = [name.replace("benchmarks.md", "docs/benchmarks.md") for name in LINK.findall(text)]
        return [name for name in names if name != page]


# Figures from a table, from prose, computed figures, and figures from JSON, each with an altered
# value. The test alters one figure at a time in a copy of its page.
ALTERED = {
    "665,000 |": "675,000 |",
    "8.50 s": "12.0 s",
    "544 us": "545 us",
    "**13.7 M**": "**13.8 M**",
}


def unnoticed(checker, page, text):
    """Returns the altered figures that the checker fails to detect."""
    for right, wrong in ALTERED.items():
        line = text[: text.index(right)].count("\n") + 1
        expected = f"{page}:{line}: {wrong.strip('*| ')} "
        problems = checker.problems_of(page, text.replace(right, wrong, 1))
        if not any(problem.startswith(expected) for problem in problems):
            yield f"figures.py accepts {wrong} in place of {right} in {page}"


def main():
    root = Path(sys.argv[1])
    checker = Checker(root)
    page = "docs/benchmarks.md"
    problems = list(unnoticed(checker, page, (root / page).read_text(encoding="utf-8")))
    checker.count = 0
    pages = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("bench/**/*.md")]
    for path in sorted([*pages, *root.glob("examples/**/*.md")]):
        page = path.relative_to(root).as_posix()
        problems += checker.problems_of(page, path.read_text(encoding="utf-8"))
    print("\n".join(problems) if problems else f"{checker.count} figures are those of their runs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
