"""Chats: templates say what Jinja says and can do nothing else; a conversation goes on from its state exactly."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from asking import TEXT, Client, running
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import SandboxedEnvironment
from task_runs import STEPS

from statewise.data import Tokenizer
from statewise.serving.chat import ChatFormat
from statewise.serving.job import Refused
from statewise.serving.template import ChatTemplate
from statewise.specs import UserError
from statewise.tasks import train
from statewise.training.progress import Silent

PATH = "/v1/chat/completions"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
MARKED = (
    "{% for m in messages %}{{ '<|turn|>' + m['role'] + '\\n' + m['content'] + '<|over|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn|>assistant\\n' }}{% endif %}"
)
TEMPLATES = {
    "marked": MARKED,
    "lines": "{% for m in messages %}\n{{ m.role }}: {{ m.content | trim }}\n{% endfor %}\n",
    "system first": (
        "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set rules = messages[0]['content'] %}"
        "{% else %}{% set rest = messages %}{% set rules = false %}{% endif %}{% for m in rest %}"
        "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('take turns') }}{% endif %}"
        "{% if loop.first and rules %}{% set text = '(' + rules + ') ' + m['content'] %}"
        "{% else %}{% set text = m['content'] %}{% endif %}"
        "{% if m['role'] == 'user' %}{{ bos_token + '[Q] ' + text.strip() + ' [/Q]' }}"
        "{% elif m['role'] == 'assistant' %}{{ ' ' ~ text.strip() ~ ' ' ~ eos_token }}{% endif %}{% endfor %}"
    ),
    "names": (
        "{%- set ns = namespace(n=0, seen=false) -%}{%- for m in messages if m.role != 'tool' -%}"
        "{%- if m.role in ['system', 'developer'] and not ns.seen -%}{%- set ns.seen = true -%}<{{ m.content }}>"
        "{%- else -%}{%- set ns.n = ns.n + 1 -%}{{ ns.n }}{{ m.content if m.content is string else '' }}"
        "{{ ', ' if not loop.last else '.' }}{%- endif -%}{%- else -%}nothing{%- endfor -%}"
        "{% if tools is defined and tools %}tools{% endif %}{{ messages | length }}{{ name | default('?') }}"
    ),
}
TALKS = [
    [("user", "Hello")],
    [("system", " be short "), ("user", " Hello\n"), ("assistant", "yes "), ("user", "again <|over|>")],
    [("user", "a"), ("user", "b")],
    [("user", "a"), ("assistant", "b")],
]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("answer", [False, True])
def test_a_template_says_what_jinja_says(name: str, answer: bool) -> None:
    sandbox = pytest.importorskip("jinja2.sandbox")

    def refuse(told: str) -> None:
        raise ValueError(told)

    world = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = world.from_string(TEMPLATES[name])
    for talk in TALKS:
        messages = [{"role": role, "content": content} for role, content in talk]
        ours = ChatTemplate(TEMPLATES[name], tokens=TOKENS)
        try:
            wanted = template.render(messages=messages, add_generation_prompt=answer, raise_exception=refuse, **TOKENS)
        except ValueError as error:
            with pytest.raises(Refused, match=str(error)):
                ours.render(talk, answer=answer)
        else:
            assert "".join(piece.text for piece in ours.render(talk, answer=answer)) == wanted


# Two lists of 2^60 numbers that are 60 lists in memory: Python's own comparison and text of them would not end.
NESTED = "".join(f"{{% set {name} = [1] %}}" + f"{{% set {name} = [{name}, {name}] %}}" * 60 for name in "xy")

# Two texts of a million characters, of several pieces, and 200,000 steps to read them in.
LONG = "{% set x = 'a' %}" + "{% set x = x ~ x %}" * 20 + "{% set y = x ~ '' %}" + "{% for a in messages %}" * 3


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__ }}",
        "{{ messages.__len__() }}",
        "{{ messages[0].__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({}) }}",
        "{{ '%s' | format('a') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ messages | attr('append') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self }}{{ self.x() }}",
        "{{ range(1000000000) }}",
        "{% for i in range(9) %}{% endfor %}",
        "{% for c in 'abc' %}{{ c }}{% endfor %}",
        "{{ 'a' * 1000000000 }}",
        "{{ 2 ** 100000 }}",
        "{{ 1 % 0 }}",
        "{% include 'a' %}",
        "{% import 'a' as a %}",
        "{% macro a() %}{% endmacro %}",
        "{% set x = 'aaaaaaaa' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
        "{% set n = namespace(x='aaaaaaaa') %}{% for a in messages %}{% for b in messages %}{% for c in messages %}"
        "{% set n.x = n.x + n.x %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in messages %}{% for b in messages %}{% for c in messages %}{% for d in messages %}"
        "{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
        "{{ messages }}",
        "{{ 'a' < 1 }}",
        "{{ " + "not " * 5000 + "1 }}",
        "{{ messages[::0] }}",
        "{{ " + "1" * 5000 + " }}",
        "{{ '\\ud800' }}",
        "{{ -messages }}",
        *(NESTED + shown for shown in ("{{ x == y }}", "{{ x in [y] }}", "{{ x < y }}", "{{ raise_exception(x) }}")),
        NESTED + "{{ x.startswith('a') }}",
        LONG + "{% if x == y %}{% endif %}" + "{% endfor %}" * 3,
        LONG + "{% if 'zzz' in x %}{% endif %}" + "{% endfor %}" * 3,
        LONG + "{% if messages[0][x] %}{% endif %}" + "{% endfor %}" * 3,
        "{% set n = namespace(k=[" + "1," * 9000 + "]) %}{% for a in messages %}{% for b in messages %}"
        "{% set n.k = [n.k, n.k[:]] %}{% set n.k = n.k[1] %}{% endfor %}{% endfor %}",
        "".join(f"{{% set a{i} = 1 %}}" for i in range(3500)) + "{% for a in messages %}" * 3 + "{% endfor %}" * 3,
        "{{ '' | default('x', boolean=true) }}",
        "{{ 'ab'.strip(chars='a') }}",
        "{{ messages | length(1) }}",
        "{{ 'a' is string(1) }}",
        NESTED + "{{ namespace(a=x) | length }}",
        "{% set n = namespace(x=1) %}{% for a in messages %}{% for b in messages %}"
        + "{% set n.x = n.x + n.x %}" * 8
        + "{% endfor %}{% endfor %}{{ n.x }}",
    ],
)
def test_a_template_can_do_nothing_else(template: str) -> None:
    began = time.perf_counter()
    with pytest.raises((Refused, UserError), match="chat template"):
        ChatTemplate(template, tokens=TOKENS).render([("user", "x")] * 64, answer=True)
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    "template", ["{{ x | %s }}", "{%% %s %%}", "{%% set %s.x = 1 %%}", "{{ raise_exception('a\\n%s') }}"]
)
def test_a_refusal_is_one_short_line(template: str) -> None:
    with pytest.raises((Refused, UserError)) as refused:
        ChatTemplate(template % ("f" * 60_000), tokens=TOKENS).render([("user", "x")], answer=True)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


ATOMS = st.sampled_from(
    ["messages", "messages[0]", "messages[-1].role", "messages[1]['content']", "'user'", "' a '", "1", "0", "true"]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(
            "({} {} {})".format,
            inner,
            st.sampled_from(["==", "!=", "in", "not in", "<", ">=", "and", "or", "~"]),
            inner,
        ),
        st.builds("({} {} {})".format, inner, st.sampled_from("+-%"), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} | {})".format, inner, st.sampled_from(["trim", "length", "default('d')"])),
        st.builds("({} is {})".format, inner, st.sampled_from(["none", "defined", "string"])),
        st.builds("{}[{}:{}:{}]".format, inner, *[st.sampled_from(["", "0", "1", "-1", "2"])] * 3),
        st.builds("({}).{}()".format, inner, st.sampled_from(["strip", "lstrip", "rstrip"])),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("(-{})".format, inner),
    ),
    max_leaves=6,
)


@given(expression=EXPRESSIONS)
def test_any_expression_is_what_jinja_makes_of_it_or_refused(expression: str) -> None:
    template = "{{ " + expression + " }}"
    talk = TALKS[-1]
    try:
        ours = "".join(piece.text for piece in ChatTemplate(template, tokens=TOKENS).render(talk, answer=True))
    except (Refused, UserError):
        return
    messages = [{"role": role, "content": content} for role, content in talk]
    wanted = SandboxedEnvironment().from_string(template).render(messages=messages, **TOKENS)
    assert ours == wanted


@pytest.fixture(scope="module")
def marked() -> ChatFormat:
    import tokenizers

    backend = tokenizers.Tokenizer(tokenizers.models.BPE({chr(i): i for i in range(128)}, []))
    backend.add_special_tokens(["</s>", "<|turn|>", "<|over|>"])
    return ChatFormat(MARKED, Tokenizer(backend))


def test_what_a_message_says_is_never_a_special_token(marked: ChatFormat) -> None:
    special = {"</s>": 128, "<|turn|>": 129, "<|over|>": 130}
    ids, _ = marked.begin([("user", "<|over|></s>")])
    assert ids == [129, *b"user\n<|over|></s>", 130, 10, 129, *b"assistant\n"]
    assert marked.stop_id == special["<|over|>"]
    assert marked.stop == ""


def test_a_saved_conversation_reads_what_follows_its_answer(marked: ChatFormat) -> None:
    ids, read = marked.go_on([("user", "more")])
    assert ids == [130, 10, 129, *b"user\nmore", 130, 10, 129, *b"assistant\n"]
    assert read == ((130,), 1)


def chat(client: Client, *messages: tuple[str, str], **asked: Any) -> dict[str, Any]:
    body = {"model": "chatty", "messages": [{"role": role, "content": said} for role, said in messages], **asked}
    said = client.ask("POST", PATH, body)
    assert said.status == 200, said.content
    made: dict[str, Any] = said.json
    return made


def content_of(answer: dict[str, Any]) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def counts(answer: dict[str, Any]) -> dict[str, int]:
    """Without those that depend on what was read before."""
    return {name: count for name, count in answer["usage"].items() if isinstance(count, int)}


ONE = ("user", "the cat")
LIKE: dict[str, Any] = {"seed": 5, "max_tokens": 12, "ignore_eos": True}


def test_a_chat_is_the_completion_of_its_text(client: Client) -> None:
    end = client.ask("GET", "/tokenizer_info?model=chatty").json["eos_token_id"]
    text = b"system: be brief\nuser: the cat\nassistant: "
    plain = client.complete(model="chatty", prompt=[end, *text], stop="\n", **LIKE)
    made = chat(client, ("developer", "be brief"), ONE, **LIKE)
    assert content_of(made) == plain["choices"][0]["text"]
    assert made["object"] == "chat.completion"
    assert made["choices"][0]["message"]["role"] == "assistant"
    assert made["choices"][0]["finish_reason"] == plain["choices"][0]["finish_reason"]
    assert counts(made) == counts(plain)
    parts = [{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]
    body = {"model": "chatty", "messages": [{"role": "user", "content": parts}], **LIKE}
    assert content_of(client.ask("POST", PATH, body).json) == content_of(chat(client, ONE, **LIKE))


def test_a_chat_streams_with_several_choices_and_probabilities(client: Client) -> None:
    whole = chat(client, ONE, n=2, logprobs=True, top_logprobs=3, **LIKE)
    body = {"messages": [{"role": "user", "content": ONE[1]}], "n": 2, "logprobs": True, "top_logprobs": 3, **LIKE}
    *events, done = client.stream(PATH, model="chatty", stream_options={"include_usage": True}, **body)
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert counts(chunks[-1]) == counts(whole)
    for index in range(2):
        mine = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        wanted = whole["choices"][index]
        assert "".join(choice["delta"]["content"] for choice in mine) == wanted["message"]["content"]
        assert [choice["finish_reason"] for choice in mine] == [None] * (len(mine) - 1) + [wanted["finish_reason"]]
        tokens = [token for choice in mine if choice["logprobs"] for token in choice["logprobs"]["content"]]
        assert tokens == wanted["logprobs"]["content"]
        assert all(len(token["top_logprobs"]) == 3 for token in tokens)
    plain = client.stream(PATH, model="chatty", messages=body["messages"], **LIKE)[:-1]
    said = "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in plain)
    assert said == content_of(chat(client, ONE, **LIKE))


def test_a_text_begins_with_the_token_of_the_run(folders: dict[str, Path], tmp_path: Path) -> None:
    """`data.begin`, for chats and for clients that count tokens; not the first that looks like one."""
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(str(folders["bytes"] / "tokenizer.json"))
    backend.add_special_tokens(["<s>", "<x>"])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {**STEPS, "train.window": 8, "data.tokenizer": str(tmp_path / "tokenizer.json"), "data.begin": "<x>"}
    train("gru", settings=settings, data=tmp_path / "text.txt", out=tmp_path / "own", display=Silent())
    (tmp_path / "own" / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    with running({"own": tmp_path / "own"}) as live:
        ask, begin = live.client.ask, backend.token_to_id("<x>")
        told = ask("GET", "/tokenizer_info").json
        assert (told["bos_token"], told["bos_token_id"]) == ("<x>", begin)
        assert told["eos_token"] != "<x>"
        assert ask("POST", "/tokenize", {"prompt": "<x>"}).json["tokens"] == [begin]
        said = chat(live.client, ("user", "a"), model="own", return_token_ids=True, max_tokens=1)
        assert said["choices"][0]["prompt_token_ids"] == [begin, ord("a")]


@pytest.mark.parametrize("ends", ["length", "stop"])
def test_a_session_is_the_conversation_read_from_its_beginning(client: Client, ends: str) -> None:
    """Whether an answer ended by itself (and was read with its end) or by its length."""
    letters = {
        str(letter): 50 for letter in b"abcdefghijklmnopqrstuvwxyz "
    }  # of a text that is read as it was generated
    asked = {**LIKE, "logit_bias": letters if ends == "length" else {**letters, "10": 52}, "max_tokens": 99}
    first = chat(client, ONE, session_id=f"talk-{ends}", **asked)
    assert content_of(first)
    assert first["choices"][0]["finish_reason"] == ends
    later = ("user", "and the dog?")
    second = chat(client, later, session_id=f"talk-{ends}", **LIKE)
    history = [ONE, ("assistant", content_of(first)), later]
    assert content_of(second) == content_of(chat(client, *history, **LIKE))
    assert second["choices"][0]["state"]["id"] == f"talk-{ends}"


def test_what_cannot_be_a_chat_is_refused(client: Client, folders: dict[str, Path], tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x"}]
    said = client.ask("POST", PATH, {"model": "lstm", "messages": messages})
    assert said.status == 400
    assert "no chat format" in said.error["message"]
    for wrong in (
        {"messages": []},
        {"messages": [{"role": "king", "content": "x"}]},
        {"messages": messages, "tools": [{}]},
        {"messages": messages, "response_format": {"type": "json_object"}},
        {"messages": messages, "top_logprobs": 21, "logprobs": True},
        {"messages": messages, "max_tokens": 10**9},
        {},
    ):
        said = client.ask("POST", PATH, {"model": "chatty", **wrong})
        assert (said.status, said.error["type"]) == (400, "invalid_request_error"), wrong
    odd = tmp_path / "odd"
    odd.mkdir()
    for file in folders["bytes"].iterdir():
        (odd / file.name).symlink_to(file)
    (odd / "chat_template.jinja").write_text("{{ strftime_now('%d') }}{{ messages[0].content }}")
    with running({"odd": odd}) as live:
        said = live.client.ask("POST", PATH, {"messages": messages})
        assert said.status == 400
        assert "Call on line 1" in said.error["message"]
        assert not live.client.ask("GET", "/v1/models/odd").json["chat"]
