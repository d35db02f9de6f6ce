"""Sums that a person types, worked out without `eval` and within bounds."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

MAX_CHARS = 120
_MAX_EXPONENT = 64
_MAX_BASE = 10**6
_MAX_BITS = 4_000  # of a result; Python refuses to print integers of more than 4300 digits

_SIGNS: dict[int, str] = {ord("^"): "**", 0xD7: "*", 0xF7: "/"}

Number = int | float


class NotASum(ValueError):
    """The text is no arithmetic, or there is nothing in it to work out."""


def evaluate(text: str) -> str:
    """The value of numbers joined by + - * / // % ^ and parentheses; the signs of a school book count too.

    Raises:
        NotASum: it is something else.
        ArithmeticError: it has no value, or one too large to write; the text says so.
    """
    if len(text) > MAX_CHARS:
        raise NotASum("too long")
    try:
        tree = ast.parse(text.translate(_SIGNS).strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:  # MemoryError: parentheses too deep
        raise NotASum("no arithmetic") from error
    if not isinstance(tree, ast.BinOp):
        raise NotASum("nothing to work out")
    try:
        return _shown(_value(tree))
    except ZeroDivisionError as error:
        raise ZeroDivisionError("Nothing can be divided by zero.") from error
    except OverflowError as error:
        raise OverflowError("That is too large for me.") from error


def _power(base: Number, exponent: Number) -> Number:
    if abs(exponent) > _MAX_EXPONENT or abs(base) > _MAX_BASE:
        raise OverflowError
    if base < 0 and not float(exponent).is_integer():
        raise ArithmeticError("That has no real value.")
    result: Number = base**exponent
    return result


_OPERATORS: dict[type[ast.AST], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def _value(node: ast.expr) -> Number:
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


def _shown(number: Number) -> str:
    if isinstance(number, int):
        if number.bit_length() > _MAX_BITS:
            raise OverflowError
        return str(number)
    if number in (float("inf"), float("-inf")):
        raise OverflowError
    return f"{number:.12g}"
