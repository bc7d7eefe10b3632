"""The text of the metrics report, in PyTorch/XLA's format. It knows nothing of devices: data in, text out.

Differs from PyTorch/XLA in one thing: parts of a time are cut, not rounded, so that 1.6 ms is 001ms600us and not 002ms.
"""
import dataclasses
import os

# How the sum of a metric is called, and how wide its microseconds are filled with zeros.
FORMAT_2019 = ("Counter", 3)
FORMAT_2_9 = ("Accumulator", 7)

_NS_PARTS = ((86_400_000_000_000, 2, "d"), (3_600_000_000_000, 2, "h"), (60_000_000_000, 2, "m"), (1_000_000_000, 2, "s"),
             (1_000_000, 3, "ms"))
_PERCENTILES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)


def format_time(nanoseconds, width=7):
    """Days, hours, minutes, seconds and milliseconds from the first that is not zero, then microseconds."""
    left = max(0, int(nanoseconds))
    text = ""
    for size, digits, unit in _NS_PARTS:
        part, left = divmod(left, size)
        if part or text:
            text += f"{part:0{digits}d}{unit}"
    return f"{text}{left / 1000:0{width}.3f}us"


def format_bytes(count):
    units = ("B", "KB", "MB", "GB", "TB", "PB")
    count, at = float(count), 0
    while count >= 1024 and at + 1 < len(units):
        count, at = count / 1024, at + 1
    return f"{count:.2f}{units[at]}"


def _writer(kind, width):
    if kind == "time":
        return lambda value: format_time(value, width)
    return format_bytes if kind == "bytes" else lambda value: f"{value:.2f}"


def percentiles():
    """The percentiles to show: XLA_METRICS_PERCENTILES, fractions between 0 and 1 with colons between them."""
    text = os.environ.get("XLA_METRICS_PERCENTILES")
    if not text:
        return _PERCENTILES
    found = tuple(float(part) for part in text.split(":"))
    if any(not 0 <= part < 1 for part in found):
        raise ValueError(f"XLA_METRICS_PERCENTILES: '{text}' has to be fractions of 1, such as 0.1:0.5:0.9")
    return found


@dataclasses.dataclass
class Summary:
    """What is known of samples that were not kept: percentiles, and how many came in which time."""

    percentiles: dict
    seconds: float
    count: int
    total: int


def _summary(samples):
    """The summary of kept samples, a list of (seconds, value)."""
    ordered = sorted(value for _, value in samples)
    shown = {100 * part: ordered[int(part * len(ordered))] for part in percentiles()}
    return Summary(shown, samples[-1][0] - samples[0][0], len(samples), sum(ordered))


def _metric(name, metric, style):
    total, accumulator, kept, kind = metric
    title, width = style
    write = _writer(kind, width)
    lines = [f"Metric: {name}", f"  TotalSamples: {total}", f"  {title}: {write(accumulator)}"]
    if not kept:
        return lines
    kept = kept if isinstance(kept, Summary) else _summary(kept)
    if kept.seconds > 0:
        lines.append(f"  ValueRate: {write(kept.total / kept.seconds)} / second")
        lines.append(f"  Rate: {kept.count / kept.seconds:g} / second")
    lines.append("  Percentiles: " + "; ".join(f"{part:g}%={write(value)}" for part, value in kept.percentiles.items()))
    return lines


def kept_samples():
    """How many samples of a metric the percentiles and rates are of: XLA_METRICS_SAMPLES."""
    return int(os.environ.get("XLA_METRICS_SAMPLES", "1024"))


def render(metrics, counters, style):
    """The report: metrics, then counters, by name; what was never counted is left out.

    `metrics` has by name (samples ever, their sum, the kept ones as (seconds, value) or their Summary, and what they are:
    'time' in nanoseconds, 'bytes' or 'number').
    """
    lines = []
    for name in sorted(metrics):
        lines += _metric(name, metrics[name], style)
    for name in sorted(counters):
        if counters[name]:
            lines += [f"Counter: {name}", f"  Value: {counters[name]}"]
    return "\n".join(lines) + "\n" if lines else ""
