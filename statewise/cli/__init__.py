"""The command line: one file per verb. Parse, call, print; everything heavy is imported inside the verb."""

import gc
import os
import sys
import warnings
from itertools import takewhile
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from statewise import __version__
from statewise.cli.bench import bench
from statewise.cli.book import book
from statewise.cli.compare import compare
from statewise.cli.data import data
from statewise.cli.evaluate import evaluate
from statewise.cli.export import export
from statewise.cli.generate import generate
from statewise.cli.import_ import import_
from statewise.cli.inspect import inspect
from statewise.cli.lab import lab
from statewise.cli.models import models
from statewise.cli.output import tell
from statewise.cli.predict import predict
from statewise.cli.reproduce import reproduce
from statewise.cli.serve import serve
from statewise.cli.settings import settings
from statewise.cli.train import train
from statewise.cli.unknown_option import explain_option
from statewise.cli.verify import verify

# How to use less memory, by verb.
_LOWER = {
    "train": "lower train.batch or train.window, then model.width or model.depth; or train on another --device",
    "compare": "use fewer --workers, or leave the largest entries out (--only)",
}
# Tracing a model makes objects by the million: to look for garbage among them after every 700 took a seventh of it.
_TRACING, _MANY = ("lab", "export"), 50_000
_WITHOUT_TASKS = ("settings", "data", "models", "lab", "book", "bench", "serve")  # serve sets what PyTorch reads first
EXIT_CODES = """Exit codes: 0 done · 1 a law, a check or a trial failed, or the system did (disk full) ·
2 invalid command, setting or data · 3 the loss or a gradient was not finite · 130, 143 stopped by a signal, saved"""


# Click's own classes, wherever this version of Typer keeps its Click.
_UsageError: Any = typer.BadParameter.__mro__[1]
_NoSuchOption: Any = vars(sys.modules[_UsageError.__module__])["NoSuchOption"]


def _without_types(params: list[Any]) -> list[Any]:
    """No Python types in the help: flags have no value, and the name and help of an argument describe it."""
    for param in params:
        if isinstance(param, TyperArgument):
            vars(param)["display_type_rich"] = lambda ctx: None
        elif param.is_flag:
            param.metavar = ""
    return params


class _Verb(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        if self.name not in _WITHOUT_TASKS and "statewise.tasks" not in sys.modules:
            # Imports make half a million objects and no garbage: to look for it took an eighth of the start.
            gc.disable()
            import statewise.tasks  # noqa: F401

            gc.freeze()
            gc.enable()
        if self.name in _TRACING:
            gc.set_threshold(_MANY)
        return super().invoke(ctx)


class _Verbs(TyperGroup):
    """Verbs in the order of use; a mistyped one gets a suggestion."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from statewise.specs import UserError, nearest

            raise UserError(f"{args[0]!r} is not a command of statewise", fix=nearest(args[0], self.commands))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Verbs,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    help="Every sequence model is a state machine: train, verify, resume and stream them behind one contract.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(requested: bool) -> None:
    if requested:
        tell(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_say_version, help="Print the version and exit."
    ),
) -> None: ...


for _verb in (
    models,
    train,
    settings,
    data,
    generate,
    evaluate,
    predict,
    compare,
    inspect,
    lab,
    serve,
    export,
    reproduce,
    verify,
):
    app.command(cls=_Verb)(_verb)
app.command("import", cls=_Verb)(import_)
app.command(cls=_Verb)(book)
app.command(cls=_Verb, context_settings={"allow_extra_args": True, "allow_interspersed_args": False})(bench)


def main() -> None:
    """Run the command line; every expected error has an exit code and at most one screen of text."""
    warnings.showwarning = _warn
    sys.exit(_run())


def _run() -> int:
    try:
        result = app(prog_name="statewise", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except _UsageError as error:
        if not sys.argv[1:]:
            error.show()  # no verb: show the help
            return 2
        verb = f" {sys.argv[1]}" if sys.argv[1] in _verbs() else ""
        value = _value_of(*getattr(getattr(error, "param", None), "opts", ()))
        suffix = "" if value is None else f"; given: {value!r}"
        text = f"{error.format_message().replace('Value error, ', '').removesuffix('.')}{suffix}"
        if isinstance(error, _NoSuchOption):
            text = explain_option(error.option_name, _long_options(error), sys.argv[1:])
        elif several := _settings_in_a_row(sys.argv[1:]):
            text = f"--set takes one setting, here {several[0]!r}; repeat it: --set {' --set '.join(several)}"
        return _complain(f"{text}\ntry: statewise{verb} --help", 2)
    except typer.Exit as error:
        return int(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except (BrokenPipeError, SystemExit):
        # (Typer turns a closed pipe into SystemExit, and nothing else here leaves that way.)
        # The reader closed the pipe; keep the interpreter from reporting it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.strerror is None:
            raise
        name = f" {error.filename!r}" if error.filename else ""
        message = f"could not read or write{name}: {error.strerror}; what was saved before is intact"
        return _complain(message + _notes(error), 1)
    except Exception as error:
        # Look the types up only if their modules are loaded: importing them would slow down the help.
        mistake = sys.modules.get("statewise.specs.error")
        if mistake is not None and isinstance(error, mistake.UserError):
            return _complain(f"{error.on_command_line()}{_notes(error)}", 2)
        problem = sys.modules.get("statewise.training.stop")
        if problem is not None and isinstance(error, problem.NonFinite):
            return _complain(f"{error}{_notes(error)}", 3)
        if problem is not None and isinstance(error, problem.Stopped):
            out = _value_of("--out", "-o")
            where = "" if out is None else f" --out {out}"
            on = f"; to continue: statewise train --resume{where}" if error.step else "; nothing was saved yet"
            return _complain(f"{error}{on}", error.exit_code)
        from statewise.specs import lack_of_memory

        if (lacking := lack_of_memory(error)) is None:
            raise
        lower = _LOWER.get(sys.argv[1], "give it less data at a time, or another --device")
        return _complain(f"{lacking}\n{lower}{_notes(error)}", 1)


def _notes(error: BaseException) -> str:
    """The notes of an error, for example how to continue a training."""
    notes = getattr(error, "__notes__", ())
    if not notes:
        return ""
    from statewise.specs import Note, on_command_line

    return "".join(f"\n{on_command_line(note.marked) if isinstance(note, Note) else note}" for note in notes)


def _warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """Print a warning without its source line."""
    tell(f"warning: {message}", error=True)


def _verbs() -> list[str]:
    return [command.callback.__name__ for command in app.registered_commands if command.callback]


def _long_options(error: Any) -> list[str]:
    """The long names of the verb's options, without hidden ones."""
    params = [] if error.ctx is None else error.ctx.command.get_params(error.ctx)
    return [
        name for param in params if not getattr(param, "hidden", False) for name in param.opts if name.startswith("--")
    ]


def _value_of(*names: str) -> str | None:
    """The value on the command line of the option with these names."""
    for word, after in zip(sys.argv, [*sys.argv[1:], ""]):
        option, equals, value = word.partition("=")
        if option in names:
            return value if equals else after
    return None


def _settings_in_a_row(words: list[str]) -> list[str]:
    """Settings after one `--set`, where there are several."""
    for at, word in enumerate(words[:-1]):
        if word in ("--set", "-s"):
            several = list(takewhile(lambda given: "=" in given and not given.startswith("-"), words[at + 1 :]))
            if len(several) > 1:
                return several
    return []


def _complain(text: str, code: int) -> int:
    tell(f"statewise: {text}" if code in (130, 143) else f"error: {text}", error=True)
    return code
