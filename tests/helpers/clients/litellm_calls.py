"""What litellm makes of a server, as JSON. Run in an environment of its own: litellm_calls.py URL."""

import json
import sys
from typing import Any

import litellm

there: dict[str, Any] = {"api_base": f"{sys.argv[1]}/v1", "api_key": "secret"}
chat: dict[str, Any] = {
    "model": "openai/talker", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "seed": 3, **there,
}  # fmt: skip
pieces = litellm.completion(**chat, stream=True)
found = {
    "answer": litellm.completion(**chat).choices[0].message.content,
    "streamed answer": "".join(chunk.choices[0].delta.content or "" for chunk in pieces),
    "vectors": [one["embedding"] for one in litellm.embedding("openai/encoder", ["the cat", "a mat"], **there).data],
}
print(json.dumps(found))
