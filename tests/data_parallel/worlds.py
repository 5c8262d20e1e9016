# SPDX-License-Identifier: BSL-1.0
"""The same training by 1, 2 and 4 processes, and worlds that can't train as one.

    worlds.py <penstock_mlp_mpi> <a folder to work in> <the library of order_of_calls.cpp>
"""

import shutil
import sys
from pathlib import Path

from runs import Program, require, steps_of, succeed

SAMPLES = 200  # no multiple of the global batch: the last one is filled up


def same_training(program, work):
    found = {}
    for how in ("fast", "ordered"):
        for ranks in (1, 2, 4):
            log = work / f"{how}{ranks}"
            options = ["--log", log] + (["--deterministic"] if how == "ordered" else [])
            said = succeed(program.run(ranks, *options))
            require(said["ranks"].strip() == str(ranks), "all processes are one world", said)
            found[how, ranks] = (said, steps_of(log)[0])
    said, steps = found["ordered", 1]
    require(len(steps) == 8, "an epoch is 4 steps", len(steps))
    for (how, ranks), (other_said, other) in found.items():
        require(other.keys() == steps.keys(), "the same steps", how, ranks)
        require(other_said["batches"] == said["batches"], "the hash of all batches", how, ranks)
        for place, (loss, samples) in other.items():
            require(samples == steps[place][1], "the same global batch", how, ranks, place)
            far = abs(float.fromhex(loss) / float.fromhex(steps[place][0]) - 1)
            require(far < 1e-4, "losses equal up to rounding", how, ranks, place, far)
            require(how == "fast" or far == 0, "the same bits when ordered", ranks, place)
        require(
            how == "fast" or other_said["parameters"] == said["parameters"],
            "the same bits of all parameters when ordered", ranks,
        )
    for epoch in range(2):
        drawn = [s for (e, _), (_, samples) in sorted(steps.items()) if e == epoch for s in samples]
        require(sorted(drawn[:SAMPLES]) == list(range(SAMPLES)), "each sample once in", epoch)
        require(drawn[SAMPLES:] == drawn[: len(drawn) - SAMPLES], "filled up from the start")


def refused(ran, *texts):
    require(ran.returncode != 0, "a run is refused:", texts)
    for text in texts:
        require(text in ran.stderr, f"'{text}' is in", ran.stderr)


def worlds_that_cannot_be(program, noting):
    refused(program.run(3), "global_batch: must be a multiple of the world of 3, is 64",
            "take 63 or 66")
    refused(program.run(2, "--deterministic", "--batch", "60"), "a multiple of 8 for --batch")
    refused(
        program.run_apart([["--seed", 1], ["--seed", 1], ["--seed", 2], ["--seed", 1]]),
        "run_mismatch: the ranks would train on different batches: seed: 1 on ranks 0 and 1, 3, 2 "
        "on rank 2",
    )
    # Where one rank alone fails, the others wait for it in a sum: it must not wait for them.
    ran = program.run_apart([["--die", "1:2:throwing"], ["--die", "1:2:throwing"]], noting)
    refused(ran, "rank 1 of 2", "fails as it was told to", "called: MPI_Abort")
    require("called: MPI_Comm_free" not in ran.stderr, "no rank frees what others use", ran.stderr)
    refused(
        Program(program.command[0]).run_apart([["--samples", 200], ["--samples", 100]]),
        "dataset: 200 on rank 0, 100 on rank 1",
    )


def main():
    work = Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    program = Program(sys.argv[1], "--samples", SAMPLES, "--epochs", 2)
    same_training(program, work)
    worlds_that_cannot_be(program, sys.argv[3])
    print("1, 2 and 4 processes train alike")


if __name__ == "__main__":
    main()
