"""The Slurm job of `guide/many-machines.md`, with programs that stand in for Slurm's."""

import os
import re
import subprocess

import pytest

from docs import generate

_STAND_INS = {
    "bin/srun": '[[ $SRUN_CPUS_PER_TASK == 8 ]] && exec "$@"',
    "bin/scontrol": 'echo "$@" > told',
    "run_multiprocess.sh": 'echo "$@" > flags; exit "$CODE"',
}


@pytest.mark.parametrize(
    ("code", "told"), [(75, "requeue 17\n"), (0, None), (130, None), (1, None)]
)
def test_job_asks_for_its_next_start_only_where_the_run_was_cut_off(tmp_path, code, told):
    page = (generate.ROOT / "docs" / "guide" / "many-machines.md").read_text(encoding="utf-8")
    (job,) = re.findall(r"```bash\n(#!/bin/bash\n#SBATCH .*?)```", page, re.DOTALL)
    (tmp_path / "bin").mkdir()
    for name, lines in _STAND_INS.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/bash\n{lines}\n")
        path.chmod(0o755)
    slurm = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "17", "SLURM_CPUS_PER_TASK": "8"}
    paths = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", job], env={"PATH": paths, "CODE": str(code), **slurm}, check=False
    )
    assert done.returncode == code
    assert (tmp_path / "flags").read_text().startswith("--resume=auto --logpath=logs/walker ")
    asked = tmp_path / "told"
    assert (asked.read_text() if asked.exists() else None) == told
