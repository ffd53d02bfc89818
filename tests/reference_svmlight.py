"""The svmlight format, read slowly and plainly; imports nothing from surestep."""

from __future__ import annotations

import re


class NotSvmlightError(Exception):
    """Carries the line and column, from 1, of the first error."""


def read(text: bytes) -> list[tuple[float, int | None, dict[int, float]]]:
    """Label, query id and features of every line that has any of them."""
    rows = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        tokens = [(m.start() + 1, m.group()) for m in re.finditer(rb"\S+", line.split(b"#")[0])]
        if not tokens:
            continue
        (column, label), *tokens = tokens
        row = _number(label, number, column), None, {}
        if tokens and tokens[0][1].startswith(b"qid:"):
            column, token = tokens.pop(0)
            if not re.fullmatch(rb"qid:-?\d{1,18}", token):
                raise NotSvmlightError(number, column)
            row = row[0], int(token[4:]), {}
        pairs = [(column, *_pair(token, number, column)) for column, token in tokens]
        for column, index, value in pairs:
            if index in row[2]:
                raise NotSvmlightError(number, column)
            row[2][index] = value
        rows.append(row)
    return rows


def _pair(token: bytes, line: int, column: int) -> tuple[int, float]:
    match = re.match(rb"(\d{1,18}):", token)
    if not match:
        raise NotSvmlightError(line, column)
    return int(match[1]), _number(token[match.end() :], line, column + match.end())


def _number(token: bytes, line: int, column: int) -> float:
    if b"_" in token:  # which Python allows
        raise NotSvmlightError(line, column)
    try:
        return float(token)
    except ValueError:
        raise NotSvmlightError(line, column) from None
