"""The command ``dnnl``: finds its subcommands, and says in one line what went wrong."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from dnnl import __version__
from dnnl.errors import Error

try:
    import click
except ModuleNotFoundError as error:
    hint = "dnnl: error: the command line needs click and rich: pip install 'dnnl[onnx]'"
    raise SystemExit(hint) from error

COMMANDS = {
    "info": "Show the version, the engines, the instruction sets, threads and the cache.",
    "run": "Run an ONNX model.",
    "check": "List which operators of an ONNX model run, which are refused, and why.",
    "bench": "Check and measure primitives in the language of benchdnn.",
    "explain": "Explain what a verbose line or a case of bench says.",
    "quantcheck": "Tell what integers do to a model or a case, and which scales would mend it.",
    "score": "Run a model over a data set of files, on several workers.",
    "layout": "Draw where each element of a tensor lives.",
}
"""Modules of this package, each with a click command of its own name, and what they do."""

_EXTRAS = {"ray": "score", "pyarrow": "score", "PIL": "score"}
"""The extra that installs each package; other packages are in the one for models."""

BAD_INPUT = 2
INTERRUPTED = 130


class _Commands(click.Group):
    """Imports a subcommand when it is called, so that each pays for its own packages only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"dnnl.tools.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="dnnl %(version)s")
def commands() -> None:
    """Deep-learning primitives whose kernels are written for the exact problem."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    0 is success, 1 a result that differs from what was expected, 2 bad input.
    """
    try:
        status = commands.main(arguments, prog_name="dnnl", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return BAD_INPUT
    except click.ClickException as error:
        return _fail(error.format_message())
    except (Error, OSError) as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "dnnl":
            raise
        extra = _EXTRAS.get(package, "onnx")
        return _fail(f"this command needs {package}: pip install 'dnnl[{extra}]'")
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    """Print an error as one line."""
    lines = [line.strip().removeprefix("- ") for line in message.splitlines()]
    print(f"dnnl: error: {'; '.join(line for line in lines if line)}", file=sys.stderr)
    return BAD_INPUT
