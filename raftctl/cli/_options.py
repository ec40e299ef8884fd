"""Options that many commands share, and how commands take them.

A command takes a dataclass of options, such as `Printer`, as one parameter: `flattened` makes
each field an option of the command. So the options of commands that ask the same cluster are
written once, and so is what a command does with them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from raftctl.cli._arguments import (
    ADDRESSES_DEFAULT,
    BOOTSTRAP_VARIABLE,
    bootstrap_servers,
    local_brokers,
    not_empty,
)
from raftctl.cli._output import Output, say, show, table
from raftctl.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Command = TypeVar("Command", bound=Callable[..., Any])

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        help="Brokers to ask, of any Kafka cluster.",
        callback=bootstrap_servers,
        envvar=BOOTSTRAP_VARIABLE,
        default_factory=local_brokers,
        show_default=ADDRESSES_DEFAULT,
    ),
]
ConfigOption = Annotated[
    str, typer.Option("--config", metavar="FILE", help="The node's .properties file.")
]
DirectoryOption = Annotated[
    str, typer.Option("--dir", metavar="DIR", help="The directory of the cluster.")
]
OutputOption = Annotated[
    Output, typer.Option("--output", metavar="table|json", help="How to print the result.")
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option("--override", "-o", metavar="KEY=VALUE", help="Sets a configuration key."),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="A setting of librdkafka's client, e.g. `acks=1`."),
]
CommandConfigOption = Annotated[
    str | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="How to log in to a secured cluster: the client's .properties, as of Kafka's tools.",
    ),
]
TopicOption = Annotated[
    str,
    typer.Option(
        "--topic", metavar="TOPIC", callback=not_empty("--topic"), help="Topic of the records."
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Checks the request; changes nothing.")
]
ValidateOption = Annotated[
    bool, typer.Option("--validate-only", help="Checks the request; changes nothing.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """How a command prints its result."""

    output: OutputOption = Output.TABLE

    def show(self, document: Any, text: str) -> None:
        """Prints the document as JSON, or the text."""
        show(self.output, document, text)

    def say(self, document: Any, text: str) -> None:
        """Prints the document as one line of JSON, or the text; a result may be many of these."""
        say(json.dumps(document) if self.output is Output.JSON else text)

    def show_rows(
        self,
        columns: Sequence[str],
        documents: Iterable[Mapping[str, Any]],
        empty: str = "nothing to show",
    ) -> None:
        """Prints the documents as JSON, or a row of each one's values under the columns."""
        found = list(documents)
        self.show(found, table(columns, [list(one.values()) for one in found], empty))


class CommandGroup(typer.Typer):
    """Commands of one subject: their names on the command line follow that of the group."""

    def __init__(self, summary: str) -> None:
        super().__init__(help=summary, no_args_is_help=True)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
        """See `typer.Typer.command`; the function may take dataclasses of options."""
        register = super().command(name, **settings)

        def decorate(function: Command) -> Command:
            register(flattened(function))
            return function

        return decorate


def flattened(function: Callable[..., Any]) -> Callable[..., Any]:
    """The command with an option for each field of the dataclasses that it takes.

    Fields stand where their dataclass stands among the parameters. Only those of a `Printer` that
    have defaults stand behind the command's own options, inherited ones last.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, dict[str, inspect.Parameter]] = {}
    first: list[inspect.Parameter] = []
    last: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if dataclasses.is_dataclass(hints[name]):
            groups[name] = _fields(hints[name])
            for one in groups[name].values():
                is_common = issubclass(hints[name], Printer)
                has_default = one.default is not inspect.Parameter.empty
                (last if is_common and has_default else first).append(one)
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            first.append(parameter.replace(kind=kind, annotation=hints[name]))

    @functools.wraps(function)
    def run(**given: Any) -> Any:
        for name, fields in groups.items():
            given[name] = hints[name](**{field: given.pop(field) for field in fields})
        return function(**given)

    parameters = [*first, *last]
    taken = groups.keys() & {one.name for one in parameters}
    invariant(not taken, f"options and dataclasses have names of their own: {sorted(taken)}")
    # Typer asks for both.
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _fields(group: type) -> dict[str, inspect.Parameter]:
    """The fields of a dataclass as parameters, inherited ones last."""
    hints = typing.get_type_hints(group, include_extras=True)
    known = inspect.signature(group).parameters
    own = [name for base in group.__mro__ for name in vars(base).get("__annotations__", ())]
    return {name: known[name].replace(annotation=hints[name]) for name in own}
