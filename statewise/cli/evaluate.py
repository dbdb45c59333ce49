"""`statewise evaluate`: how surprised is a trained model by a text?"""

from pathlib import Path
from typing import Annotated

import typer

from statewise.cli.output import print_json
from statewise.cli.run_argument import open_run


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder.")],
    text: Annotated[
        list[str] | None, typer.Option("--text", "-t", help="File or folder. Default: what training held out.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The result for machines.")] = False,
) -> None:
    """Perplexity beside its anchors, and bits per byte, which compare across tokenizers.

    Example: statewise evaluate runs/lstm --text other.txt
    """
    opened = open_run(run)
    result = opened.evaluate(text)
    if json_:
        print_json(result._asdict())
        return

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    read = ", ".join(text) if text else "its held-out text"
    table = Table(title=escape(f"{run} on {read}"), title_justify="left")
    table.add_column("predictor")
    table.add_column("perplexity", justify="right")
    table.add_row("perfect", "1.000")
    table.add_row(f"[bold]{opened.spec.model.kind}[/]", f"[bold]{result.perplexity:.3f}[/]")
    table.add_row("unigram (frequencies alone)", f"{result.unigram_perplexity:.3f}")
    table.add_row("uniform (knows nothing)", f"{result.uniform_perplexity:.3f}")
    console = Console()
    console.print(table)
    console.print(
        f"{result.nats_per_token:.4f} nats per token · {result.bits_per_byte:.4f} bits per byte · "
        f"{result.tokens:,} tokens, {result.bytes:,} bytes, {result.unknown:,} unknown",
        highlight=False,
    )
