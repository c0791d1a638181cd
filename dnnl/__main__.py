"""``python -m dnnl`` is the command ``dnnl``."""

import sys

INTERRUPTED = 130


def main() -> int:
    """Run the command line and return its exit status, also where it is interrupted early."""
    try:
        # Not at the top: Ctrl-C while the packages of the command load is no error to show.
        from dnnl.tools import cli
    except KeyboardInterrupt:
        return INTERRUPTED
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
