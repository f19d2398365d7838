"""The command line: one module per command. `run` is the entry point of the `resift` script."""

import os


def run() -> int:
    """Run the command in `sys.argv`. Ctrl-C during imports prints one line instead of a traceback."""
    try:
        from resift.cli.main import main
    except KeyboardInterrupt:
        os.write(2, b"resift: interrupted\n")
        os._exit(130)
    return main()
