"""Pageturn's command line: it reads options, calls the host and prints.

python app.py                 serve the page
python app.py add PATH...     index files and folders
python app.py ask "QUESTION"  one turn
python app.py --help          everything else
"""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from host import doctor as checks

try:
    import typer
    from typer.exceptions import TyperException

    from host import connect, console, environment
    from host.errors import SettingRefused, explain
    from host.options import (
        ALL,
        ANSWERING,
        FETCHING,
        FOLDER,
        INDEXING,
        PEOPLE,
        RECKONING,
        with_settings,
    )
    from host.settings import Settings
    from host.users import Users, check_name, no_such_user
    from host.workspace import OWNER
    from retrieval.owners import SHARED
except ModuleNotFoundError as missing:
    # Nothing is installed yet: `doctor` still works, and anything else says what to do.
    sys.exit(checks.without_dependencies(sys.argv[1:], missing))

app = typer.Typer(
    name="pageturn", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
user = typer.Typer(help="The accounts of --auth FILE: add, list and remove users.")
app.add_typer(user, name="user")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
ForUser = Annotated[str, typer.Option("--user", help="Whose documents and conversations.")]
ForAll = Annotated[bool, typer.Option("--shared", help="The library that every user reads.")]


@app.callback(invoke_without_command=True)
@with_settings(*ALL)
def serve(ctx: typer.Context, settings: Settings) -> None:
    """Chat with your own documents. Without a command: serve the page."""
    if ctx.invoked_subcommand is None:
        from host.serve import serve as run

        run(settings, console.say)


@app.command()
@with_settings(*INDEXING)
def add(
    ctx: typer.Context,
    settings: Settings,
    paths: Annotated[list[Path], typer.Argument(help="Files and folders.", show_default=False)],
    owner: ForUser = OWNER,
    shared: ForAll = False,
) -> None:
    """Index files and folders; a line for each file. Exit status 1 if any was refused."""
    with connect.for_writing(settings, console.say) as host:
        if not console.show_adding(host.add(paths, _owner(owner, shared))):
            raise typer.Exit(1)


@app.command()
@with_settings(*ANSWERING)
def ask(
    ctx: typer.Context,
    settings: Settings,
    question: Annotated[str, typer.Argument(help="What you want to know.", show_default=False)],
    session: Annotated[str | None, typer.Option(help="Go on with this conversation.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seed: Annotated[int | None, typer.Option(help="Makes sampling repeatable.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer, in tokens.")] = None,
    owner: ForUser = OWNER,
    as_json: AsJson = False,
) -> None:
    """Ask one question and print the answer, its sources and its cost."""
    given = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for mode in ("answer", "rewrite"):
        if mode in ctx.obj:  # said for this question; a conversation has its own otherwise
            options[mode] = getattr(settings, mode)
    with connect.for_writing(settings, console.say) as host:
        events = host.ask(question, session=session, options=options, owner=_owner(owner))
        if as_json:
            with console.only_results_on_stdout():
                turn = console.final_turn(events)
            console.print_json(turn)
        else:
            turn = console.show_answer(events)
            console.say(f"Go on with: python app.py ask --session {turn['session']} ...")
    if turn["error"]:
        console.say(f"error: {turn['error']}")
        raise typer.Exit(1)


@app.command()
@with_settings(*FOLDER)
def documents(
    ctx: typer.Context, settings: Settings, owner: ForUser = OWNER, as_json: AsJson = False
) -> None:
    """List the documents, those of the shared library among them."""
    with connect.for_reading(settings) as host:
        found = host.documents(_owner(owner)) if host else []
    if as_json:
        console.print_json(found)
    else:
        console.show_documents(found)


@app.command()
@with_settings(*ANSWERING)
def remove(
    ctx: typer.Context,
    settings: Settings,
    document_id: Annotated[str, typer.Argument(help="See `documents`.", show_default=False)],
    owner: ForUser = OWNER,
    shared: ForAll = False,
) -> None:
    """Remove a document from the database, the indexes and the disk."""
    with connect.for_writing(settings, console.say) as host:
        print(f"removed  {host.remove(document_id, _owner(owner, shared))['name']}")


@app.command("rebuild-index")
@with_settings(*INDEXING)
def rebuild_index(ctx: typer.Context, settings: Settings) -> None:
    """Build the indexes again from the database, with the embedder that is set now."""
    with connect.for_writing(settings, console.say) as host:
        if not console.show_rebuilding(host.rebuild_index()):
            raise typer.Exit(1)


@app.command()
@with_settings(*FETCHING)
def fetch(
    ctx: typer.Context,
    settings: Settings,
    model: Annotated[
        str | None,
        typer.Argument(help="A Hub id (owner/name), or nothing: the default models."),
    ] = None,
) -> None:
    """Download and check models. No other command uses the network."""
    from host.fetch import fetch_by_name

    fetch_by_name(model, settings.models_dir, console.say, console.download_bar)


@app.command()
@with_settings(*ANSWERING)
def doctor(ctx: typer.Context, settings: Settings, as_json: AsJson = False) -> None:
    """Check everything that Pageturn needs, and say what mends it. Exit status 1 if any is bad."""
    raise typer.Exit(checks.run(settings, as_json=as_json))


@app.command("kv-size")
@with_settings(*RECKONING)
def kv_size(
    ctx: typer.Context,
    settings: Settings,
    tokens: Annotated[int, typer.Option(help="Tokens of each session.", show_default=False)],
    sessions: Annotated[int, typer.Option(help="How many of them are held at once.")] = 1,
    layers: Annotated[int | None, typer.Option(help="Layers that keep KV.")] = None,
    heads: Annotated[int | None, typer.Option(help="Query heads.")] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="KV heads; as many as heads if left out.")
    ] = None,
    head_dim: Annotated[int | None, typer.Option(help="Numbers in a head.")] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        typer.Option(help="Of the pages that stay in full precision where the others are coded."),
    ] = "bfloat16",
    memory: Annotated[
        str,
        typer.Option(help="What KV may take: a size (8GiB), a fraction of what is free, or auto."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Work out how much memory KV takes: from a config.json, or from sizes given by hand."""
    from host.kv_size import kv_size as reckon

    sizes = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim}
    by_hand = "model" not in ctx.obj and any(size is not None for size in sizes.values())
    found = reckon(
        settings,
        model=None if by_hand else settings.model,
        sizes=sizes,
        tokens=tokens,
        sessions=sessions,
        dtype=dtype,
        memory=memory,
    )
    if as_json:
        console.print_json(found)
    else:
        console.show_kv_size(found)


@user.command("add")
@with_settings(*PEOPLE)
def user_add(
    ctx: typer.Context,
    settings: Settings,
    name: Annotated[str, typer.Argument(show_default=False)],
) -> None:
    """Add a user, or give one a new password. It is asked for, or read from standard input."""
    users = _users(settings)
    check_name(name)
    done = "added" if users.add(name, console.new_password(name)) else "new password for"
    print(f"{done}  {name}")


@user.command("list")
@with_settings(*PEOPLE)
def user_list(ctx: typer.Context, settings: Settings) -> None:
    """List the users."""
    for name in _users(settings).names():
        print(name)


@user.command("remove")
@with_settings(*PEOPLE)
def user_remove(
    ctx: typer.Context,
    settings: Settings,
    name: Annotated[str, typer.Argument(show_default=False)],
) -> None:
    """Remove a user with all documents and conversations: database, indexes, KV and disk."""
    users = _users(settings)
    if name == OWNER:  # what is there without accounts is nobody's to remove
        raise no_such_user(name)
    check_name(name)
    with connect.for_writing(settings, console.say) as host:
        host.note_leaving(name)
        had_account = users.remove(name)  # before the rest, so that nothing can come after
        gone = host.remove_owner(name)
    if not (had_account or any(gone.values())):
        raise no_such_user(name)
    console.show_removed(name, **gone)


@app.command()
@with_settings(*FOLDER)
def backup(
    ctx: typer.Context,
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="A new .zip file.", show_default=False)],
) -> None:
    """Save documents, conversations and index in one file, also while the server runs."""
    from host.backup import backup as save

    done = save(settings.data_dir, file)
    print(f"saved  {file}  ({done}, {done.size_bytes / 1e6:.1f} MB)")


@app.command()
@with_settings(*FOLDER)
def restore(
    ctx: typer.Context,
    settings: Settings,
    file: Annotated[Path, typer.Argument(help="What `backup` saved.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Give up what is there now.")] = False,
) -> None:
    """Bring back what `backup` saved. The server must not run."""
    from host.restore import restore_into

    print(f"restored  {restore_into(settings.data_dir, file, replace=replace)}")


def _users(settings: Settings) -> Users:
    if settings.auth is None:
        raise SettingRefused("Say which file holds the accounts: --auth FILE (or PAGETURN_AUTH).")
    return Users(settings.auth)


def _owner(owner: str, shared: bool = False) -> str:
    if not shared:
        return owner
    if owner != OWNER:
        raise SettingRefused("Give --user or --shared, not both.")
    return SHARED


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status. Known errors become one sentence on stderr."""
    environment.prepare()
    try:
        result: Any = app(arguments, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        return 130
    except TyperException as error:  # an unknown option or command, a missing argument
        print(f"error: {error.format_message()}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        told = explain(error)
        if told is None:
            raise
        print(f"error: {told.sentence}", file=sys.stderr)
        return told.exit_status


if __name__ == "__main__":
    sys.exit(main())
