"""What the server grants to a request, and how long it waits. The options of `cutaway serve` are made from this."""

from dataclasses import dataclass

from cutaway.arguments import Options, option


@dataclass(frozen=True, kw_only=True)
class Limits(Options):
    """The limits of a server."""

    max_body: int = option(8 << 20, "Maximum number of bytes of a request.", least=1)
    max_tokens: int = option(4096, "Maximum number of new tokens of a text.", least=1)
    max_texts: int = option(256, "Maximum number of texts of a request: its prompts, times n or best_of.", least=1)
    max_waiting: int = option(
        1024, "Maximum number of texts that wait; further requests are answered with 429.", least=1
    )
    max_seconds: float = option(600.0, "Maximum number of seconds for an answer.", above=0)
    body_seconds: float = option(30.0, "Maximum number of seconds for a request to arrive.", above=0)
    drain_seconds: float = option(8.0, "Seconds after SIGTERM in which running requests may end.", least=0)
    ping_seconds: float = option(15.0, "Seconds without a token after which a stream says that it is alive.", above=0)
    threads: int | None = option(None, "Number of threads that compute; by default one for each core.", least=1)
    memory: int | None = option(None, "Maximum number of bytes of all KV caches; by default 4 GiB.", least=1)
    preparing: int = option(16, "Number of threads that tokenize requests and write answers.", least=1, type=None)
