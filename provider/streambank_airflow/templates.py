"""How arguments are rendered: plain text stays what it is, and so does what is rendered with an alert."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streambank.core.errors import InputError
from streambank_airflow.failures import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context
    from jinja2 import Environment

_ANSWER = re.compile(r"\{\{ *params(?:\.(\w+)|\.get\('([^']+)'\)|\['([^']+)'\])( or '')? *\}\}")
"""A template that is one answer of a form, and nothing else."""
_BEGINS = (
    "block_start_string",
    "variable_start_string",
    "comment_start_string",
    "line_statement_prefix",
    "line_comment_prefix",
)
"""Settings of Jinja that say with what a template begins."""
_LATER = ("notify", "ask")
"""Fields of a declaration whose templates see what an alert is of, and are rendered when it is sent."""


class RendersTexts:
    """What renders template fields, of which `declaration` may be one.

    Native rendering reads each text as a Python value: `1_000` would be 1000, `1.10` 1.1, and `None` nothing.
    So a text without a template stays what it is, and so does an answer of a form. A number that another
    template gives is its text: it is read by its type, and refused where it needs a unit.
    """

    def render_template(
        self, content: Any, context: Context, jinja_env: Environment | None = None, *args: Any
    ) -> Any:
        """As for every operator and notifier, but for such texts and for whom a declaration alerts.

        Raises:
            AirflowFailException: A declaration comes out as None: another job would be worked on then.
        """
        env: Environment = jinja_env or self.get_template_env()  # type: ignore[attr-defined]  # a mixin
        if content is None or content is not getattr(self, "declaration", None):
            return self._rendered(content, context, env, *args)
        declaration = _all_but_later(content, lambda one: self._rendered(one, context, env, *args))
        with airflow_failures():
            if declaration is None:
                raise InputError(
                    "The declaration is a template or the output of a task, and that is None.",
                    code="bad-declaration",
                    hint="Let it give the fields of the job. Nothing else is taken in place of it.",
                )
        return declaration

    def _rendered(self, content: Any, context: Context, env: Environment, *args: Any) -> Any:
        render: Any = super().render_template  # type: ignore[misc]  # a mixin
        if not isinstance(content, str):
            return render(content, context, env, *args)
        answers, asked = context.get("params") or {}, _ANSWER.fullmatch(content)
        name = next(filter(None, asked.groups()), None) if asked is not None else None
        if asked is not None and name in answers:
            answer = answers[name]
            return answer or "" if asked[4] else answer
        if not any(begin in content for one in _BEGINS if (begin := getattr(env, one))):
            return content
        rendered = render(content, context, env, *args)
        return _text_of(content, context, env) if type(rendered) in (int, float) else rendered


def _text_of(template: str, context: Context, env: Environment) -> str:
    """What a template says, which native rendering has read as a number: `00` would be 0."""
    parsed = env.from_string(template)
    return "".join(map(str, parsed.root_render_func(parsed.new_context({**context}))))


def _all_but_later(declaration: Any, render: Callable[[Any], Any]) -> Any:
    if not isinstance(declaration, dict):
        return render(declaration)
    return {name: one if name in _LATER else _all_but_later(one, render) for name, one in declaration.items()}
