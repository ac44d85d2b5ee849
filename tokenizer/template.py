"""A chat template, compiled once: Jinja in a sandbox, with what transformers gives it, and bounded in time and size.

The names that a template may use are those of Hugging Face's chat template guide: `messages`, `tools`, `documents`,
`add_generation_prompt`, the special tokens, `raise_exception`, `strftime_now`, a `tojson` that leaves text readable,
loop controls and `{% generation %}`.
"""

import datetime
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.runtime
import jinja2.sandbox

from .errors import TemplateError

SECONDS = 10.0  # a template that is still rendering then is not going to end
CHARACTERS = 64 << 20
_DEADLINE = "soloist_deadline"


class _Raised(jinja2.TemplateError):
    """What the template itself refused, in its own words."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks assistant text for training masks; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Every loop checks the deadline, and no expression may make a giant of a string or a number."""

    intercepted_binops = frozenset({"*", "**"})

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(jinja2.nodes.For):
            loop.iter = jinja2.nodes.Filter(loop.iter, "in_time", [], [], None, None, lineno=loop.lineno)
        return tree

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        for value, times in ((left, right), (right, left)):
            size = len(value) if isinstance(value, str | list | tuple) else 0
            if size and isinstance(times, int) and size * times > CHARACTERS:
                raise _Raised("the template makes too large a value")
        if operator == "**" and isinstance(right, int | float) and abs(right) > 64:
            raise _Raised("the template makes too large a number")
        return super().call_binop(context, operator, left, right)


@jinja2.pass_context
def _in_time(context: jinja2.runtime.Context, items: Iterable[Any]) -> Iterator[Any]:
    deadline = context[_DEADLINE]
    for item in items:
        if time.monotonic() > deadline:
            raise _Raised("the template does not come to an end")
        yield item


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise _Raised(message)


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"], cache_size=0
    )
    environment.filters["tojson"] = _tojson
    environment.filters["in_time"] = _in_time
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class Template:
    """One compiled template. Rendering runs on any worker thread and shares nothing."""

    __slots__ = ("_compiled", "source")

    def __init__(self, source: str) -> None:
        """Raises TemplateError for a template that is no Jinja."""
        self.source = source
        try:
            self._compiled = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateError(f"the model's chat template is invalid: {error}") from error

    def render(self, variables: dict[str, Any]) -> str:
        """The rendered text. Raises TemplateError with the template's own message when it refuses."""
        deadline = time.monotonic() + SECONDS
        size, written = 0, []
        try:
            for piece in self._compiled.generate(**variables, **{_DEADLINE: deadline}):
                size += len(piece)
                if size > CHARACTERS or time.monotonic() > deadline:
                    raise _Raised("the template does not come to an end")
                written.append(piece)
        except _Raised as error:
            raise TemplateError(str(error.message)) from error
        except Exception as error:  # a template is foreign code: whatever it does wrong is a refusal
            raise TemplateError(f"the model's chat template cannot render these messages: {error}") from error
        return "".join(written)
