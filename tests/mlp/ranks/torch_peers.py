# SPDX-License-Identifier: BSL-1.0
"""PyTorch's own TCPStore and torchrun beside the example's; skipped where torch is not installed.

    torch_peers.py <penstock_mlp_tcp> <store_peer> <a folder to work in>
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from runs import TIMEOUT, require, succeed
from tcp_runs import Program, free_port

ALL = bytes(range(256))


def our_client(peer, store_type):
    """Of PyTorch's server, by libuv and without it."""
    for libuv in (True, False):
        server = store_type("localhost", 0, is_master=True, wait_for_workers=False,
                            use_libuv=libuv, timeout=timedelta(seconds=60))
        server.add("sum", 37)
        asks = subprocess.Popen([peer, "ask", str(server.port)], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        require(server.get("from_cpp") == ALL, "PyTorch has what we set", libuv)
        server.set("from_python", ALL[::-1])
        server.set("waited_for", "")
        said, error = asks.communicate(timeout=TIMEOUT)
        require(asks.returncode == 0, "we are its client", libuv, error)
        require(said == "sum 42\nfound 256 1 8388608\n", "we have what PyTorch set", libuv, said)


def our_server(peer, store_type):
    """With PyTorch's client."""
    serves = subprocess.Popen([peer, "serve"], text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE)
    port = int(serves.stdout.readline())
    clients = [
        store_type("localhost", port, is_master=False, timeout=timedelta(seconds=60))
        for _ in range(2)
    ]
    clients[0].set("key", ALL)
    require(clients[1].get("key") == ALL, "what one client sets the other gets")
    require([c.add("sum", 21) for c in clients] == [21, 42], "sums")
    require(clients[0].get("sum") == b"42", "a sum as a value")
    asks = subprocess.Popen([peer, "ask", str(port)], text=True, stdout=subprocess.PIPE)
    clients[1].wait(["from_cpp"])
    clients[0].set("from_python", ALL[::-1])
    clients[0].set("waited_for", "")
    said, _ = asks.communicate(timeout=TIMEOUT)
    require(said == "sum 47\nfound 256 1 8388608\n", "our client beside PyTorch's", said)
    del clients
    serves.communicate(timeout=TIMEOUT)
    require(serves.returncode == 0, "it ends")


def torchrun(program, ranks, *options, of_launcher=(), variables=None):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += [*of_launcher, "--no-python", *program.command, *map(str, options)]
    here = {name: value for name, value in os.environ.items() if "TORCHELASTIC" not in name}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, check=False,
        env=here | {"OMP_NUM_THREADS": "1"} | (variables or {}),
    )


def same_training(program, work):
    whole = succeed(program.run(1))
    port = ["--master-addr", "localhost", "--master-port", str(free_port())]
    for how in (
        {"of_launcher": port},  # the agent has the store
        {"of_launcher": ["--standalone"]},
        # Rank 0 has to host it.
        {"of_launcher": ["--standalone"], "variables": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}},
    ):
        said = succeed(torchrun(program, 2, **how))
        require(said["ranks"].strip() == "2", "torchrun's ranks are one world", how)
        require(said["parameters"] == whole["parameters"], "the same bits", how)
    # A rank of the first start is killed in its fourth step, torchrun starts all again, and the
    # agent's store has kept what the first start has left.
    dies = '[ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || set -- "$@" --die 1:3:reduced; exec "$0" "$@"'
    dying = Program("bash", "-c", dies, *program.command, "--checkpoint", work / "kept",
                    "--every", 1)
    said = succeed(torchrun(dying, 2, of_launcher=["--standalone", "--max-restarts", "1"]))
    require(said["parameters"] == whole["parameters"], "the same bits after a restart")
    require(int(said["steps"]) in (4, 5), "of eight steps the first ones were kept", said)
    ran = torchrun(program, 2, "--die", "1:2:throwing", of_launcher=["--standalone"])
    require(ran.returncode != 0, "a rank that fails fails all")
    why = "rank 1 has ended: it fails as it was told to"
    require(why in ran.stderr, "and says why", ran.stderr)


def main():
    if importlib.util.find_spec("torch") is None:
        print("skipped: there is no torch")
        sys.exit(77)
    from torch.distributed import TCPStore

    work = Path(sys.argv[3])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    our_client(sys.argv[2], TCPStore)
    our_server(sys.argv[2], TCPStore)
    same_training(Program(sys.argv[1], "--samples", 256, "--batch", 32, "--deterministic"), work)
    print("PyTorch's store and torchrun know no difference")


if __name__ == "__main__":
    main()
