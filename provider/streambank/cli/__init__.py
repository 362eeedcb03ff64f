"""The command line: `streambank inspect`, `take`, `verify`, `restore`, `job`, ... (docs/reference/cli.md).

A verb reads its options, calls one function of the engine and shows what that gave. Only typer is imported
before a verb runs, so that help and a mistyped option cost nothing; rich is loaded where there is a terminal.

* `run`: from arguments to an exit code, and every error as one sentence
* `app`: the verbs, and those that other packages add
* `output`: what is written where: lines, tables, one JSON document, progress
* `options`: options that several verbs share
* `verbs`: the verbs; `plugins`: those of other packages
"""
