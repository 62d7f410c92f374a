"""``perseus show``: pictures of what ``perseus solve`` found."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from perseus.cli.options import JsonOption, QuietOption
from perseus.cli.output import Output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from perseus.cli.result_folder import ResultFolder
    from perseus.report.frontier_plot import FrontierPicture
    from perseus.report.timeline import Timeline


class PictureFormat(str, enum.Enum):
    """Formats of pictures."""

    png = "png"
    svg = "svg"


def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `perseus solve -o DIR` wrote.")],
    picture_format: Annotated[
        PictureFormat | None,
        typer.Option("--format", help="Format of the pictures; that of FILE's name, else png.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Draw everything into this one picture."),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Draw the frontier, and the pipeline's timeline before and after.

    Writes frontier.png and timeline.png (or .svg) into DIR, or one picture with both where -o says. Opens no window.
    """
    chosen_format = _chosen_format(picture_format, output)
    out = Output(as_json=as_json, quiet=quiet)

    from perseus.cli.result_folder import ResultFolder
    from perseus.report.picture import drawing, save_figure

    with drawing():
        scene = _Scene.of_folder(ResultFolder.to_read(folder))
        paths = []
        for name, figure in scene.figures(on_one_sheet=output is not None):
            path = output or folder / f"{name}.{chosen_format}"
            path.parent.mkdir(parents=True, exist_ok=True)
            paths.append(str(save_figure(figure, path, chosen_format)))
    out.show_text("\n".join(f"wrote {path}" for path in paths))
    out.show_json({"files": paths})


def _chosen_format(given: PictureFormat | None, output: Path | None) -> Literal["png", "svg"]:
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    if given is None:
        return _format_of_suffix(suffix, output) if output is not None else "png"
    if suffix in ("png", "svg") and suffix != given.value:
        raise typer.BadParameter(
            f"{given.value} contradicts the name {str(output)!r}; leave --format out, or rename the file",
            param_hint="'--format'",
        )
    return given.value


def _format_of_suffix(suffix: str, output: Path | None) -> Literal["png", "svg"]:
    if suffix == "png":
        return "png"
    if suffix == "svg":
        return "svg"
    raise typer.BadParameter(
        f"{str(output)!r} ends in neither .png nor .svg; rename it, or give --format", param_hint="'--output'"
    )


class _Scene(NamedTuple):
    """Everything that there is to draw."""

    frontier: FrontierPicture
    before: Timeline
    after: Timeline

    @classmethod
    def of_folder(cls, folder: ResultFolder) -> _Scene:
        """Read a result folder."""
        from perseus.report.frontier_plot import FrontierPicture
        from perseus.report.timeline import Timeline

        plan, max_clock_plan = folder.plan(), folder.max_clock_plan()
        frontier = FrontierPicture.of_plans(plan, max_clock_plan, *folder.frontier())
        end_s = frontier.end_s
        return cls(frontier, Timeline.of_plan(max_clock_plan, end_s), Timeline.of_plan(plan, end_s))

    def figures(self, *, on_one_sheet: bool) -> Iterator[tuple[str, Figure]]:
        """Draw; return each picture's name and figure."""
        from perseus.report.picture import frontier_figure, sheet_figure, timeline_figure

        if on_one_sheet:
            yield "sheet", sheet_figure(self.frontier, self.before, self.after)
        else:
            yield "frontier", frontier_figure(self.frontier)
            yield "timeline", timeline_figure(self.frontier, self.before, self.after)
