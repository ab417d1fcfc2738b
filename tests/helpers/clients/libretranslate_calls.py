"""What the package libretranslatepy makes of a server, as JSON. Run in an environment of its own: … URL."""

import json
import sys
from urllib.error import HTTPError

from libretranslatepy import LibreTranslateAPI

client = LibreTranslateAPI(sys.argv[1], api_key="secret")


def error_of(own: LibreTranslateAPI, target: str) -> list[object]:
    try:
        own.translate("Hi", "en", target)
    except HTTPError as error:
        return [error.code, json.loads(error.read())["error"]]
    return []


found = {
    "text": client.translate("I ate an apple. The fox!", "en", "de"),
    "guessed": client.translate("Where is the key? I do not know.", "auto", "de"),
    "detected": client.detect("Where is the key? I do not know."),
    "languages": client.languages(),
    "unknown language": error_of(client, "xx"),
    "wrong key": error_of(LibreTranslateAPI(sys.argv[1], api_key="wrong"), "de"),
}
print(json.dumps(found))
