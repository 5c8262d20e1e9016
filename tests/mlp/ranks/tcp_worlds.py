# SPDX-License-Identifier: BSL-1.0
"""The same training by 1, 2 and 4 processes without MPI, and what ends them.

    tcp_worlds.py <penstock_mlp_tcp> <a folder to work in>
"""

import shutil
import sys
from pathlib import Path

from runs import require, steps_of, succeed
from tcp_runs import Program
from worlds import SAMPLES, refused, same_training


def worlds_that_cannot_be(program):
    refused(program.run(3), "global_batch: must be a multiple of the world of 3, is 64")
    ran = program.run_apart([["--seed", 1], ["--seed", 2], ["--seed", 1], ["--seed", 1]])
    for rank in range(4):
        require("seed: 1 on ranks 0, 2 and 3, 2 on rank 1" in ran.errors[rank],
                "what differs, on rank", rank, ran.stderr)
    ran = program.run_apart([["--patience", 1]] * 3, started=[0, 2])
    require("rank 1 of 3 have not come within 1 s" in ran.errors[0], "who is missing", ran.stderr)


def ranks_that_end(program):
    killed = program.run(3, "--batch", 48, "--die", "1:2:reading")
    require(killed.ended == {0: 1, 1: -9, 2: 1}, "all have ended", killed.ended)
    require(": rank 1, call " in killed.errors[0], "rank 0 says who has ended", killed.stderr)
    require("rank 0 has ended: " in killed.errors[2], "it tells rank 2", killed.stderr)
    require(": rank 1, call " in killed.errors[2], "who it was", killed.stderr)
    killed = program.run(3, "--batch", 48, "--die", "0:2:reading")
    require(killed.ended == {0: -9, 1: 1, 2: 1}, "all have ended", killed.ended)
    for rank in (1, 2):
        require(" rank 0, call " in killed.errors[rank], "they say so", killed.stderr)
    threw = program.run(3, "--batch", 48, "--die", "2:2:throwing")
    require("rank 2 has ended: it fails as it was told to" in threw.errors[0], threw.stderr)
    require("rank 0 has ended: rank 2 has ended: it fails" in threw.errors[1], threw.stderr)


def another_world_goes_on(program, work):
    whole = succeed(program.run(1, "--deterministic", "--log", work / "whole"))
    kept = ["--deterministic", "--log", work / "log", "--checkpoint", work / "kept", "--every", 2]
    for ranks, death in ((4, "3:3:reduced"), (2, "0:5:moved")):
        require(program.run(ranks, *kept, "--die", death).returncode == 9, "a rank was killed")
    said = succeed(program.run(4, *kept))
    require(said["parameters"] == whole["parameters"], "the same bits as an undisturbed run")
    require(steps_of(work / "log")[0] == steps_of(work / "whole")[0], "the same steps")


def main():
    work = Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    program = Program(sys.argv[1], "--samples", SAMPLES, "--epochs", 2)
    same_training(program, work)
    worlds_that_cannot_be(program)
    ranks_that_end(program)
    another_world_goes_on(program, work)
    print("1, 2 and 4 processes train alike without MPI")


if __name__ == "__main__":
    main()
