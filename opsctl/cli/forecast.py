"""`opsctl forecast`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli import completing
from opsctl.cli.frame import Output, Settings
from opsctl.errors import OpsctlError, Refused

if TYPE_CHECKING:
    from opsctl.forecast.told import Told

GIB = "GIB"


def forecast(
    settings: Settings,
    service: Annotated[
        str,
        typer.Argument(
            metavar="SERVICE.yml",
            help="A file with one entry of sglang_services, or a service of the inventory.",
        ),
    ],
    variants: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE…", help="With --compare: more variants to put beside."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--service", metavar="NAME", help="Which one, if the file has several."),
    ] = None,
    model_config: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The model's config.json, or its folder."),
    ] = None,
    draft_config: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="The draft model's config.json, or its folder."),
    ] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", help="GPUs of the host.")] = None,
    gpu_name: Annotated[
        str, typer.Option(metavar="NAME", help="Their name, as nvidia-smi shows it.")
    ] = "",
    gpu_total: Annotated[
        float | None, typer.Option(metavar=GIB, help="Memory of one, as nvidia-smi shows it.")
    ] = None,
    gpu_free_before: Annotated[
        float | None, typer.Option(metavar=GIB, help="Least free memory before the weights.")
    ] = None,
    gpu_free_after: Annotated[
        float | None, typer.Option(metavar=GIB, help="Least free memory after the weights.")
    ] = None,
    gpu_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of the KV cache, as logged once.")
    ] = None,
    ram_total: Annotated[float | None, typer.Option(metavar=GIB, help="RAM of the host.")] = None,
    ram_available: Annotated[
        float | None,
        typer.Option(metavar=GIB, help="MemAvailable with this service stopped."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="journalctl's text of an earlier start."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What if: a flag, or a dotted key; null deletes.",
            autocompletion=completing.sets,
        ),
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            autocompletion=completing.fits,
            help="Largest value that fits, of hicache-ratio, hicache-size, mem-fraction-static or "
            "context-length.",
        ),
    ] = None,
    headroom: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="RAM that must be left. Default: memory.min_available."),
    ] = None,
    gpu_headroom: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="GPU memory that must be left for activations. Default: 5GiB where "
            "mem-fraction-static is written.",
        ),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Put the usual variants side by side.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Derive each figure step by step.")
    ] = False,
) -> None:
    """Say what a service will take, before anything is touched.

    GPU and host memory of every rank, what is left, how long the start takes, and what is known
    to go wrong with this combination on this version. SERVICE.yml works offline, from figures
    that you give; a service of the inventory asks its hosts.

    Ends with 0 if it fits, tightly or not, or if that is not known; 8 if it does not fit; 1 if
    the model is of a kind that is not forecast.
    """
    from opsctl.cli import foretelling
    from opsctl.forecast.question import Given, checked
    from opsctl.forecast.told import tell, wish

    if variants and not compare:
        more, change = variants[0], "=" in variants[0]
        raise Refused(
            f"{more}: one service at a time",
            hint=f"opsctl forecast {service} --set {more}, or --compare {more}"
            if change
            else f"opsctl forecast {more}",
        )
    wished = wish(fit, headroom, gpu_headroom, variants or () if compare else None, explain)
    given = checked(
        Given(
            gpus,
            gpu_name,
            gpu_total,
            gpu_free_before,
            gpu_free_after,
            gpu_tokens,
            ram_total,
            ram_available,
        )
    )
    files = foretelling.Files(name, model_config, draft_config, journal)
    if foretelling.is_file(service):
        question = foretelling.of_file(Path(service), given, files, tuple(sets or ()))
        _show([tell(question, wished)], settings)
        return
    asked = foretelling.of_hosts(settings, service, given, files, tuple(sets or ()))
    told = [
        tell(question, wished, host)
        for host, question in asked.items()
        if not isinstance(question, OpsctlError)
    ]
    _show(told, settings, lost=asked)


def _show(told: Sequence[Told], settings: Settings, lost: Mapping[str, Any] | None = None) -> None:
    """The answers, and how the command ends."""
    from opsctl.cli import fleet
    from opsctl.cli.console import data, page, show
    from opsctl.forecast.document import answer
    from opsctl.forecast.told import end

    if settings.form is Output.text:
        from opsctl.views.forecast import closing, drawing
        from opsctl.views.once import Once

        once = Once()
        for one in told:
            show(drawing(one, once), settings, width=page())
        for line in closing(told):
            show(line, settings, width=page())
    elif lost is None:
        data(answer(told[0]), settings.form)
    else:
        documents = [{"hostname": one.host, **answer(one)} for one in told]
        documents += [
            {"hostname": host, "error": found.message}
            for host, found in lost.items()
            if isinstance(found, OpsctlError)
        ]
        data({"schema_version": 1, "forecasts": documents}, settings.form, each="forecasts")
    fleet.raise_lost(lost or {})
    if error := end(told, shown=settings.form is Output.text):
        raise error
