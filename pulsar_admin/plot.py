"""Charts: text for a terminal (plotext), PNG and SVG files (matplotlib); both are imported on first use."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from msgspec import Struct

from pulsar_admin.options import require_plot
from pulsar_admin.store.errors import InvalidValue
from pulsar_admin.store.extras import require

WIDTH_MAX = 120
BAR_HEIGHT, LINE_HEIGHT = 11, 16
FORMATS = ("png", "svg")
_TICKS = 8
_TICK_GAP = 3
_AXIS_COLUMNS = 12  # what values on the left take at most


class Chart(Struct, frozen=True):
    """Series over common x values. ``labels``: the text of each x value; ``series``: name → one number per x value."""

    title: str
    labels: Sequence[str]
    series: Mapping[str, Sequence[float]]
    unit: str = ""
    bars: bool = False


def bar_chart(chart: Chart) -> str:
    """Return a chart's first series as bars of text, as wide as the terminal, at most 120 columns."""
    plot = _new_plot(chart, BAR_HEIGHT)
    values = next(iter(chart.series.values()))
    columns = list(range(len(chart.labels)))
    plot.bar(columns, list(values), marker="sd", width=0.8 if len(columns) * 3 < _width() else 1)
    return _finish(plot, chart)


def line_chart(chart: Chart) -> str:
    """Return a chart's series as lines of text; several series get a legend."""
    plot = _new_plot(chart, LINE_HEIGHT)
    markers = ("braille", "dot", "x", "*", "o", "+")
    for number, (name, values) in enumerate(chart.series.items()):
        label = name if len(chart.series) > 1 else None
        plot.plot(list(range(len(values))), list(values), marker=markers[number % len(markers)], label=label)
    return _finish(plot, chart)


def save_charts(paths: Iterable[Path | None], charts: Sequence[Chart], heading: str = "") -> None:
    """Write charts, one below the other, into each new file (.png or .svg) that is named; raises InvalidValue, AlreadyExists."""
    from pulsar_admin.store.files import write_new_file

    for path in filter(None, paths):
        form = path.suffix.removeprefix(".").lower()
        if form not in FORMATS:
            raise InvalidValue(f"{path} is neither .png nor .svg", hint="give the file one of these endings")
        write_new_file(path, render_chart(charts, form, heading))


def render_chart(charts: Sequence[Chart], form: str, heading: str) -> bytes:
    """Return charts as the bytes of a picture; equal charts give equal bytes."""
    require("matplotlib", "a picture")
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "pulsar-admin", "font.size": 9}):
        figure = Figure(figsize=(10, 0.8 + 2.6 * len(charts)), dpi=120, layout="constrained")
        for axes, chart in zip(figure.subplots(len(charts), 1, squeeze=False)[:, 0], charts, strict=True):
            _draw(axes, chart)
        if heading:
            figure.suptitle(heading, x=0.01, horizontalalignment="left")
        out = BytesIO()
        figure.savefig(out, format=form, metadata={"Date": None} if form == "svg" else {"Software": "pulsar-admin"})
    return out.getvalue()


def _draw(axes: Any, chart: Chart) -> None:  # Any: matplotlib's axes
    columns = range(len(chart.labels))
    for name, values in chart.series.items():
        if chart.bars:
            axes.bar(columns, values, width=0.9, label=name)
        else:
            axes.plot(columns, values, label=name, linewidth=1.4)
    axes.set_title(chart.title, loc="left")
    axes.set_ylabel(chart.unit)
    ticks = _ticks(len(chart.labels), _TICKS)
    axes.set_xticks(ticks, [chart.labels[tick] for tick in ticks])
    axes.set_xlim(-0.6, len(chart.labels) - 0.4)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(axis="y", alpha=0.3)
    axes.get_yaxis().set_major_formatter(_thousands())
    if len(chart.series) > 1:
        axes.legend(loc="upper right")


def _thousands() -> Any:  # Any: matplotlib's formatter
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:,.0f}" if abs(value) >= 10 else f"{value:g}")


def _new_plot(chart: Chart, height: int) -> Any:  # Any: plotext has no types
    require_plot()
    import plotext

    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(_width(), height)
    plotext.title(chart.title)
    return plotext


def _finish(plot: Any, chart: Chart) -> str:  # Any: plotext has no types
    longest = max(map(len, chart.labels), default=1) + _TICK_GAP
    ticks = _ticks(len(chart.labels), min(_TICKS, max(2, (_width() - _AXIS_COLUMNS) // longest)))
    plot.xticks(ticks, [""] * len(ticks))
    _set_value_ticks(plot, chart)
    text = plot.uncolorize(plot.build())
    plot.clear_figure()
    lines = [line.rstrip() for line in text.rstrip().split("\n")]
    lines.append(_tick_labels(lines[-1], [chart.labels[tick] for tick in ticks]))
    return "\n".join(lines)


def _tick_labels(axis: str, labels: Sequence[str]) -> str:
    """Return a line of labels below an axis, each centered below its mark. (plotext orders them as a set of texts.)"""
    marks = [column for column, character in enumerate(axis) if character == "┬"]
    line = ""
    for mark, label in zip(marks, labels, strict=False):
        start = max(min(mark - len(label) // 2, len(axis) - len(label)), len(line) + bool(line))
        line = line.ljust(start) + label
    return line


def _set_value_ticks(plot: Any, chart: Chart) -> None:  # Any: plotext has no types
    values = [value for series in chart.series.values() for value in series]
    low, high = min(0, *values, 0), max(0, *values, 0)
    if low == high:
        high = low + 1
    plot.ylim(low, high)
    marks = [low + (high - low) * step / 4 for step in range(5)]
    plot.yticks(marks, [short_number(mark) for mark in marks])


def short_number(value: float) -> str:
    """Return a number with at most four digits and a suffix: 950, 12.3k, 4M."""
    for factor, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{suffix}"
    return f"{value:.3g}"


def _ticks(count: int, most: int) -> list[int]:
    """Return at most ``most`` evenly spread indexes below ``count``."""
    return list(range(0, count, max(-(-count // most), 1)))


def _width() -> int:
    return min(shutil.get_terminal_size((80, 24)).columns, WIDTH_MAX)
