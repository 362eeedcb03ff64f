"""Fields that several forms share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_origin

from airflow.sdk import Param

from streambank.core.options import OptionField, options_of, write_duration

PRINTED = r"[^\x00-\x1f\x7f]"
"""One character that is printed."""
END = r"$(?!\n)"
"""The end of a text, in Python and in the browser: for Python, `$` is also before a last line break."""
NAME_PATTERN = r"(?!None$)[A-Za-z][A-Za-z0-9._\-]{0,99}"
"""How a savepoint may be called; what else could be a reference is refused when it is taken. A task takes
`None` for no name, so it is refused here."""
PLACE = rf"(/|[A-Za-z][A-Za-z0-9+.\-]*:/){PRINTED}*"
"""An absolute path or a URI: a relative path means nothing on a worker."""


def choice(default: str, choices: dict[str, str], **more: Any) -> Param:
    """One of a few answers, each with its explanation."""
    return Param(default, type="string", enum=list(choices), values_display=choices, **more)


def note() -> Param:
    """Why; every form has it."""
    return Param(
        None,
        type=["null", "string"],
        title="Note",
        description_md="The reason; kept with the records of this operation.",
        maxLength=1000,
    )


def query_form(queries: Sequence[str]) -> dict[str, Param]:
    """Which query, for jobs that have several; nothing for the others."""
    if not queries:
        return {}
    return {
        "query": Param(
            queries[0],
            type="string",
            enum=list(queries),
            title="Query",
            description_md="Which query of the job to work on.",
        )
    }


def start_and_note() -> dict[str, Param]:
    """Whether the job is started afterwards, and why all this."""
    return {
        "start": Param(
            True,
            type="boolean",
            title="Start afterwards",
            description_md="Start the job and wait for its first batch.",
        ),
        "note": note(),
    }


def optional(default: Any, title: str, description: str, kind: str = "string", **more: Any) -> Param:
    """An answer that may be left empty."""
    return Param(default, type=["null", kind], title=title, description_md=description, **more)


def form_of(
    options: type[Any],
    defaults: Mapping[str, Any] | None = None,
    more: Mapping[str, str] | None = None,
    asks_why: bool = True,
    **instead: Param,
) -> dict[str, Param]:
    """The fields of a form: what a dataclass of options has a title for.

    Args:
        defaults: What a job declares, by the name of the option.
        more: What else is said of an option, by its name.
        instead: Fields that a job's declaration makes, in place of those.
    """
    asked = [one for one in options_of(options) if one.option is not None and one.option.title]
    made = {one.said: _field(one, defaults or {}, more or {}) for one in asked}
    return made | instead | ({"note": note()} if asks_why else {})


def answers_of(options: type[Any]) -> dict[str, Any]:
    """Templates for what a form was answered, as the arguments of an operator."""
    asked = [one for one in options_of(options) if one.option is not None and one.option.title]
    return {one.name: f"{{{{ params.get('{one.said}') }}}}" for one in asked}


def _field(option: OptionField, defaults: Mapping[str, Any], more: Mapping[str, str]) -> Param:
    said = option.option
    assert said is not None, "only options have titles"
    default = None if option.default is None else option.default()
    default = defaults.get(option.name, default)
    texts, schema = [said.help, more.get(option.name, "")], dict[str, Any]()
    if option.values:
        shown = {one: f"{one} - {said.choices[one]}" if said.choices else one for one in option.values}
        schema = {"type": "string", "enum": list(shown), "values_display": shown}
    elif option.is_duration:
        if "for example" not in said.help:
            texts.append("A duration such as `10m`.")
        default = None if default is None else write_duration(default)
        schema = {"type": "string", "minLength": 1}
    elif get_origin(option.kind) is Mapping:
        default, schema = default or None, {"type": "object"}
    elif get_origin(option.kind) is tuple:
        texts.append("A JSON list of texts.")
        schema = {"type": "array", "items": {"type": "string"}}
    else:
        schema = {"type": {bool: "boolean", int: "integer", float: "number", str: "string"}[option.kind]}
    if said.least is not None:
        schema["minimum"] = said.least
    if default is None or (option.optional and not option.values):
        texts.append(f"Empty: {said.usual}." if said.usual else "")
        schema["type"] = ["null", schema["type"]]
        schema.pop("minLength", None)
    if said.section:
        schema["section"] = said.section
    return Param(default, title=said.title, description_md=" ".join(filter(None, texts)), **schema)
