"""The program of a job by what is in it: its application, and what comes with it.

What comes with an application are the modules that it imports from its own folder, and the files of
`spark.submit.pyFiles`. Imports are found by reading (`modulefinder`), nothing is run. A module that is only
named at run time (`importlib`), and data files, are not seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from modulefinder import Module, ModuleFinder
from pathlib import Path
from typing import Any

PY_FILES = "spark.submit.pyFiles"
"""Spark's setting of Python files that go to driver and executors."""
_PY_FILES_FOLDER = ".py-files"
_SCHEME = "file:"


@dataclass(frozen=True, slots=True)
class Program:
    """Files of a program on this machine.

    Attributes:
        files: The file of each name; the first is the application.
        not_understood: Names of the files whose syntax this Python does not know. What they import is none of
            the files, so a copy of the program would not run.
    """

    digest: str
    files: Mapping[str, Path]
    sizes_bytes: int
    not_understood: tuple[str, ...] = ()


def read_program(application: str, settings: Mapping[str, str]) -> Program | None:
    """The program of an application; None where a file of it, or of its settings, cannot be read here."""
    path = Path(application)
    try:
        modules, not_understood = _modules(path)
        files = {path.name: path, **modules, **_py_files(settings)}
        contents = {name: file.read_bytes() for name, file in files.items()}
    except OSError:
        return None
    return Program(digest_of(contents), files, sum(map(len, contents.values())), not_understood)


def digest_of(contents: Mapping[str, bytes]) -> str:
    """The digest of a program."""
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{hashlib.sha256(contents[name]).hexdigest()} {name}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def py_files_of(settings: Mapping[str, str]) -> list[str]:
    """The paths and addresses in `spark.submit.pyFiles`."""
    return [one.strip() for one in settings.get(PY_FILES, "").split(",") if one.strip()]


def py_file_name(number: int, path: str) -> str:
    """What a file of `spark.submit.pyFiles` is called in a program, by its place in the setting from 0."""
    return f"{_PY_FILES_FOLDER}/{number}/{Path(path).name}"


class _Finder(ModuleFinder):
    """Finds modules; one that this Python does not understand counts, too, and is remembered."""

    def __init__(self, folder: Path) -> None:
        super().__init__(path=[str(folder)])
        self.not_understood: list[Path] = []

    def load_module(self, fqname: str, fp: Any, pathname: str, file_info: tuple[str, str, str]) -> Module:
        try:
            return super().load_module(fqname, fp, pathname, file_info)
        except (SyntaxError, ValueError, RecursionError):
            if fqname == "__main__":
                raise
            # It is among the modules already, and has its file only where it was read to its end.
            module: Any = self.add_module(fqname)
            module.__file__ = pathname
            self.not_understood.append(Path(pathname))
            return module  # type: ignore[no-any-return]


def _modules(application: Path) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Modules below the application's folder that it imports, and files this Python does not understand."""
    folder = application.resolve().parent
    finder, not_understood = _Finder(folder), []
    try:
        finder.run_script(str(application))
    except (SyntaxError, ValueError, RecursionError, ImportError, AttributeError):
        # What was found until then counts; the driver says what is wrong with the rest.
        not_understood.append(application.name)
    found = {}
    for name, module in finder.modules.items():
        where = getattr(module, "__file__", None)
        if name == "__main__" or where is None:
            continue
        file = Path(where)
        if file.is_relative_to(folder):
            found[file.relative_to(folder).as_posix()] = file
    not_understood += [
        one.relative_to(folder).as_posix() for one in finder.not_understood if one.is_relative_to(folder)
    ]
    return dict(sorted(found.items())), tuple(not_understood)


def _py_files(settings: Mapping[str, str]) -> dict[str, Path]:
    found = {}
    for number, path in enumerate(py_files_of(settings)):
        file = Path(path.removeprefix(f"{_SCHEME}//").removeprefix(_SCHEME))
        found[py_file_name(number, path)] = file
    return found
