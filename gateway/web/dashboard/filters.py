"""Numbers, sizes and times as people read them: the filters of the templates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from gateway.config.values import zone_of
from gateway.domain.visible import visible

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def number(value: float) -> str:
    """`1204` as `1,204`."""
    return f"{value:,}"


def short_number(value: float) -> str:
    """Few characters, for where there is little room: `12.4k`, `3.1M`."""
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:g}"


def change(value: float, before: float) -> str:
    """How much more or less something is than before, in percent: `+12%`; empty where nothing was before."""
    return "" if not before else "the same" if value == before else f"{100 * (value / before - 1):+,.0f}%"


def percent(value: float | None) -> str:
    """A share, as `82%`; a dash where there is none."""
    return "-" if value is None else f"{value:.0%}"


def usd(value: float) -> str:
    """Dollars; more digits where there is little, and a dash where no price is known."""
    return "-" if value == 0 else f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def size(value: int) -> str:
    """Bytes, as `12.3 KiB`."""
    if value < 1024:
        return f"{value} byte" if value == 1 else f"{value} bytes"
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.1f}".removesuffix(".0") + f" {unit}"
    raise AssertionError  # pragma: no cover (a number is below 1024 or not)


def duration(seconds: float) -> str:
    """The largest unit, as `3 minutes`."""
    for length, unit in _UNITS:
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return "less than a second"


def when(value: datetime | None, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Markup:
    """A moment: how long ago, or its date; the whole of it as the tooltip. Never is said with a dash."""
    if value is None:
        return Markup('<span class="quiet">never</span>')
    utc = value.astimezone(UTC)
    passed = now() - utc
    if timedelta(0) <= passed < timedelta(days=7):
        said = "just now" if passed < timedelta(seconds=5) else f"{duration(passed.total_seconds())} ago"
    else:
        said = f"{utc:%-d %b %Y, %H:%M} UTC"
    return Markup('<time datetime="{iso}" title="{title}">{said}</time>').format(
        iso=utc.isoformat(timespec="seconds"), title=f"{utc:%Y-%m-%d %H:%M:%S} UTC", said=said
    )


def clock(value: datetime, zone: str, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Markup:
    """A time as clocks of that zone show it, and how far away it is where it is to come; UTC as the tooltip.

    The zone stands beside the time, where it is shown; UTC is named here, for a zone that this machine knows no more.
    """
    utc = value.astimezone(UTC)
    try:
        local, named = utc.astimezone(zone_of(zone)), ""
    except ValueError:
        local, named = utc, " UTC"
    rest = (utc - now()).total_seconds()
    away = Markup(' <span class="quiet away">in {}</span>').format(duration(rest)) if rest > 0 else ""
    return Markup('<span><time datetime="{iso}" title="{title}">{said}</time>{away}</span>').format(
        iso=utc.isoformat(timespec="seconds"),
        title=f"{utc:%Y-%m-%d %H:%M:%S} UTC",
        said=f"{local:%a, %-d %b %Y, %H:%M}{named}",
        away=away,
    )


def coded(text: str) -> Markup:
    """What stands between backquotes as code, and the rest as text; a backquote that has no partner stays."""
    parts = [escape(part) for part in visible(text).split("`")]
    if len(parts) % 2 == 0:
        parts = [*parts[:-2], Markup("`").join(parts[-2:])]
    return Markup().join(
        Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )


FILTERS = {
    "coded": coded,
    "number": number,
    "short_number": short_number,
    "change": change,
    "percent": percent,
    "usd": usd,
    "size": size,
    "duration": duration,
    "when": when,
    "clock": clock,
    "visible": visible,
}
