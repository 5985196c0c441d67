"""The settings as command-line options, the same ones before and after the command's name."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from pydantic import ByteSize

from host.settings import Settings, load, option_name

# Which settings a command has options for. (The variables always count.)
ALL = tuple(Settings.model_fields)
_SERVING = ("host", "port", "upload_quota", "upload_quota_total")
ANSWERING = tuple(field for field in ALL if field not in _SERVING)
INDEXING = ("data_dir", "models_dir", "embedder", "device", "auth")
FOLDER = ("data_dir", "auth")
RECKONING = ("models_dir", "model", "device", "page_size")
FETCHING = ("models_dir",)
PEOPLE = ("data_dir", "auth")


def with_settings(*fields: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a typer command the options of these settings and hand it the result.

    The command's first parameter gets the context, its second the `Settings`. Options are plain
    text here: there is one validation, that of Settings, for options and variables alike.
    An option after the command's name wins over the same one before it.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(command).parameters.values())

        @functools.wraps(command)
        def wrapper(ctx: typer.Context, **values: Any) -> Any:
            given = {field: values.pop(field) for field in fields}
            outer = ctx.parent.obj if ctx.parent is not None else None
            options = (outer or {}) | {k: v for k, v in given.items() if v is not None}
            ctx.obj = options
            return command(ctx, load(options), **values)

        # typer reads signature and annotations: the command's own, with the settings after them.
        parameters = [own[0], *own[2:], *map(_parameter, fields)]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def _parameter(field: str) -> inspect.Parameter:
    info = Settings.model_fields[field]
    default = info.default
    if isinstance(default, ByteSize):
        default = default.human_readable()
    option = typer.Option(
        option_name(field),
        help=f"{info.description} [default: {default}]",
        metavar=field.rsplit("_", 1)[-1].upper(),
        rich_help_panel="Settings",
    )
    return inspect.Parameter(
        field,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )
