"""`glassformer`, and `python -m glassformer`: the command line. Ctrl-C is heard before anything is loaded."""

import os
import signal
from types import FrameType


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\nStopped; nothing was left half done.\n")
    os._exit(128 + number)


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    from glassformer.cli.main import main as commands

    commands()


if __name__ == "__main__":
    main()
