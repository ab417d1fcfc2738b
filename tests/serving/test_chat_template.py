"""Templates come with models, from anywhere: whatever they do ends soon, in a text or an error of ours."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.errors import InputError
from cutaway.serving import chat_template
from cutaway.serving.chat_template import render

USER = [{"role": "user", "content": "Hi"}]
PLAIN = (
    "{% for m in messages %}{{ m.role }}: {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)


def test_a_prompt():
    assert render(PLAIN, USER) == "user: Hi\n>"
    assert render(PLAIN, USER, add_generation_prompt=False) == "user: Hi\n"
    assert render("{{ bos_token }}{{ eos_token is defined }}", USER, tokens={"bos_token": "<s>"}) == "<s>False"


@given(st.lists(st.fixed_dictionaries({"role": st.text(), "content": st.text()}), max_size=3))
@settings(max_examples=30, deadline=None)
def test_what_people_write_is_no_program(messages):
    assert render(PLAIN, messages) == "".join(f"{m['role']}: {m['content']}\n" for m in messages) + ">"


BOMBS = [
    "{{ 'a' * 10**9 }}",
    "{{ '%999999999999d' % 1 }}",
    "{{ [1] * 10**10 }}",
    "{{ 9 ** (9 ** (9 ** 9)) }}",
    "{{ range(10**12) | list }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ '" + "a" * 1000 + "' }}{% endfor %}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{{ lipsum(n=10**7) }}",
    "{{ 'x' | center(10**10) }}",
    "{{ messages | tojson(indent=10**10) }}",
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}",
    "{% if 1 %}" * 20_000 + "{% endif %}" * 20_000,
    "{{ " + "+".join("1" * 20_000) + " }}",
    "a" * 300_000,
]


@pytest.mark.parametrize("template", BOMBS, ids=lambda template: template[:40])
def test_a_bomb_ends_in_an_error(template):
    with pytest.raises(InputError, match="chat template"):
        render(template, USER)
    assert render(PLAIN, USER) == "user: Hi\n>", "the next one is served"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ ('a' * 10**9) | length }}", "it needs too much memory"),
        ("{{ f() }}{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "'f' is undefined"),
        ("{{ raise_exception('no ' ~ messages[0].role) }}", "the chat template of this model: no user"),
        ("{% if %}", "line 1: Expected an expression"),
        ("\n{% nonsense %}", "line 2: Encountered unknown tag 'nonsense'"),
        ("{{ missing.at.all }}", "'missing' is undefined"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__.os.system('true') }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% include '/etc/hostname' %}", "no loader"),
        ("{% import 'os' as os %}", "no loader"),
        ("{{ open('/etc/hostname') }}", "'open' is undefined"),
        ("{{ messages | attr('__class__') | attr('__mro__') }}{{ 1 / 0 }}", ""),
        ("a" * 200_001, "the chat template has 200,001 characters; 200,000 are the most"),
    ],
)
def test_what_a_template_must_not_do(template, message):
    with pytest.raises(InputError) as caught:
        render(template, USER)
    assert message in str(caught.value)


def test_messages_that_are_no_json():
    for messages in ([{"role": object()}], [{"role": float("nan")}]):
        with pytest.raises(InputError, match="cannot be written as JSON"):
            render(PLAIN, messages)


def test_a_worker_that_is_gone_is_started_again():
    assert render(PLAIN, USER) == "user: Hi\n>"
    process = chat_template._worker.process
    process.kill()
    process.wait()
    assert render(PLAIN, USER) == "user: Hi\n>"
    assert chat_template._worker.process is not process


def test_a_prompt_is_as_long_as_a_pipe_is_wide_and_longer():
    long = [{"role": "user", "content": "☃" * 500_000}]
    assert len(render(PLAIN, long)) == 500_000 + len("user: \n>")
    with pytest.raises(InputError, match="writes more than 4,000,000 characters"):
        render(PLAIN * 9, long)
