"""HTML pages that need nothing but themselves: text, tables, and pictures in SVG."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 0 auto; max-width: 72rem;
       padding: 0 1rem 3rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-top: 2px solid #ddd; padding-top: 1.5rem; }
nav a { display: inline-block; margin-right: 1rem; padding: .2rem 0; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem;
            margin: 1rem 0; }
figure { margin: 0; max-width: 38rem; }
figure img { width: 100%; height: auto; display: block; }
figcaption { font-size: .9rem; color: #444; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
@media (min-width: 40rem) { td { white-space: nowrap; } }
details { margin: .75rem 0; }
summary { cursor: pointer; padding: .3rem 0; }
.finding { border-left: .3rem solid #8c8c8c; padding: .1rem 1rem; margin: 1rem 0; }
.finding.yes { border-color: #009e73; } .finding.no { border-color: #d55e00; }
.finding.partly { border-color: #e69f00; }
.verdict { font-weight: 700; }
code { background: #f3f3f3; padding: .1rem .3rem; overflow-wrap: anywhere; }
"""


def text(words: object) -> str:
    """Words as HTML."""
    return html.escape(str(words))


def paragraph(words: str) -> str:
    """Return a paragraph."""
    return f"<p>{text(words)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; it scrolls by itself where the screen is narrow."""
    cells = "".join(f"<th scope='col'>{text(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{text(number(cell))}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<div class='wide'><table><thead><tr>{cells}</tr></thead><tbody>\n{body}</tbody></table></div>"


def number(value: object) -> str:
    """Return a number with three digits that count; anything else as it is."""
    if not isinstance(value, float):
        return str(value)
    if math.isinf(value):
        return "not reached"
    if math.isnan(value):
        return "-"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def picture(figure: Any, caption: str, path: Path | None = None) -> str:
    """Return a matplotlib figure as part of a page; with a path it is also written there."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": caption}):  # the same picture is the same file
        figure.savefig(file, format="svg", metadata={"Date": None})
    if path is not None:
        path.write_bytes(file.getvalue())
    data = base64.b64encode(file.getvalue()).decode()
    source = f"data:image/svg+xml;base64,{data}"
    return f"<figure><img alt='{text(caption)}' src='{source}'><figcaption>{text(caption)}</figcaption></figure>"


def pictures(parts: Iterable[str]) -> str:
    """Return pictures side by side, or one below the other on a narrow screen."""
    return f"<div class='pictures'>{''.join(parts)}</div>"


def folded(title: str, content: str, *, is_open: bool = False) -> str:
    """Return something that opens and closes at a click."""
    return f"<details{' open' * is_open}><summary>{text(title)}</summary>{content}</details>"


def page(title: str, parts: Iterable[str]) -> str:
    """Return a whole page."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<link rel='icon' href='data:,'><title>{text(title)}</title><style>{STYLE}</style></head>\n<body>"
        f"<h1>{text(title)}</h1>\n{chr(10).join(parts)}</body></html>\n"
    )
