"""All kernels that a GPU's step would launch, made machine code for a card that is not there."""

import os
import subprocess
import sys


def test_every_kernel_of_a_step_is_compiled_and_spills_nothing() -> None:
    env = {**os.environ, "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-m", "tests.kernels.compile_decode"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "registers" in line]
    assert len(lines) > 50
    assert [line for line in lines if " 0 bytes spilled" not in line] == []
