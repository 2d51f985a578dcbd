"""The command line: names, options and exit codes. What the commands do is in the modules beside this one,
imported when they run.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

from app.cli import options
from app.store.preferences import Preferences, fixed
from app.store.settings_docs import no_default_any_more
from core.config import RULES, load_settings, override, stay_offline, use_data_dir
from core.errors import UserError
from core.text.words import translated as _

DONE, USER, USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: list[str] | None = None, *, called: str = "launcher.py") -> int:
    """Run one command of the program, which was `called` so. Returns 0 done, 1 the user's input or machine,
    2 usage, 130 interrupted.
    """
    parser, arguments = build_parser(called), sys.argv[1:] if arguments is None else arguments
    given = parser.parse_args(_with_command(arguments))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # a terminal that lacks a letter must not end the answer
            stream.reconfigure(errors="replace")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        return _run(parser, given)
    except UserError as error:
        print(error, file=sys.stderr)
        if getattr(given, "reading_mode", None) == "full":
            print(_("In parts: --reading-mode chunked; chapters: --chapters 1-3."), file=sys.stderr)
        return USER
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # `... | head`: whoever read us has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return DONE


def command() -> int:
    """`triforce-chat`: without a command it opens the app, as the launcher does."""
    return main(sys.argv[1:] or ["app"], called="triforce-chat")


def _with_command(arguments: list[str]) -> list[str]:
    """The app's command may be left out before a file, as file managers do ("Open with"), and --offline."""
    first = arguments[0] if arguments else ""
    is_file = not first.startswith("-") and (os.sep in first or "/" in first or Path(first).suffix)
    implied = first not in _COMMANDS and is_file or arguments == ["--offline"]
    return ["app", *arguments] if implied else arguments


def _run(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    settings = load_settings(None, dict.fromkeys(no_default_any_more(), "auto"))
    try:
        # an option that is called as a setting is this setting; not given means: what the settings file says
        settings = override(settings, {key: getattr(given, key, None) for key in RULES})
    except UserError as error:
        parser.exit(USAGE, f"{error}\n")
    use_data_dir(settings)
    given.preferences = Preferences(settings, fixed(vars(given)))
    module, name = given.run.split(":")
    stay_offline(given.preferences.settings)
    command: Callable[..., int] = getattr(importlib.import_module(module), name)
    return command(given, given.preferences.settings)


def build_parser(called: str = "launcher.py") -> argparse.ArgumentParser:
    """All commands and options."""
    of_the_launcher = "The launcher's own: test, repair, update FROM, uninstall (docs/setup.md)."
    parser = argparse.ArgumentParser(
        prog=called, description="Read whole books with a local model.", epilog=of_the_launcher
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="{" + ",".join(_COMMANDS) + "}")
    for name, (text, fill) in _COMMANDS.items():
        fill(commands.add_parser(name, help=text, description=text, formatter_class=_Wide))
    return parser


class _Wide(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


def _summarize(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.chat:summarize")
    options.book_options(parser)
    parser.add_argument("--question", metavar="TEXT", help="answer this question instead of summarising")
    options.length(parser)
    options.reading(parser)
    options.answering(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")


def _chat(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.chat:chat")
    options.book_options(parser)
    options.length(parser)
    options.reading(parser)
    options.answering(parser)


def _extract(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:extract")
    options.book_options(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--json", action="store_true", help="title, author, format, words, chapters and warnings as JSON"
    )
    what.add_argument("--text", action="store_true", help="the text itself")


def _doctor(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:doctor")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure bus and disk again, and try kernels again, whatever was found before",
    )
    parser.add_argument(
        "--retry",
        action="store_true",
        help="try kernels again that broke the program or did not serve before",
    )
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="try the card in small, in a minute or two: attention, copies, recordings, an answer",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def _plan(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:show_plan")
    options.model(parser)
    options.imagined_options(parser)
    parser.add_argument(
        "--acceptance", dest="assumed_acceptance", metavar="A", help="assumed acceptance rate, 0.01 to 0.999"
    )
    parser.add_argument(
        "--draft-acceptance",
        dest="assumed_draft_acceptance",
        metavar="A",
        help="likewise, of what a draft model or a layer that predicts one token further proposes",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def _models(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.model_commands:models")
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "download", "move", "path"),
        default="list",
        help="list them, download one, move one, or print the folder they are in",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which model to download or move")
    parser.add_argument("--to", metavar="FOLDER", help="where to move it")
    options.imagined_options(parser)
    options.offline_option(parser)
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def _use(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.model_commands:use")
    parser.add_argument("file", metavar="FILE", help="a GGUF file, or the folder in which it lies alone")


def _snapshots(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:snapshots")
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "clear"),
        default="show",
        help="say how much there is, or delete all of it",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def _train_draft(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:train_draft")
    parser.add_argument(
        "--target", dest="model", metavar="NAME", help="the model to draft for (default: the embedded one)"
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="where the draft goes; a run that was stopped goes on there",
    )
    parser.add_argument(
        "--data", required=True, nargs="+", metavar="PATH", help="books, or folders with books, to train on"
    )
    parser.add_argument(
        "--start",
        metavar="FOLDER",
        help="a trained draft to begin with, of the same model or one that was taught further "
        "(default: the target's first layers)",
    )
    parser.add_argument(
        "--tokens",
        type=options.count,
        metavar="N",
        help="tokens that the target reads and writes (default: 400000)",
    )
    parser.add_argument(
        "--epochs", type=options.count, metavar="N", help="how often the draft goes through them (default: 3)"
    )
    parser.add_argument(
        "--layers", type=options.count, metavar="N", help="decoder layers of the draft, 1 to 4 (default: 1)"
    )
    parser.add_argument(
        "--head-tokens",
        type=options.count,
        metavar="N",
        help="the most frequent tokens, which it can propose (default: 16384)",
    )
    parser.add_argument("--device", metavar="NAME", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--threads", metavar="N", help="CPU threads")
    parser.add_argument("--seed", metavar="S", help="repeats the same training")


def _tune(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:tune_model")
    options.model(parser)
    parser.add_argument(
        "--book", action="append", metavar="FILE", help="read this instead of the samples; may be given again"
    )
    parser.add_argument("--temperature", metavar="T", help="of the answers it is tuned for")
    parser.add_argument("--json", action="store_true", help="what was measured and chosen as JSON")


def _serve(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:start_server")
    parser.add_argument("--api", action="store_true", default=None, help="answer other programs, too")
    options.offline_option(parser)


def _api_key(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:new_api_key")


def _mcp(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.mcp.program:mcp")


def _app(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run="app.cli.commands:open_app")
    parser.add_argument("file", nargs="*", metavar="FILE", help="books to open; one that runs takes them")
    options.offline_option(parser)


_COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "summarize": ("stream a summary of a book, or the answer to a question about it", _summarize),
    "chat": ("talk about a book in the terminal", _chat),
    "extract": ("show what is read from a file, without any model", _extract),
    "doctor": ("what was detected, what would run and what is wrong", _doctor),
    "plan": ("what fits where and how fast it would be, on this machine or an imagined one", _plan),
    "models": ("list and download models", _models),
    "use": ("use a model file where it lies, also in the app that runs", _use),
    "snapshots": ("what is kept on disk of books that were read", _snapshots),
    "tune": ("measure on this machine what the plan assumes, and keep what proves faster", _tune),
    "train-draft": ("train a small model that drafts for another one", _train_draft),
    "serve": ("start the app without opening the browser", _serve),
    "api-key": ("make a new key for other programs; the one before ends", _api_key),
    "mcp": ("serve an assistant that starts this (docs/mcp.md)", _mcp),
    "app": ("start the app and open it in the browser", _app),
}
