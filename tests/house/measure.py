"""Sizes, imports and repetition of a checkout: `python -m tests.house.measure [--tree PATH]`.

It reads files only, so two checkouts can be compared, whatever their modules are called.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

LARGEST_MODULE = 650
CONTRACT = {"messages", "protocols", "errors"}
# The way of a message, in reading order. A tree without `gateway/pipeline/` is read by the table in its DESIGN.md.
WAY = ("supervisor", "inbox", "scheduler", "dispatcher", "turn", "answer", "commit", "outbox")
LITERARY = ("whoever", "nobody", "anew", "by itself", "theirs")

# Where a path below gateway/ belongs; the first that fits. Surfaces only ask, a service and what lies under it decide.
SURFACES = {
    "page": "web/dashboard/",
    "route": "web/api/",
    "SDK": "sdk/",
    "command line": "cli/",
    "chat": "(pipeline/|services/)?commands/",
    "tool": ".*tools",
}
LAYERS = {**SURFACES, "service": "(desk|services)/", "core": ""}
# A function of a surface only asks if it, or one that it calls in its folder, names the first and none of the second.
# A tool of the agent asks what lies below the services: the turn, and not the tool, knows the person and the role.
ASKED = re.compile("caller|_?services?|client|ethos")
BEHIND = re.compile(r"open(ed)?_\w+|_?review|_?trace_store|_?desk|_store|_?identities")
TOOL_ASKED = re.compile("sessions|_?trace_store")
_LET_IN = (
    r"_?let_in\(((self, )?(request|call)|connection)|approve\(.*(who|body)|_decide\((self, caller: Caller, )?who"
    r"|decision\(|decide\(self, request"
)
# An operation: the paths that can state it, and how the head of a function reads that states it: `name(parameters`.
OPERATIONS = {
    "undo a memory change": (
        "memory|review",
        r"undo(_entry|_change)?\(.*(scope|caller|entry|change|form)|_undo\((self, )?call|_?take(n)?_back\(",
    ),
    "approve a proposal": (
        "memory|proposals",
        r"approve(_proposal)?\(|_approve\((self, )?call|decide\(self, (proposal|request)|_decide\((self, )?numbers?",
    ),
    "link two people": (
        "link|people|users",
        r"(make_)?link(_users|_people)?\(.*(one|other|form|body)|operate\(|decide\(self, (link|one)",
    ),
    "search traces": ("trace|cli/memory", r"_?search(_memory|_traces)?\(|(list|show)\(self, request"),
    "write a document": (
        r"memory/(markdown|provider)|(desk|services|sdk|web/api|cli)/memory|pages/memory",
        r"write(_document)?\(.*(content|body)|edit(_memory)?\(.*(start|wanted)|save\(self, request",
    ),
    "let a stranger in": (
        "pair|people|admission",
        _LET_IN,
    ),
    "retry a delivery": (
        "deliver|queue|box",
        r"retry(_inbox|_outbox|_delivery)?\(.*(seq|message)|_change\(queue|change\(self, request",
    ),
    "fork a session": ("session", r"fork(_session)?\("),
}


Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Module:
    """A file of Python; `path` is relative to the checkout."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        """The folder or the module at the top of `gateway/` that it belongs to; all adapters are one room."""
        parts = self.path.with_suffix("").parts
        return parts[1] if parts[0] == "gateway" else parts[0]

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    def functions(self) -> Iterator[Function]:
        """Every function, those inside functions too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


class Checkout:
    """A tree of this project, of today or of any earlier day."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def modules(self) -> Mapping[str, Module]:
        return {module.name: module for package in ("gateway", "adapters") for module in self._read(package)}

    def _read(self, folder: str) -> Iterator[Module]:
        for path in sorted((self.root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            yield Module(path.relative_to(self.root), text, ast.parse(text))

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """What each module imports of the product, at its top or inside a function."""
        return {name: set(self._imported(module)) - {name} for name, module in self.modules.items()}

    def _imported(self, module: Module) -> Iterator[str]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                asked = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                asked = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for name in asked:
                parts = name.split(".")
                prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
                yield from [prefix for prefix in prefixes if prefix in self.modules][:1]

    def arrows(self) -> Mapping[str, set[str]]:
        """Which rooms each room imports."""
        found: dict[str, set[str]] = {module.room: set() for module in self.modules.values()}
        for name, others in self.imports.items():
            found[self.modules[name].room] |= {self.modules[other].room for other in others}
        return {room: others - {room, "__init__"} for room, others in found.items() if room != "__init__"}

    def single_importer(self) -> list[tuple[Module, Module]]:
        """The modules that one module alone imports, which lies in the same folder; with that one."""
        importers: dict[str, list[str]] = {name: [] for name in self.modules}
        for name, others in self.imports.items():
            for other in others:
                importers[other].append(name)
        pairs = [(self.modules[name], self.modules[by[0]]) for name, by in importers.items() if len(by) == 1]
        return [(one, by) for one, by in pairs if one.path.parent == by.path.parent and one.path.stem != "__init__"]

    def callables(self) -> Counter[str]:
        """How many parameters and fields are annotated as `Callable`."""
        found: Counter[str] = Counter()
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    fields = (entry.annotation for entry in node.body if isinstance(entry, ast.AnnAssign))
                    found["fields"] += sum(map(_is_callable, fields))
                elif isinstance(node, Function):
                    kind = "of constructors" if node.name == "__init__" else "of other functions"
                    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    found[kind] += sum(_is_callable(parameter.annotation) for parameter in given)
        return found

    def places(self, operation: str) -> Mapping[str, list[str]]:
        """The functions that state an operation, by layer; a star marks those of surfaces that do not only ask.

        In-memory twins do not count, nor does a protocol, nor a method that ends in another of the same class.
        """
        paths, heads = OPERATIONS[operation]
        found: dict[str, list[str]] = {}
        for module in self.modules.values():
            package, _, path = module.path.as_posix().partition("/")
            if package != "gateway" or "in_memory" in path or not re.search(paths, path):
                continue
            layer = next(name for name, where in LAYERS.items() if re.match(where, path))
            stating = [one for one in module.functions() if re.match(heads, _head(one)) and not _is_stub(one)]
            for function in _last_of(stating) if layer not in SURFACES else stating:
                is_question = layer == "SDK" or _only_asks(function, self._beside(module), layer)
                mark = "" if layer not in SURFACES or is_question else "*"
                found.setdefault(layer, []).append(f"{path}:{function.name}{mark}")
        return found

    def _beside(self, module: Module) -> Mapping[str, Function]:
        beside = (other for other in self.modules.values() if other.path.parent == module.path.parent)
        named = {function.name: function for other in beside for function in other.functions()}
        return named | {function.name: function for function in module.functions()}

    def way(self) -> list[Path]:
        """The files that a reader follows for one message."""
        if (self.root / "gateway/pipeline").is_dir():
            named = ["messages.py", *(f"pipeline/{name}.py" for name in WAY)]
        else:
            design = (self.root / "gateway/DESIGN.md").read_text(encoding="utf-8")
            rows = [line.split("|")[1] for line in design.splitlines() if line.startswith("| `")]
            named = re.findall(r"`([\w/]+\.py)`", " ".join(rows))
        return [path for path in (self.root / "gateway" / name for name in named) if path.is_file()]

    def lines(self, folders: Iterable[str], *suffixes: str) -> int:
        """The lines of all files of a kind; libraries of others do not count."""
        return sum(
            path.read_text(encoding="utf-8").count("\n")
            for folder in folders
            for path in (self.root / folder).rglob("*")
            if path.suffix in suffixes and "vendor" not in path.parts
        )

    def literary_words(self) -> Counter[str]:
        """How often each stands in the product and its documentation, as whole words."""
        found: Counter[str] = Counter()
        named = [self.root / name for name in ("README.md", "CHANGELOG.md")]
        trees = [path for folder in ("gateway", "adapters", "docs") for path in (self.root / folder).rglob("*")]
        for path in named + trees:
            if path.is_file() and path.suffix in (".py", ".md", ".html", ".js", ".sql") and "vendor" not in path.parts:
                text = path.read_text(encoding="utf-8").lower()
                found.update({word: len(re.findall(rf"\b{word}\b", text)) for word in LITERARY})
        return found


def _is_callable(annotation: ast.expr | None) -> bool:
    return annotation is not None and "Callable" in ast.unparse(annotation)


def _is_stub(function: Function) -> bool:
    last = function.body[-1]
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)


def _head(function: Function) -> str:
    """Name and parameters; a page's context is what `self` was where pages were classes."""
    return f"{function.name}({ast.unparse(function.args)}".replace("(context: PageContext", "(self")


def _last_of(stating: Sequence[Function]) -> list[Function]:
    """Without those that call another of them on the same object: they are one statement."""
    names = {function.name for function in stating}
    return [function for function in stating if not names & (_called_on_self(function) - {function.name})]


def _called_on_self(function: Function) -> set[str]:
    nodes = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    own = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
    return {node.attr for node in own if ast.unparse(node.value) == "self"}


def _only_asks(function: Function, others: Mapping[str, Function], layer: str) -> bool:
    """Whether it hands the operation on; `others` are the functions of the same folder by name."""
    words = _words(function)
    if layer == "tool":
        return any(map(TOOL_ASKED.fullmatch, words))
    words |= {word for name in words & others.keys() for word in _words(others[name])}
    return any(map(ASKED.fullmatch, words)) and not any(map(BEHIND.fullmatch, words))


def _words(function: Function) -> set[str]:
    nodes = list(ast.walk(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def cycles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of rooms that reach each other, the largest first."""

    def reached(room: str) -> set[str]:
        seen: set[str] = set()
        waiting = [room]
        while waiting:
            new = arrows.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        return seen

    reach = {room: reached(room) for room in arrows}
    groups = {frozenset(other for other in reach[room] if room in reach.get(other, ())) for room in arrows}
    return sorted((sorted(group) for group in groups if len(group) > 1), key=lambda group: (-len(group), group))


def spread(sizes: Iterable[int]) -> str:
    """Count, median, p90 and maximum in one line."""
    ordered = sorted(sizes)
    if not ordered:
        return "none"
    middle, ninth = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)]
    return f"{len(ordered):,}; lines: median {middle}, p90 {ninth}, max {ordered[-1]}"


def report(checkout: Checkout) -> Iterator[str]:
    """All numbers, line by line."""
    modules = checkout.modules.values()
    functions = [(node.end_lineno or 0) - node.lineno + 1 for module in modules for node in module.functions()]
    yield f"modules: {spread(module.lines for module in modules)}"
    yield f"functions: {spread(functions)}"
    top = {path for path in (checkout.root / "gateway").iterdir() if not path.name.startswith("__")}
    files = {path.stem for path in top if path.suffix == ".py"}
    folders = [path for path in top if any(path.rglob("*.py"))]
    yield f"at the top of gateway/: {len(files)} modules ({len(files & CONTRACT)} contract) + {len(folders)} folders"
    arrows = checkout.arrows()
    yield f"rooms: {len(arrows)}, arrows: {sum(map(len, arrows.values()))}, cycles: {len(cycles(arrows))}"
    yield from (f"  cycle of {len(group)}: {' '.join(group)}" for group in cycles(arrows))
    pairs = checkout.single_importer()
    fitting = sum(one.lines + by.lines <= LARGEST_MODULE for one, by in pairs)
    yield f"modules with one importer, in their folder: {len(pairs)}, of which {fitting} would fit into it"
    callables = checkout.callables()
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(callables.items()))
    yield f"callables handed in: {callables.total()} ({kinds})"
    yield "product lines: {:,} Python, {:,} SQL, {:,} HTML/JS/CSS".format(
        *(checkout.lines(("gateway", "adapters"), *kind) for kind in ((".py",), (".sql",), (".html", ".js", ".css")))
    )
    yield f"test lines: {checkout.lines(['tests'], '.py'):,} Python, {checkout.lines(['tests'], '.sql'):,} SQL"
    way = checkout.way()
    yield f"the way of a message: {len(way)} files, {sum(len(path.read_text().splitlines()) for path in way):,} lines"
    words = checkout.literary_words()
    yield "literary words: " + ", ".join(f"{word} {words[word]}" for word in LITERARY)
    yield "places per operation (* = on a surface, and more than a question to the service):"
    for operation in OPERATIONS:
        yield from _row(operation, checkout.places(operation))


def _row(operation: str, places: Mapping[str, Sequence[str]]) -> Iterator[str]:
    named = [(layer, place) for layer, those in places.items() for place in those]
    deciding = [place for layer, place in named if layer not in SURFACES or place.endswith("*")]
    yield f"  {operation}: {len(named)}, of which {len(deciding)} decide"
    yield from (f"    {layer}: {', '.join(places[layer])}" for layer in reversed(LAYERS) if layer in places)


def main() -> None:
    """Print the numbers of a checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=Path, default=Path(__file__).parents[2], help="a checkout; else this one")
    for line in report(Checkout(parser.parse_args().tree)):
        print(line)  # noqa: T201


if __name__ == "__main__":
    main()
