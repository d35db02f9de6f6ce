"""Sums that a person types, worked out without `eval`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

MAX_CHARS = 120
_SIGNS = {0xD7: "*", 0xF7: "/"}  # those of a school book
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class NotASum(ValueError):
    """The text is no arithmetic, or there is nothing in it to work out."""


def evaluate(text: str) -> str:
    """The value of numbers joined by + - * / and parentheses.

    Raises:
        NotASum: it is something else.
        ZeroDivisionError: it has no value.
    """
    if len(text) > MAX_CHARS:
        raise NotASum("too long")
    try:
        tree = ast.parse(text.translate(_SIGNS).strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:  # MemoryError: parentheses too deep
        raise NotASum("no arithmetic") from error
    if not isinstance(tree, ast.BinOp):
        raise NotASum("nothing to work out")
    value = _value(tree)
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_value(left), _value(right))
    raise NotASum("no arithmetic")
