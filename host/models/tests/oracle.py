"""Renders chat templates with Jinja2 as the Python package `transformers` sets it up.

Reads JSON from standard input: {"now": seconds, "templates": {name: {"source": …, "chats":
{name: {"messages": …, "tools": …, …}}}}}. Writes {template: {chat: {"text": …} or
{"refused": …} or {"failed": …}}} to standard output.
"""

import datetime
import json
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment, SecurityError


class Refused(TemplateError):
    """What raise_exception raises."""


class Generation(Extension):
    """{% generation %} marks the assistant's words; rendering ignores the marks."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def main():
    given = json.load(sys.stdin)
    now = datetime.datetime.fromtimestamp(given["now"])

    def raise_exception(message):
        raise Refused(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def environment(kind):
        made = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
        made.filters["tojson"] = tojson
        made.filters["from_json"] = json.loads
        made.globals["raise_exception"] = raise_exception
        made.globals["strftime_now"] = now.strftime
        return made

    strict = environment(ImmutableSandboxedEnvironment)
    # For templates that change lists in place, which `transformers` itself would refuse.
    lenient = environment(SandboxedEnvironment)

    results = {}
    for name, asked in given["templates"].items():
        rendered = results[name] = {}
        template = strict.from_string(asked["source"])
        changing = lenient.from_string(asked["source"])
        for chat, variables in asked["chats"].items():
            try:
                try:
                    rendered[chat] = {"text": template.render(**variables)}
                except SecurityError:
                    rendered[chat] = {"text": changing.render(**variables)}
            except Refused as error:
                rendered[chat] = {"refused": str(error)}
            except Exception as error:  # whatever a template does wrong
                rendered[chat] = {"failed": f"{type(error).__name__}: {error}"}
    json.dump(results, sys.stdout)


main()
