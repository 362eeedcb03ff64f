"""The program that a driver runs: a PySpark script."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from streambank.core.errors import InputError, NotFoundError, RefusedError
from streambank.core.names import MAIN

DECLARE = (
    "Name each query in the application with queryName(...), and list the names as `queries` of the job."
)
_STARTS = ("start", "toTable")
_WAITS = (
    "awaitTermination",
    "awaitAnyTermination",
    "isActive",
    "processAllAvailable",
    "sleep",
    "stop",
    "streams",
)
"""Words by which a program waits for a query, or ends it."""
_MAYBE = ast.Lambda | ast.IfExp | ast.BoolOp | ast.ListComp | ast.GeneratorExp
"""Expressions within which it is not sure what is called, or how often."""


def check_application(application: str) -> Path:
    """The application as a readable PySpark program.

    Raises:
        InputError: It is something else (code `not-pyspark`): a jar, a notebook, an archive.
        NotFoundError: There is no such file (code `no-application`).
    """
    path = check_is_pyspark(application)
    if not path.is_file():
        raise NotFoundError(
            f"The application {application} does not exist.",
            code="no-application",
            hint="Give the path that is valid on the driver's host.",
        )
    return path


def check_is_pyspark(application: str) -> Path:
    """The application as a PySpark program, wherever it is.

    Raises:
        InputError: By its name it is something else (code `not-pyspark`).
    """
    path = Path(application)
    if path.suffix != ".py":
        what = "A Scala or Java application" if path.suffix == ".jar" else f"{path.name!r}"
        raise InputError(
            f"{what} cannot be run by the runner: {application}.",
            code="not-pyspark",
            hint="Give a PySpark program (.py). Savepoints can be taken of any application's checkpoint.",
        )
    return path


def check_queries(job: str, program: Path, queries: Collection[str]) -> None:
    """Refuse a program that starts several queries where the job declares none by name.

    The runner takes any first query for the job's only one and refuses the next one, when the first may have
    written a batch already. So the program is read before it runs. Only what it is sure to do counts: two
    queries of different names, or one after the other without a wait for the first, that begin in the same
    sequence of statements; or one in a loop over several values. What depends on a condition, or on a
    function that may not be called, is left to the runner.

    Raises:
        RefusedError: It starts several (code `undeclared-query`).
    """
    if list(queries) != [MAIN]:
        return
    try:
        tree = ast.parse(program.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # whoever runs it will say so
    calls = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
    called = {call.id for call in calls if isinstance(call, ast.Name)}
    for node in ast.walk(tree):  # what a function does that nobody calls is not sure to be done
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in called:
            node.body = []
    names = next(_several(tree.body, _starters(tree.body)), None)
    if names is None:
        return
    raise RefusedError(
        f"The application of job {job} starts several queries ({', '.join(names)}), and the job declares "
        "none of them: its checkpoint is that of one query.",
        code="undeclared-query",
        hint=DECLARE,
    )


def _starters(body: list[ast.stmt]) -> frozenset[str]:
    """The program's own functions that are sure to start a query, and do not wait for its end."""
    own = [one for one in body if isinstance(one, ast.FunctionDef)]
    return frozenset(
        one.name
        for one in own
        if any(_started(statement) for statement in one.body)
        and not any(_may_wait(statement, frozenset()) for statement in one.body)
    )


def _several(body: list[ast.stmt], starters: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """What messages call several queries that one sequence of statements is sure to start."""
    texts: dict[str, None] = {}
    running: list[str] = []  # nothing has waited for these
    held: set[str] = set()
    for statement in body:
        started = [_name(call) for call in _started(statement, starters)]
        texts |= dict.fromkeys(text for one in started for text in _text(one))
        running += map(_shown, started)
        if len(texts) > 1 or len(running) > 1:
            yield tuple(texts) if len(texts) > 1 else tuple(running)
        if _waits(statement) if started else _may_wait(statement, held):
            running = []
        held |= {one.id for one in getattr(statement, "targets", []) if started and isinstance(one, ast.Name)}
    for statement in body:
        if isinstance(statement, ast.For):
            yield from _in_loop(statement, starters)
        for field in ("body", "orelse", "finalbody"):
            yield from _several(getattr(statement, field, []), starters)


def _started(statement: ast.stmt, starters: Collection[str] = ()) -> list[ast.Call]:
    """The calls by which a statement is sure to start queries."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return) or value is None:
        return []
    nodes = list(ast.walk(value))
    if any(isinstance(node, _MAYBE) for node in nodes):
        return []
    return [node for node in nodes if isinstance(node, ast.Call) and _is_start(node, starters)]


def _is_start(call: ast.Call, starters: Collection[str]) -> bool:
    """Whether a call is `....writeStream....start(...)`, written in one chain, or of a function with one."""
    if isinstance(call.func, ast.Name):
        return call.func.id in starters
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _STARTS:
        return False
    return any(isinstance(node, ast.Attribute) and node.attr == "writeStream" for node in ast.walk(call.func))


def _waits(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in _WAITS for node in ast.walk(statement))


def _may_wait(statement: ast.stmt, held: Collection[str]) -> bool:
    """Whether a statement may wait for a query, or end it."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False  # it only says what that would do
    called = statement.value if isinstance(statement, ast.Expr) else None
    return (
        hasattr(statement, "body")
        or (isinstance(called, ast.Call) and isinstance(called.func, ast.Name) and called.func.id != "print")
        or _waits(statement)
        or any(isinstance(node, ast.Name) and node.id in held for node in ast.walk(statement))
    )


def _name(call: ast.Call) -> ast.expr | None:
    """What `queryName` of a query is given; None where it has none, or another function gives it."""
    for node in ast.walk(call):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if node.func.attr == "queryName":
            return node.args[0]
    return call if isinstance(call.func, ast.Name) else None


def _text(name: ast.expr | None) -> list[str]:
    return [name.value] if isinstance(name, ast.Constant) and isinstance(name.value, str) else []


def _shown(name: ast.expr | None) -> str:
    return next(iter(_text(name)), "one without a name" if name is None else ast.unparse(name))


def _in_loop(loop: ast.For, starters: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """What a loop over written values starts: a query for each."""
    values = loop.iter.elts if isinstance(loop.iter, ast.Tuple | ast.List) else []
    each = tuple(dict.fromkeys(map(_shown, values)))
    if len(each) < 2 or any(isinstance(node, ast.Break | ast.Return) for node in ast.walk(loop)):
        return
    names = [_name(call) for statement in loop.body for call in _started(statement, starters)]
    variable = ast.dump(ast.Name(getattr(loop.target, "id", ""), ast.Load()))
    differ = any(name is not None and ast.dump(name) == variable for name in names)
    if differ or (names and not any(_waits(one) or hasattr(one, "body") for one in loop.body)):
        yield each
