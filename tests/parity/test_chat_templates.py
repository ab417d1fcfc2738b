"""Chat templates against `apply_chat_template` of `transformers`, from our folder and from theirs."""

from pathlib import Path

import pytest
from helpers.model_places import PLACES, gguf_place
from transformers import AutoTokenizer

from cutaway.checkpoints import export, import_model, load, load_tokenizer, save
from cutaway.errors import InputError
from cutaway.serving.chat_template import render, special_tokens

# One in the manner of Llama's, with macros, loop variables and slices; one that needs the names of `transformers`.
INST = """
{%- macro turn(message) -%}
    {{- '[INST] ' + message['content'] | trim + ' [/INST]' }}
{%- endmacro -%}
{{ bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('user and assistant have to take turns') }}
    {%- endif %}
    {%- if message.role == 'user' %}
        {%- if loop.last and system is defined %}{{ '<<' ~ system ~ '>> ' }}{% endif %}
        {{- turn(message) }}
    {%- else %}
        {%- generation %}{{ ' ' + message.content + eos_token }}{% endgeneration %}
    {%- endif %}
{%- endfor %}
"""
TOOLS = """{% set ns = namespace(n=0) %}
{% for message in messages %}
  {% if message.role == 'tool' %}{% continue %}{% endif %}
  {% set ns.n = ns.n + 1 %}
<{{ message.role | upper }} no="{{ ns.n }}">
{{ message | tojson }}
{% for key, value in message.items() | sort if value is string %}{{ key }}={{ value | tojson(indent=2) }};{% endfor %}

  {% if ns.n == 3 %}{% break %}{% endif %}
{% endfor %}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('|') }}
{%- if strftime_now is defined %} {{ strftime_now('%Y') | length }}{% endif %}
{%- if tools is none and not documents %} no tools{% endif %}
{%- if add_generation_prompt %}

<ASSISTANT>{% endif %}
"""
USER, ANSWER = (
    {"role": "user", "content": '  Wie heißt <das>, "bitte"?\n'},
    {"role": "assistant", "content": "So & 日本."},
)
CHATS = [
    [USER],
    [{"role": "system", "content": "Kurz!"}, USER, ANSWER, USER],
    [USER, ANSWER, USER, ANSWER],
    [USER, {"role": "tool", "content": "5"}, ANSWER, ANSWER, ANSWER],
]


@pytest.mark.parametrize("template", [INST, TOOLS])
@pytest.mark.parametrize("place", PLACES)
def test_prompts_are_those_of_transformers(tmp_path: Path, place: str, template: str):
    source = PLACES[place](tmp_path / "source")
    tokenizer = load_tokenizer(source)
    assert tokenizer.chat_template is None
    tokenizer.chat_template = template
    export(load(source), tmp_path / "out", tokenizer)
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path / "out"), load_tokenizer(tmp_path / "out")
    n = 0
    for chat in CHATS:
        for ask in (False, True):
            try:
                expected = theirs.apply_chat_template(chat, tokenize=False, add_generation_prompt=ask)
            except Exception as error:
                with pytest.raises(InputError, match=f"chat template of this model: {error}"):
                    render(ours.chat_template, chat, add_generation_prompt=ask, tokens=special_tokens(ours))
                continue
            found = render(ours.chat_template, chat, add_generation_prompt=ask, tokens=special_tokens(ours))
            assert found == expected
            n += 1
    assert n >= 6


def test_their_folders_and_ours_keep_it(tmp_path: Path):
    """`transformers` writes a file of its own, which wins; older folders have it in tokenizer_config.json."""
    source = gguf_place(tmp_path / "source")
    model, tokenizer = load(source), load_tokenizer(source)
    export(model, tmp_path / "out", tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "out")
    theirs.chat_template = TOOLS
    theirs.save_pretrained(tmp_path / "out")
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == TOOLS
    import_model(tmp_path / "out", tmp_path / "own")
    own = load_tokenizer(tmp_path / "own")
    assert own.chat_template == TOOLS
    save(model, tmp_path / "own", own)
    export(model, tmp_path / "out", own, force=True)
    assert not (tmp_path / "out" / "chat_template.jinja").exists(), "nothing of the folder that was replaced"
    for folder in ("own", "out"):
        assert load_tokenizer(tmp_path / folder).chat_template == TOOLS
    save(model, tmp_path / "own", tokenizer)
    assert load_tokenizer(tmp_path / "own").chat_template is None
