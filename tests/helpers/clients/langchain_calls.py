"""What langchain-openai makes of a server, as JSON. Run in an environment of its own: langchain_calls.py URL."""

import json
import sys
from typing import Any

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

there: dict[str, Any] = {"base_url": f"{sys.argv[1]}/v1", "api_key": "secret"}
text = OpenAI(model="talker", max_tokens=12, temperature=0, **there)
chat = ChatOpenAI(model="talker", max_tokens=12, seed=3, **there)
embeddings = OpenAIEmbeddings(model="encoder", check_embedding_ctx_length=False, **there)
found = {
    "text": text.invoke("The quick"),
    "texts": [one[0].text for one in text.generate(["The quick", "A"]).generations],
    "streamed": "".join(text.stream("The quick")),
    "answer": chat.invoke("Hi").content,
    "streamed answer": "".join(str(chunk.content) for chunk in chat.stream("Hi")),
    "vectors": embeddings.embed_documents(["the cat", "a mat"]),
}
print(json.dumps(found))
