"""Commands and exit codes. 0: done. 1: the answer is no. 2: bad input or usage."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from octoplan.cli import commands, console, explain_command, export_command, study_command
from octoplan.errors import InfeasibleError
from octoplan_schemas import InputError

app = typer.Typer(
    name="octoplan",
    help="Plan pipeline-parallel training: partition, placement and schedule together, with a bound.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for name, function in commands.COMMANDS.items():
    app.command(name)(function)
app.command("explain")(explain_command.explain)
app.command("export")(export_command.export)
app.add_typer(study_command.app, name="study")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; every foreseeable failure is one line on standard error."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    command = typer.main.get_command(app)
    try:
        result: Any = command.main(args=arguments, prog_name="octoplan", standalone_mode=False)
    except InputError as error:
        console.fail(str(error))
        return 2
    except InfeasibleError as error:
        console.fail(str(error))
        return 1
    except KeyboardInterrupt:
        console.fail("interrupted")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141
    except Exception as error:
        # Usage errors carry their own text; whatever else escapes is a bug and keeps its traceback.
        describe = getattr(error, "format_message", None)
        if describe is None:
            if type(error).__name__ == "Abort":
                console.fail("interrupted")
                return 130
            raise
        console.fail(f"{describe()}; see octoplan {' '.join(arguments[:1])} --help")
        return 2
    if result == 130:
        console.fail("interrupted")  # typer turns Ctrl-C into this result, without a word
    return result if isinstance(result, int) else 0
