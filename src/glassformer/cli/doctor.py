"""`glassformer doctor`: whether this machine computes what it should."""

from typing import Annotated

import typer

from glassformer.cli import console

doctor_app = typer.Typer(rich_markup_mode=None)


@doctor_app.command(
    epilog="Example:  glassformer doctor --device cuda      (half a minute: most of it is compiling)"
)
@console.command
def doctor(
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Compare this machine's arithmetic with that of a CPU in double precision; show what is chosen here."""
    from dataclasses import asdict

    from glassformer.tools.doctor import examine

    facts, checks = examine(device)
    well = all(check.passed for check in checks)
    if json_:
        console.put_json({"well": well, "facts": facts, "checks": [asdict(check) for check in checks]})
    else:
        for name, value in facts.items():
            console.put(f"{name:12} {value}")
        console.put("")
        for check in checks:
            console.put(f"{'ok ' if check.passed else 'BAD'}  {check.name:32} {check.found}")
        console.put("All is well." if well else "Something is wrong: see the lines marked BAD.")
    if not well:
        raise typer.Exit(1)
