"""The rules of security that can be read off the tree: the linter is on, and promises have tests.

Row 24 and the others are the lines of the table of promises; each is shown by a test that names it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECURITY_ROWS = [15, *range(19, 28), 28, 29, 30, 31, 33]
# Everything of ours that runs in a gateway; tests and programs that measure are let off some rules.
PRODUCT = ("gateway", "adapters")
_CODE = re.compile(r"#\s*noqa:\s*(?P<codes>[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)(?P<rest>.*)$")
_ROWS = re.compile(r"\b[Rr]ows?[ _](?P<rows>\d+(?:(?:, | and )\d+)*)")


def sources() -> Iterator[Path]:
    for directory in (*PRODUCT, "tests", "benchmarks", "docs"):
        yield from sorted((ROOT / directory).rglob("*.py"))


def without_reason(line: str) -> bool:
    """Whether it silences a rule of security, and does not say in parentheses why that is right."""
    found = _CODE.search(line)
    if found is None or not any(re.fullmatch(r"S\d{3}", code.strip()) for code in found["codes"].split(",")):
        return False
    return re.match(r"\s*\([^)]{4,}\)?", found["rest"]) is None


@pytest.mark.parametrize(
    ("line", "is_bare"),
    [
        ("x = f'…'  # noqa: S608", True),
        ("x = f'…'  # noqa: S608 ()", True),
        ("x = f'…'  # noqa: E501, S608", True),
        ("x = f'…'  # noqa: S608 (a constant)", False),
        ("x = f'…'  # noqa: SLF001", False),
    ],
)
def test_the_search_for_reasons_finds_what_it_looks_for(line: str, *, is_bare: bool) -> None:
    assert without_reason(line) == is_bare


def test_every_exception_from_a_rule_of_security_says_why() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sources()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if without_reason(line) and path != Path(__file__)
    ]
    assert bare == []


def test_the_rules_of_security_are_on_for_the_product_and_run_with_every_test() -> None:
    """Ruff's `S` are the checks of flake8-bandit: https://docs.astral.sh/ruff/rules/#flake8-bandit-s."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert lint["select"] == ["ALL"]
    assert not [code for code in lint["ignore"] if re.match(r"S(\d|$)", code)]
    relaxed = {place: codes for place, codes in lint["per-file-ignores"].items() if place.startswith(PRODUCT)}
    assert "S101" in relaxed.pop("gateway/testing/**")  # suites of tests, which no gateway loads
    assert not [code for codes in relaxed.values() for code in codes if re.match(r"S(\d|$)", code)]
    assert re.search(r"^test: .*\blint\b", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert "check test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def rows_of(text: str) -> set[int]:
    return {int(row) for found in _ROWS.finditer(text) for row in re.findall(r"\d+", found["rows"])}


def test_every_promise_of_security_is_named_by_a_test() -> None:
    named = {
        row
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__)
        for row in rows_of(path.read_text(encoding="utf-8"))
    }
    assert [row for row in SECURITY_ROWS if row not in named] == []
