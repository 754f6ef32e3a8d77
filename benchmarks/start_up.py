"""Measure how long concurrent runs take to their first step: `python benchmarks/start_up.py --root DATA --out FILE`.

Each start is a process of its own. The first has empty caches of compiled kernels, the second those of the first.
On a CPU, with small runs: `python benchmarks/start_up.py --data digits --network small-cnn --device cpu --at-once 2`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from vista.runs.environment import environment

START = """
import json, os, sys, time
from pathlib import Path
from vista.runs.config import TrainConfig, preset
from vista.training.events import Stepped
from vista.training.scheduler import Job, run_jobs

options, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
at_once = options.pop("at_once")
settings = {**preset("noisy"), "epochs": 200, **options}
jobs = [Job(TrainConfig(method="vista", noise="symmetric:0.4", seed=seed, **settings), folder / str(seed))
        for seed in range(at_once)]
left = {job.out for job in jobs}

def show(job, event):
    if isinstance(event, Stepped):
        left.discard(job.out)
    if not left:
        print(time.time(), flush=True)
        os._exit(0)

run_jobs(jobs, show, at_once)
for job in jobs:
    print(job.error, file=sys.stderr)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar100")
    parser.add_argument("--root", help="folder that holds the data")
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--at-once", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file of the record")
    given = vars(parser.parse_args())
    out, result = given.pop("out"), {}
    with tempfile.TemporaryDirectory(prefix="start-up-") as folder:
        caches = {name: f"{folder}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        for name in ("first", "second"):
            command = [sys.executable, "-c", START, json.dumps(given), f"{folder}/{name}"]
            began = time.time()
            ended = subprocess.run(command, env={**os.environ, **caches}, check=True, stdout=subprocess.PIPE, text=True)
            result[f"{name}_start_seconds"] = float(ended.stdout.split()[-1]) - began
    del given["root"]
    record = {"what": "start-up", **given, "environment": environment(torch.device(given["device"])), "result": result}
    text = json.dumps(record, indent=1, sort_keys=True)
    print(text)
    if out:
        out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
