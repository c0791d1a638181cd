"""``python -m dnnl`` is the command ``dnnl``."""

import sys

try:
    from dnnl.tools import cli
except KeyboardInterrupt:  # while the packages of the command load: no error to show
    sys.exit(130)


def main() -> int:
    """Run the command line and return its exit status."""
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
