# SPDX-License-Identifier: BSL-1.0
"""Tests identical training with 1, 2 and 4 processes, worlds that cannot train together, and
training that continues with a different number of ranks after ranks were killed.

    worlds.py <penstock_data_parallel> <working folder>
"""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

TIMEOUT = 120  # seconds; a run must end in this time, even if its ranks are killed
SAMPLES, BATCH, EPOCHS = 256, 32, 2
STEPS = EPOCHS * SAMPLES // BATCH


def require(holds, *what):
    if not holds:
        print("does not hold:", *what)
        sys.exit(1)


class Program:
    """Runs the program under mpirun, with the options that all runs share."""

    def __init__(self, path, *options):
        mpirun = shutil.which("mpirun")
        ask = [mpirun, "--version"]
        said = subprocess.run(ask, capture_output=True, check=False).stdout if mpirun else b""
        if b"Open MPI" not in said:
            print("skipped: there is no mpirun of Open MPI")
            sys.exit(77)
        self.command = [str(path), *map(str, options)]
        self.mpirun = [mpirun, "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            self.mpirun.append("--allow-run-as-root")

    def run(self, ranks, *options):
        return self.run_apart([options] * ranks)

    def run_apart(self, options_of_ranks):
        """Runs one world. Each rank has its own options."""
        command = list(self.mpirun)
        for rank, options in enumerate(options_of_ranks):
            command += [":"] if rank else []
            command += ["-np", "1", *self.command, *map(str, options)]
        # No other machine is involved, so ssh need not be installed.
        environment = os.environ | {"OMPI_MCA_plm_rsh_agent": "sh"}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False, env=environment
        )


def succeed(ran):
    require(ran.returncode == 0, "a run succeeds:", ran.args, ran.stdout, ran.stderr)
    return {line[:11].strip(): line[11:].strip() for line in ran.stdout.splitlines()}


def steps_of(log):
    """Maps (epoch, batch) to (loss, samples). Requires that repeated steps are identical."""
    steps = {}
    for line in log.read_text(encoding="ascii").splitlines():
        head, samples = line.split(": ")
        epoch, batch, loss = head.split()
        place, found = (int(epoch), int(batch)), (loss, tuple(map(int, samples.split())))
        require(steps.setdefault(place, found) == found, "a step made again is the same:", place)
    return steps


def same_training(program, work):
    """Returns the losses and parameters of one process. Requires that more processes agree."""
    found = {}
    for how in ("fast", "ordered"):
        for ranks in (1, 2, 4):
            log = work / f"{how}{ranks}"
            options = ["--log", log] + (["--deterministic"] if how == "ordered" else [])
            said = succeed(program.run(ranks, *options))
            require(said["ranks"] == str(ranks), "all processes are one world", said)
            found[how, ranks] = (said, steps_of(log))
    said, steps = found["ordered", 1]
    require(len(steps) == STEPS, "all steps", len(steps))
    for (how, ranks), (other_said, other) in found.items():
        require(other.keys() == steps.keys(), "the same steps", how, ranks)
        for place, (loss, samples) in other.items():
            require(samples == steps[place][1], "the same global batch", how, ranks, place)
            far = abs(float.fromhex(loss) / float.fromhex(steps[place][0]) - 1)
            require(far < 1e-3, "losses equal up to rounding", how, ranks, place, far)
            require(how == "fast" or far == 0, "the same bits when ordered", ranks, place)
        require(
            how == "fast" or other_said["parameters"] == said["parameters"],
            "the same bits of all parameters when ordered", ranks,
        )
    for epoch in range(EPOCHS):
        drawn = [s for (e, _), (_, samples) in steps.items() if e == epoch for s in samples]
        require(sorted(drawn) == list(range(SAMPLES)), "each sample once in", epoch)
    return said, steps


def rejected(ran, *texts):
    require(ran.returncode != 0, "a run is rejected:", texts)
    for text in texts:
        require(text in ran.stderr, f"'{text}' is in", ran.stderr)


def worlds_that_cannot_be(program, work):
    rejected(program.run(3), "global_batch: must be a multiple of the world of 3, but is 32")
    rejected(program.run(2, "--deterministic", "--batch", "60"), "a multiple of 8 for --batch")
    rejected(
        program.run_apart([["--seed", 1], ["--seed", 2]]),
        "run_mismatch: the ranks would train on different batches: seed: 1 on rank 0; 2 on rank 1",
    )
    rejected(
        program.run_apart([["--samples", 200], ["--samples", 100]]),
        "dataset: 200 on rank 0; 100 on rank 1",
    )
    # If only one rank fails, the other ranks wait for it. Therefore it must end them.
    torn = work / "torn"
    torn.write_bytes(b"a line\nand less than the arrays")
    ran = program.run_apart([["--checkpoint", work / "none"], ["--checkpoint", torn]])
    rejected(ran, "rank 1 of 2", "bytes after the first line, found 24")
    require(torn.read_bytes().startswith(b"a line\n"), "what was rejected stays")


def killed(program, work, expected, rng):
    """Runs worlds in which a rank dies at a random step, until a world finishes."""
    said, steps = expected
    log, checkpoint, deaths, worlds = work / "log", work / "training", 0, []
    options = ["--deterministic", "--log", log, "--checkpoint", checkpoint, "--every", "3"]
    for _ in range(3):
        ranks, step = rng.choice((1, 2, 4)), rng.randrange(STEPS)
        ran = program.run(ranks, *options, "--die", f"{rng.randrange(ranks)}:{step}")
        worlds.append((ranks, step, ran.returncode))
        if ran.returncode != 0:  # if 0, an earlier world had already done the step
            require("signal 9" in ran.stderr, "mpirun says who died", worlds, ran.stderr)
            deaths += 1
    last = succeed(program.run(rng.choice((1, 2, 4)), *options))
    require(steps_of(log) == steps, "the batches and losses of an undisturbed run", worlds)
    require(last["parameters"] == said["parameters"], "its parameters", worlds)
    require(deaths > 0, "a rank was killed", worlds)
    require(not Path(f"{checkpoint}.new").exists(), "no half of a checkpoint is left")
    print(f"killed and gone on with: {worlds}")


def main():
    work = Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    program = Program(sys.argv[1], "--samples", SAMPLES, "--batch", BATCH, "--epochs", EPOCHS)
    expected = same_training(program, work)
    worlds_that_cannot_be(program, work)
    killed(program, work, expected, random.Random(1))
    print("1, 2 and 4 processes train alike")


if __name__ == "__main__":
    main()
