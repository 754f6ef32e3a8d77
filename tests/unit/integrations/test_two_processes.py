"""Two processes together use the targets of one, and both end with the same teacher, resumed or not."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file


@pytest.mark.faults
@pytest.mark.parametrize("framework", ["lightning", "huggingface", "accelerate"])
def test_two_processes_use_the_targets_of_one(task, tmp_path, framework):
    pytest.importorskip(
        {"huggingface": "transformers"}.get(framework, framework), reason=f"needs vista-distill[{framework}]"
    )
    script = Path(__file__).with_name("two_processes.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*launch, str(script), framework, str(tmp_path)], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr[-3000:]
    for kind in ("vista", "posterior"):
        first, second = (load_file(tmp_path / f"{kind}-{rank}.safetensors") for rank in (0, 1))
        for end in ("teacher", "next"):
            assert torch.equal(first[end], second[end])
            for rank in (first, second):
                assert torch.equal(rank[f"resumed {end}"], rank[end])
        part = replace(task, x=task.x[:288], labels=task.labels[:288])
        expected, _ = part.plain(getattr(part, kind)())
        seen = {**first, **second}
        for (epoch, i), target in expected.seen.items():
            # Gradients are summed differently.
            assert torch.allclose(seen[f"{epoch}/{i}"], target, atol=1e-3), (kind, epoch, i)
        assert torch.allclose(first["teacher"], expected.teacher(), atol=1e-3)
