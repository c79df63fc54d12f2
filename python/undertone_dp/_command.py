"""The command `undertone`, which the wheel carries."""

import signal
import sys

from undertone_dp import _native


def main() -> int:
    """Runs the command line of this process, and returns its exit status."""
    # Python's handler would keep Ctrl-C from a command until it has returned. A background job ignores the signal, and goes on to.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native._command(["undertone", *sys.argv[1:]])
