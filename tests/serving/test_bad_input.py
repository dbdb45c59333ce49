"""Bad requests: each has its status, in the one form of errors, at once, and says nothing about this machine."""

import gzip
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from asking import Client, Running

COMPLETE, RESPOND, STATES = "/v1/completions", "/v1/responses", "/v1/states"
ROWS = {"classify": "classifier", "tag": "tagger", "translate": "translator", "forecast": "forecaster"}


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "lstm", "prompt": "the", "max_tokens": 2, **fields}


# Fields of a completion: values that are refused, each with the name of the field.
FIELDS: dict[str, list[Any]] = {
    "model": ["", 3, ["lstm"], "x" * 300],
    "prompt": [
        *(5, True, {}, [], ["a", 1], [[1], "a"], [[1], 2], [1, True], [1, -1], [-1], [2**40], [1.5], [[]] * 65),
        *("\ud800", ["\udfff"], ["a"] * 65, [[999999]], [10**6], [[None]], [None], "x" * 20_000),
    ],
    "max_tokens": [-1, 10**12, 1.5, "5", True, [1], 4097, 2**70],
    "min_tokens": [-1, 3, "1", 10**12],
    "temperature": [-1, 1e308, "1", True, [1], 101],
    "top_p": [0, 2, -0.5, "1", True],
    "top_k": [-2, 1.5, "3", 10**12, True],
    "min_p": [-0.1, 1.1, "0"],
    "n": [0, -1, 10**9, 1.5, "2", True, 9],
    "best_of": [0, 10**9, "2", 9, True],
    "logprobs": [-1, 21, 10**9, "1", True, 1.5],
    "echo": ["yes", 1, []],
    "stream": ["true", 1],
    "stream_options": [1, "usage", {"include_usage": 1}, []],
    "seed": ["1", 1.5, 2**63, -(2**70), True],
    "stop": ["", [""], ["a"] * 5, 5, [5], "x" * 65, {"a": 1}, ["\ud800"]],
    "stop_token_ids": [[-1], ["a"], 5, [999999], [1] * 65, [1.5]],
    "ignore_eos": [1, "no"],
    "presence_penalty": [-2.1, 2.1, "1", True],
    "frequency_penalty": [-2.1, 2.1, "1", True],
    "repetition_penalty": [0, -1, 101, "1", True],
    "logit_bias": [5, [1], {"a": 1}, {"-1": 1}, {"1": 101}, {"1": "2"}, {"1": True}, {"999999": 1}, {"1" * 30: 1}],
    "return_token_ids": [1, "yes"],
    "suffix": ["after", 5],
    "session_id": ["", "../x", "a/b", "a b", "a\nb", ".hidden", "x" * 129, 5, "a\u0000", "é"],
    "state": ["", "../../etc/passwd", "..", "a\\b", 5, True],
    "save_state": ["", "../x", "a\r\nb", 5, [True]],
}
CASES = [(name, value) for name, values in FIELDS.items() for value in values]


def check(said: Any, status: int) -> dict[str, Any]:
    assert said.status == status, said.content
    assert said.headers["content-type"] == "application/json"
    error: dict[str, Any] = said.error
    for word in ("Traceback", "site-packages", "/statewise", ".py", "object at 0x"):
        assert word not in error["message"]
    assert len(error["message"]) < 500
    return error


def test_the_list_is_long() -> None:
    assert len(CASES) + len(BODIES) + len(COMBINATIONS) >= 150


@pytest.mark.parametrize(("name", "value"), CASES, ids=lambda value: repr(value)[:24])
def test_a_bad_field_is_refused_by_its_name(client: Client, name: str, value: Any) -> None:
    said = client.ask("POST", COMPLETE, asked(**{name: value}))
    error = check(said, 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == name
    assert said.seconds < 0.5  # a tenth of that where nothing else runs


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("structured_outputs", {"regex": "[.*"}),
        ("response_format", {"type": "json_object"}),
        ("grammar", "root ::= a"),
        ("use_beam_search", True),
        ("allowed_token_ids", [1]),
        ("truncate_prompt_tokens", 4),
        ("prompt_logprobs", -1),
        ("prompt_embeds", ["AA=="]),
    ],
)
def test_what_other_servers_can_do_is_refused_and_not_ignored(client: Client, name: str, value: Any) -> None:
    error = check(client.ask("POST", COMPLETE, asked(**{name: value})), 400)
    assert error["param"] == name
    assert error["code"] == "unsupported_parameter"
    for off in (None, False, [], {}, 0, {"type": "text"}):
        if off != {"type": "text"} or name == "response_format":
            assert client.ask("POST", COMPLETE, asked(**{name: off})).status == 200


COMBINATIONS = [
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": False, "stream_options": {"include_usage": None}}, "stream_options"),
    ({"n": 3, "best_of": 2}, "best_of"),
    ({"n": 1, "best_of": 2, "stream": True}, "best_of"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"prompt": ["a", "b"], "session_id": "s"}, "session_id"),
    ({"n": 2, "save_state": "s"}, "save_state"),
    ({"session_id": "s", "state": "t"}, None),
    ({"prompt": ["a"] * 60, "n": 8}, "n"),
    ({"max_tokens": 4096, "prompt": [1] * 16_000}, "prompt"),
]


@pytest.mark.parametrize(("fields", "param"), COMBINATIONS)
def test_fields_that_do_not_fit_together(client: Client, fields: dict[str, Any], param: str | None) -> None:
    assert check(client.ask("POST", COMPLETE, asked(**fields)), 400)["param"] == param


BODIES: list[tuple[bytes, int]] = [
    (b"", 400),
    (b"null", 400),
    (b"[]", 400),
    (b'"text"', 400),
    (b"5", 400),
    (b"{", 400),
    (b"{}}", 400),
    (b"{'a': 1}", 400),
    (b'{"a": 1,}', 400),
    (b'{"a": NaN}', 400),
    (b'{"temperature": NaN}', 400),
    (b'{"temperature": Infinity}', 400),
    (b'{"temperature": -Infinity}', 400),
    (b'{"temperature": 1e999}', 400),
    (b'{"temperature": -1e999}', 400),
    (b'{"max_tokens": ' + b"9" * 20_000 + b"}", 400),
    (b'{"temperature": 0.' + b"1" * 20_000 + b"}", 400),
    (b'{"prompt": "a", "prompt": "b"}', 400),
    (b'{"stream_options": {"a": 1, "a": 2}}', 400),
    (b"[" * 200_000, 400),
    (b'{"a":' * 200 + b"1" + b"}" * 200, 400),
    (b'{"prompt": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400),
    (b'{"prompt": "\xff\xfe"}', 400),
    (b"\xef\xbb\xbf{}", 400),
    ('{"prompt": "a"}'.encode("utf-16"), 400),
    (b'{"prompt": "\xed\xa0\x80"}', 400),
    (b'{"prompt": "a\nb"}', 400),
    (b'{"prompt": "\\x"}', 400),
    (b'{"prompt": "\\ud800"}', 400),
    (b'{"model": "lstm", "prompt": "' + b"x" * (1 << 20) + b'"}', 413),
]


@pytest.mark.parametrize(("body", "status"), BODIES, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize("path", [COMPLETE, "/tokenize"])
def test_a_bad_body_is_refused(client: Client, path: str, body: bytes, status: int) -> None:
    check(client.ask("POST", path, body), status)


@pytest.mark.parametrize("text", ["", "\0", "a\0b", "‮abc", "🐈" * 10, "x" * 3000, "\u2028", " ", "a\r\nb", "e\u0301"])
def test_odd_text_is_text(client: Client, text: str) -> None:
    made = client.complete(model="bytes", prompt=text, max_tokens=1, echo=True)
    assert made["choices"][0]["text"].startswith(text)


def test_an_unknown_model_is_not_found(client: Client) -> None:
    error = check(client.ask("POST", COMPLETE, asked(model="../lstm")), 404)
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert check(client.ask("GET", "/v1/models/nope"), 404)["code"] == "model_not_found"
    assert check(client.ask("POST", COMPLETE, {"prompt": "a"}), 400)["param"] == "model"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/completions", 405),
        ("DELETE", "/v1/models", 405),
        ("PATCH", "/v1/states", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/tokenize", 415),
        ("GET", "/v1/models/", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/v1/states/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v1/states/%2e%2e", 400),
        ("GET", "/v1/states/.hidden", 400),
        ("GET", "/v1/states/a%00b", 400),
        ("GET", "/v1/states/a%0d%0ab", 400),
        ("GET", "/v1/states/none/content", 404),
        ("GET", "/v1/states/none", 404),
        ("DELETE", "/v1/states/none", 404),
        ("DELETE", "/v1/states/%2e%2e", 400),
        ("GET", "/v1/responses/none", 404),
        ("DELETE", "/v1/responses/none", 404),
        ("GET", "/v1/responses/a%20b", 400),
        ("PUT", "/v1/states/x/content", 415),
    ],
)
def test_a_path_that_is_not_there(client: Client, method: str, path: str, status: int) -> None:
    check(client.ask(method, path), status)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "multipart/form-data; boundary=x"}, 415),
        ({"content_type": ""}, 415),
        ({"content_encoding": "gzip"}, 415),
        ({"content_encoding": "br"}, 415),
        ({"host": "evil.example"}, 400),
        ({"host": "127.0.0.1.evil.example"}, 400),
        ({"host": ""}, 400),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"x_session_id": "../x"}, 400),
        ({"x_session_id": "a b"}, 400),
    ],
)
def test_a_bad_header_is_refused(client: Client, headers: dict[str, str], status: int) -> None:
    check(client.ask("POST", COMPLETE, asked(), **headers), status)


def test_a_bomb_is_not_unpacked(client: Client) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    check(client.ask("POST", COMPLETE, bomb, content_encoding="gzip"), 415)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "system", "content": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": 5}]}, "input"),
        ({"input": "a", "instructions": "be kind"}, "instructions"),
        ({"input": "a", "background": True}, "background"),
        ({"input": "a", "previous_response_id": "../x"}, "previous_response_id"),
        ({"input": "a", "max_output_tokens": -1}, "max_output_tokens"),
        ({"input": "a", "max_output_tokens": 5000}, "max_tokens"),
        ({"input": "a", "store": "yes"}, "store"),
        ({"input": "a", "metadata": {"a": 1}}, "metadata"),
        ({"input": "a", "metadata": {"a" * 65: "b"}}, "metadata"),
        ({"input": "a", "metadata": {"a": "b" * 513}}, "metadata"),
        ({"input": "a", "temperature": -1}, "temperature"),
    ],
)
def test_a_bad_response_request(client: Client, body: dict[str, Any], param: str) -> None:
    assert check(client.ask("POST", RESPOND, {"model": "lstm", **body}), 400)["param"] == param


def test_the_message_names_the_part_of_a_field(client: Client) -> None:
    body = {"model": "lstm", "input": [{"role": "user", "content": "x"}, {"role": "nobody", "content": "x"}]}
    assert "role: Input should be" in check(client.ask("POST", RESPOND, body), 400)["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ["a", "b"]},
        {"prompt": 5},
        {"id": "../x"},
        {"id": ""},
        {"id": 5},
        {"state": "a/b"},
        {"prompt": [10**6]},
    ],
)
def test_a_bad_state_request(client: Client, body: dict[str, Any]) -> None:
    check(client.ask("POST", STATES, {"model": "lstm", **body}), 400)


@pytest.mark.parametrize("verb", ROWS)
@pytest.mark.parametrize(
    "rows",
    [
        *([], None, [None], {"a": object.__name__}, [[[[]]]], [5], ["/etc/passwd"], ["/etc/hostname.txt"], [""], [{}]),
        {"": {}},
    ],
)
def test_bad_rows_are_refused_and_never_name_files(client: Client, verb: str, rows: Any) -> None:
    """Some are valid rows of some task; no answer holds a file, no error is the server's."""
    said = client.ask("POST", f"/v1/{verb}", {"model": ROWS[verb], "input": rows})
    assert said.status in (200, 400), said.content
    assert b"root:" not in said.content
    if said.status == 400:
        check(said, 400)


@pytest.mark.parametrize("verb", ROWS)
def test_a_row_that_names_a_file_is_a_text(client: Client, folders: dict[str, Path], verb: str) -> None:
    """The data that each run was trained on are there: an answer about them would be the file's."""
    files = sorted(path for path in folders["classifier"].parents[1].iterdir() if path.is_file())
    assert len(files) > 4
    for file in files:
        there, absent = (
            client.ask("POST", f"/v1/{verb}", {"model": ROWS[verb], "input": [str(path)]})
            for path in (file, file.with_name(f"X{file.name[1:]}"))
        )
        assert there.status == absent.status
        if there.status == 200:
            assert len(there.json["data"]) == 1
        else:
            assert there.error["message"].replace(file.name, "") == absent.error["message"].replace(
                f"X{file.name[1:]}", ""
            )


def test_a_wrong_task_is_refused(client: Client) -> None:
    assert check(client.ask("POST", "/v1/classify", {"model": "tagger", "input": ["a"]}), 400)["param"] == "model"
    assert check(client.ask("POST", "/v1/predict", {"model": "lstm", "input": ["a"]}), 400)["param"] == "model"
    assert check(client.ask("POST", COMPLETE, asked(model="classifier")), 400)["param"] == "model"
    chat = {"model": "lstm", "messages": [{"role": "user", "content": "a"}]}
    assert check(client.ask("POST", "/v1/chat/completions", chat), 400)["code"] == "chat_not_supported"


def raw(live: Running, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", live.client.port), timeout=5) as connection:
        connection.sendall(data)
        said = b""
        while part := connection.recv(65536):
            said += part
            head, _, body = said.partition(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if length is not None and len(body) >= int(length[1]):
                break
        return said


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA : b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nX-A: b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 400),
        (
            b"POST /version HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 200_000, 431),
    ],
)
def test_bad_http_is_refused(live: Running, data: bytes, status: int) -> None:
    said = raw(live, data)
    assert said.startswith(f"HTTP/1.1 {status}".encode()), said[:100]
    assert "error" in json.loads(said.partition(b"\r\n\r\n")[2])


def test_a_chunked_body_has_the_same_limit(live: Running) -> None:
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    assert raw(live, head + chunk * 17).startswith(b"HTTP/1.1 413")


def test_a_header_of_a_client_is_returned_only_if_harmless(client: Client) -> None:
    assert client.ask("GET", "/health", x_request_id="abc-1").headers["x-request-id"] == "abc-1"
    assert client.ask("GET", "/health", x_request_id="a b<script>").headers["x-request-id"] != "a b<script>"


def test_the_server_still_works(client: Client) -> None:
    assert client.ask("GET", "/health").status == 200
    client.until_idle()
    assert client.complete(prompt="the", max_tokens=2)["choices"]
