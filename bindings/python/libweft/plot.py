"""Pictures of losses as SVG; nothing else is needed."""

import html
import math

from ._errors import InvalidArgument

_COLOURS = ("#1f5fa8", "#c2571a", "#2f7d4f", "#8a3f8f", "#7a6a1f", "#b03a48")


class Picture:
    """An SVG: shown by notebooks, saved by `save`."""

    def __init__(self, text):
        self.text = text

    def _repr_svg_(self):
        return self.text

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.text)

    def __str__(self):
        return self.text


def _ticks(low, high, count=5):
    """Round numbers between two."""
    span = high - low or abs(high) or 1.0
    step = 10 ** math.floor(math.log10(span / count))
    step *= next(m for m in (1, 2, 5, 10) if span / (step * m) <= count)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low, high):
    """Logarithms of 1, 2 and 5 times powers of ten between two logarithms; of the powers alone where they are many."""
    digits = (1, 2, 5) if high - low < 2.5 else (1,)
    every = range(math.floor(low), math.ceil(high) + 1, max(math.ceil((high - low) / 8), 1))
    found = [math.log10(d) + k for k in every for d in digits if low <= math.log10(d) + k <= high]
    return found if len(found) > 1 else _ticks(low, high)


def _numbers(values):
    values = values.tolist() if hasattr(values, "tolist") else [float(v) for v in values]
    return values if isinstance(values, list) else [values]


def lines(series, title="", x="step", y="loss", log=False, width=640, height=400):
    """Lines of numbers: a list, or a dict of lists by name. What is not finite is a gap.

    >>> wf.plot.lines({"train": [3.0, 2.0, 1.5]}).text[:4]
    '<svg'
    """
    series = {k: _numbers(v) for k, v in (series if isinstance(series, dict) else {"": series}).items()}
    known = [v for values in series.values() for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not known:
        raise InvalidArgument("plot: there is no finite number to draw")

    def scale(v):
        return math.log10(v) if log else v

    low, high = scale(min(known)), scale(max(known))
    if low == high:
        low, high = low - 0.5, high + 0.5
    longest = max(max(map(len, series.values())) - 1, 1)
    left, right, top, bottom = 64, 16, 36 if title else 16, 44

    def at(i, v):
        return (left + (width - left - right) * i / longest, top + (height - top - bottom) * (high - scale(v)) / (high - low))

    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
        'font-family="sans-serif" font-size="12">'
        % (width, height, width, height),
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for tick in _log_ticks(low, high) if log else _ticks(low, high):
        v = 10**tick if log else tick
        _, py = at(0, v)
        out.append(
            '<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>'
            % (left, width - right, py, py, left - 6, py + 4, v)
        )
    for tick in _ticks(0, longest):
        px = left + (width - left - right) * tick / longest
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%.4g</text>' % (px, height - bottom + 18, tick))
    for n, (name, values) in enumerate(series.items()):
        colour = _COLOURS[n % len(_COLOURS)]
        for piece in _pieces(values, log):
            points = " ".join("%.1f,%.1f" % at(i, v) for i, v in piece)
            out.append('<polyline fill="none" stroke="%s" stroke-width="1.6" points="%s"/>' % (colour, points))
        if name:
            out.append(
                '<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>'
                % (width - right - 6, top + 16 + 16 * n, colour, html.escape(name))
            )
    out.append(
        '<text x="%d" y="%d" text-anchor="middle">%s</text>' % ((left + width - right) // 2, height - 8, html.escape(x))
    )
    out.append(
        '<text x="14" y="%d" text-anchor="middle" transform="rotate(-90 14 %d)">%s</text>'
        % (height // 2, height // 2, html.escape(y))
    )
    if title:
        out.append('<text x="%d" y="22" text-anchor="middle" font-size="14">%s</text>' % (width // 2, html.escape(title)))
    return Picture("\n".join(out + ["</svg>"]))


def _pieces(values, log):
    piece = []
    for i, v in enumerate(values):
        if math.isfinite(v) and (v > 0 or not log):
            piece.append((i, v))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece if len(piece) > 1 else piece * 2
