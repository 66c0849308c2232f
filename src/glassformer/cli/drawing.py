"""Options of commands that draw tokens, said once."""

from typing import Annotated

import typer

TopK = Annotated[int | None, typer.Option(help="Draw among the K likeliest tokens.")]
TopP = Annotated[
    float | None, typer.Option(help="Draw among the likeliest tokens that together have probability P.")
]
MinP = Annotated[
    float | None, typer.Option(help="Draw among tokens at least P times as likely as the likeliest.")
]
