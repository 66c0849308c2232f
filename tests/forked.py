"""The command line in a process of its own, but one that has torch imported: seconds saved each time."""

import os
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

import torch  # noqa: F401 - once, for all that is forked

from glassformer.cli.main import main


def run_forked(
    *arguments: str, cwd: Path | None = None, input: str = "", env: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """`glassformer ARGUMENTS`, as `subprocess.run` would give it."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(input.encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            code = 70
            try:
                for number, stream in enumerate((given, out, err)):
                    os.dup2(stream.fileno(), number)
                sys.stdin = os.fdopen(os.dup(0), encoding="utf-8")
                sys.stdout, sys.stderr = (os.fdopen(os.dup(n), "w", encoding="utf-8") for n in (1, 2))
                os.chdir(cwd or ".")
                os.environ.update(env or {})
                sys.argv = ["glassformer", *arguments]
                main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        texts: list[str] = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return CompletedProcess(list(arguments), os.waitstatus_to_exitcode(status), *texts)
