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
    queries that begin in the same sequence of statements, or one in a loop over several names. What depends
    on a condition, or on a function that may not be called, is left to the runner.

    Args:
        job: The job, for the message.
        program: The PySpark program.
        queries: The declared queries.

    Raises:
        RefusedError: It starts several (code `undeclared-query`).
    """
    if list(queries) != [MAIN]:
        return
    try:
        tree = ast.parse(program.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # whoever runs it will say so
    names = next(_several(tree.body), None)
    if names is None:
        return
    raise RefusedError(
        f"The application of job {job} starts several queries ({', '.join(names)}), and the job declares "
        "none of them: its checkpoint is that of one query.",
        code="undeclared-query",
        hint=DECLARE,
    )


def _several(body: list[ast.stmt]) -> Iterator[tuple[str, ...]]:
    """The names of several queries that one sequence of statements is sure to start."""
    names = dict.fromkeys(
        name.value
        for statement in body
        for name in _named(statement)
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    )
    if len(names) > 1:
        yield tuple(names)
    for statement in body:
        if isinstance(statement, ast.For):
            yield from _in_loop(statement)
        for field in ("body", "orelse", "finalbody"):
            yield from _several(getattr(statement, field, []))


def _named(statement: ast.stmt) -> Iterator[ast.expr]:
    """What names the queries that a statement is sure to start."""
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return) or value is None:
        return
    nodes = list(ast.walk(value))
    if any(isinstance(node, _MAYBE) for node in nodes):
        return
    for node in nodes:
        if isinstance(node, ast.Call) and _is_start(node) and (name := _name(node)) is not None:
            yield name


def _is_start(call: ast.Call) -> bool:
    """Whether a call is `....writeStream....start(...)`, written in one chain."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _STARTS:
        return False
    return any(isinstance(node, ast.Attribute) and node.attr == "writeStream" for node in ast.walk(call.func))


def _name(call: ast.Call) -> ast.expr | None:
    """What `queryName` of a query is given; None where it has none."""
    for node in ast.walk(call):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        if node.func.attr == "queryName":
            return node.args[0]
    return None


def _in_loop(loop: ast.For) -> Iterator[tuple[str, ...]]:
    """What a loop over written names starts: a query for each."""
    names = loop.iter.elts if isinstance(loop.iter, ast.Tuple | ast.List) else []
    texts = dict.fromkeys(str(one.value) for one in names if isinstance(one, ast.Constant))
    if len(texts) < 2 or not isinstance(loop.target, ast.Name):
        return
    for statement in loop.body:
        for name in _named(statement):
            if isinstance(name, ast.Name) and name.id == loop.target.id:
                yield tuple(texts)
