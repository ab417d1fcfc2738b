"""What the package openai makes of a server, as JSON. Run in an environment of its own: openai_calls.py URL."""

import json
import sys
from typing import Any

import openai

URL = sys.argv[1]
client = openai.OpenAI(base_url=f"{URL}/v1", api_key="secret")
TEXT: dict[str, Any] = {"model": "talker", "prompt": "The quick", "max_tokens": 12, "temperature": 0}
CHAT: dict[str, Any] = {"model": "talker", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "seed": 3}
PERSON = {
    "type": "object", "properties": {"old": {"type": "boolean"}}, "required": ["old"], "additionalProperties": False,
}  # fmt: skip


def error_of(**question: Any) -> list[Any]:
    try:
        client.completions.create(**{**TEXT, **question})
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.param, error.code, bool(error.request_id)]
    return []


def stream_error(**question: Any) -> str:
    try:
        for _ in client.completions.create(**{**TEXT, **question}, stream=True):
            pass
    except openai.APIError as error:
        return error.message
    return ""


whole = client.completions.create(**TEXT, logprobs=2)
pieces = list(client.completions.create(**TEXT, stream=True, stream_options={"include_usage": True}))
answer = client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=2)
deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**CHAT, stream=True)]
form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
person = client.chat.completions.create(**CHAT, response_format=form)
own = openai.OpenAI(base_url=f"{URL}/v1", api_key="wrong")
vectors = {
    name: [one.embedding for one in client.embeddings.create(model="encoder", input=["the cat", "a mat"], **how).data]
    for name, how in {"base64": {}, "float": {"encoding_format": "float"}}.items()
}
try:
    own.models.list()
    refused = ""
except openai.AuthenticationError as error:
    refused = str(error.code)
found = {
    "version": openai.__version__,
    "models": [model.id for model in client.models.list()],
    "model": client.models.retrieve("talker").id,
    "text": whole.choices[0].text,
    "usage": whole.usage.total_tokens if whole.usage else 0,
    "log_p": whole.choices[0].logprobs.token_logprobs if whole.choices[0].logprobs else None,
    "streamed": "".join(one.choices[0].text for one in pieces if one.choices),
    "streamed usage": pieces[-1].usage.total_tokens if pieces[-1].usage else 0,
    "answer": answer.choices[0].message.content,
    "n scores": len(answer.choices[0].logprobs.content or []) if answer.choices[0].logprobs else 0,
    "streamed answer": "".join(delta.content or "" for delta in deltas),
    "person": person.choices[0].message.content,
    "person's end": person.choices[0].finish_reason,
    "vectors": vectors,
    "unknown model": error_of(model="other"),
    "no tokens": error_of(max_tokens=0),
    "too late": error_of(max_tokens=4000, model="endless"),
    "too late in a stream": stream_error(max_tokens=4000, model="endless"),
    "wrong key": refused,
}
print(json.dumps(found))
