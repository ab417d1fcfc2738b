"""The process that renders chat templates: one JSON line in, one out. See `chat_template`; it is run as a script.

A template is a program that came with a model. Here it has no names but those below, a bounded amount of work and
memory, and it cannot write a file or start a process.
"""

import json
import resource
import signal
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEGABYTE = 1 << 20


class Generation(Extension):
    """`{% generation %}` marks what the model has said, for training: here it changes nothing."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        number = next(parser.stream).lineno
        inside = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(inside).set_lineno(number)


class Refused(Exception):
    """What a template says itself, by `raise_exception`, or has too much of."""


def environment() -> jinja2.Environment:
    """The one for which the templates of published models are written: the names that `transformers` gives them."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda format: datetime.now(UTC).strftime(format)
    return made


@lru_cache(maxsize=16)
def compiled(template: str) -> jinja2.Template:
    return environment().from_string(template)


def refuse(message: object) -> None:
    raise Refused(message)


def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    """Plain JSON: Jinja's own filter escapes characters of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)


def rendered(template: str, names: dict[str, Any], longest: int) -> str:
    pieces, length = [], 0
    for piece in compiled(template).generate(names):
        length += len(piece)
        if length > longest:
            raise Refused(f"it writes more than {longest:,} characters")
        pieces.append(piece)
    return "".join(pieces)


def answer(asked: dict[str, Any]) -> dict[str, str]:
    try:
        return {"text": rendered(asked["template"], asked["names"], asked["longest"])}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except RecursionError:
        return {"error": "it is nested too deeply, or calls itself without end"}
    except Refused as error:
        return {"error": str(error)}
    except jinja2.TemplateSyntaxError as error:
        return {"error": f"line {error.lineno}: {error.message}"}
    except Exception as error:  # whatever the expressions of a template may raise
        return {"error": str(error) or type(error).__name__}


def limit_work(seconds: int) -> None:
    """Ends this process when the next request has taken so many seconds of the processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, hard))


def main() -> None:
    seconds, memory = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which may still have to answer
    resource.setrlimit(resource.RLIMIT_AS, (memory * MEGABYTE, memory * MEGABYTE))
    for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):  # it starts and writes nothing
        resource.setrlimit(limit, (0, 0))
    for line in sys.stdin.buffer:
        limit_work(seconds)
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
