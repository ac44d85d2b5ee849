"""Doors that stay shut: TLS, the Unix socket, keys, administration, rebinding, limits, foreign code."""

import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_server import CHAT, HI, PATIENCE, Server, post_bytes, read_to_end, serving
from soloist.daemon import exit_codes, keys
from soloist.daemon.address import AddressError, bind_unix, listening, read_tls
from soloist.daemon.config import Config, ConfigError
from soloist.daemon.keys import read_keys
from tiny_models import scripted

TINY = {"messages": HI, "max_tokens": 1}
DRAIN = "/admin/drain"


# -- Unix socket ---------------------------------------------------------------------------------


def test_a_unix_socket_is_its_owners_alone_and_goes_with_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "soloist.sock"
    with listening(Config(unix_socket=path)):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    assert not path.exists()


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "soloist.sock"
    left_behind = bind_unix(path)
    left_behind.close()
    assert path.exists()
    with bind_unix(path) as live:
        with pytest.raises(AddressError, match="another process listens there"):
            bind_unix(path)
        assert live.getsockname() == str(path)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(AddressError, match="not a socket"):
        bind_unix(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("path", ["nowhere/soloist.sock", "x" * 200])
def test_a_path_that_cannot_be_a_socket_is_one_line(tmp_path: Path, path: str) -> None:
    with pytest.raises(AddressError, match="cannot listen on"):
        bind_unix(tmp_path / path)


def test_a_socket_that_a_later_daemon_has_put_there_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "soloist.sock"
    with listening(Config(unix_socket=path)):
        path.unlink()
        other = bind_unix(path)
    assert path.exists()
    other.close()


def process(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "soloist", "serve", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def over_unix(path: Path, method: str, target: str, body: Any = None) -> tuple[int, Any]:
    connection = UnixConnection(path)
    try:
        connection.request(method, target, body and json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_a_daemon_on_a_unix_socket_serves_and_drains(folders: Path, tmp_path: Path) -> None:
    path = tmp_path / "soloist.sock"
    child = process("--model", str(folders / "stop"), "--unix-socket", str(path), "--host", "0.0.0.0")
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and child.poll() is None:
            try:
                if over_unix(path, "GET", "/health")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)
        assert over_unix(path, "POST", CHAT, TINY)[0] == 200
        status, body = over_unix(path, "POST", DRAIN)
        assert (status, body["status"]) == (202, "draining")
        out, err = child.communicate(timeout=PATIENCE)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == exit_codes.CLEAN, err
    assert f"--unix-socket {path}" in out and not path.exists()


# -- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem", folder / "key.pem"


def test_https_is_spoken_and_http_is_not(folders: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with serving(folders / "stop", tls_cert=cert, tls_key=key) as server:
        trusting = ssl.create_default_context(cafile=str(cert))
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusting, timeout=PATIENCE)
        connection.request("POST", CHAT, json.dumps({**TINY, "stream": True}), {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200 and response.read().endswith(b"data: [DONE]\n\n")
        connection.close()
        with server.connect() as raw:
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            try:
                answer = read_to_end(raw)
            except ConnectionError:
                answer = b""
            assert b"HTTP/1.1" not in answer
        old = ssl.create_default_context(cafile=str(cert))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with server.connect() as raw, pytest.raises(ssl.SSLError):
            old.wrap_socket(raw, server_hostname="127.0.0.1")


def test_files_that_are_no_certificate_and_key_are_told(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    junk = tmp_path / "junk"
    junk.write_text("junk")
    for one, other, named in ((cert, junk, "tls_key"), (cert, tmp_path / "none", "tls_key"), (junk, key, "tls_cert")):
        with pytest.raises(ConfigError, match=named):
            read_tls(Config(tls_cert=one, tls_key=other))
    with pytest.raises(ConfigError, match="tls_key is not set"):
        Config(tls_cert=cert)
    with pytest.raises(ConfigError, match="unix_socket"):
        Config(tls_cert=cert, tls_key=key, unix_socket=tmp_path / "s")


# -- keys and administration ---------------------------------------------------------------------


def test_keys_have_names_wherever_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("carol:sk-c\n")
    known = read_keys(Config(api_key=("alice:sk-a", "sk-b"), api_key_file=file))
    assert [known.holder(key) for key in ("sk-a", "sk-b", "sk-c", "alice:sk-a")] == ["alice", "key-2", "carol", None]
    with pytest.raises(ConfigError, match="without a key"):
        read_keys(Config(api_key=("alice:",)))


def test_every_key_is_compared_whichever_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    real = keys.hmac.compare_digest
    monkeypatch.setattr(keys.hmac, "compare_digest", lambda a, b: (compared.append(b), real(a, b))[1])
    known = read_keys(Config(api_key=("one", "two", "three")))
    for key in ("one", "three", "wrong", ""):
        compared.clear()
        known.holder(key)
        assert len(compared) == 3 and {len(digest) for digest in compared} == {32}


@pytest.fixture(scope="module")
def administered(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("keys") / "admin"
    file.write_text("root:sk-root\n")
    with serving(folders / "stop", admin_key_file=file, api_key=("sk-user",)) as server:
        yield server


@pytest.mark.parametrize("key", ["", "Bearer sk-user", "Bearer wrong", "Basic sk-root"])
def test_draining_needs_the_admin_key_and_no_other(administered: Server, key: str) -> None:
    for path in (DRAIN, DRAIN + "/"):
        assert administered.request("POST", path, Authorization=key).status == 401
    assert administered.get("/health").status == 200


def test_an_admin_key_is_no_key_for_requests(administered: Server) -> None:
    assert administered.request("POST", CHAT, TINY, Authorization="Bearer sk-root").status == 401


def test_a_page_or_a_proxy_cannot_drain_where_there_is_no_admin_key(folders: Path) -> None:
    with serving(folders / "stop") as server:
        assert server.request("POST", DRAIN, Origin="http://a.example").status == 403
        assert server.request("POST", DRAIN, X_Forwarded_For="10.0.0.1").status == 403
        assert server.get(DRAIN).status == 405
        assert server.get("/health").status == 200
        for _ in range(2):
            reply = server.request("POST", DRAIN)
            assert (reply.status, reply.json["status"]) == (202, "draining")
            assert reply.headers["x-request-id"] and reply.headers["connection"] == "close"
        health, refused = server.get("/health"), server.chat()
        assert (health.status, health.json["state"]) == (503, "draining")
        assert (refused.status, refused.error["code"]) == (503, "draining") and refused.headers["retry-after"]


def test_draining_over_http_lets_what_runs_finish_and_ends_with_0(folders: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = process("--model", str(folders / "loop"), "--port", str(port), "--shutdown-grace", "10")
    client = Server.__new__(Server)
    super(Server, client).__init__(port)
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if client.get("/health").status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)
        with client.connect() as raw:
            raw.sendall(post_bytes({"messages": HI, "max_tokens": 500}))
            while not client.get("/health").json["running"]:
                time.sleep(0.01)
            assert client.request("POST", DRAIN).json["answering"] == 1
            assert client.chat().status == 503
            assert b'"completion_tokens":500' in read_to_end(raw)
        assert child.wait(PATIENCE) == exit_codes.CLEAN
    finally:
        child.kill()
        child.communicate()


# -- rebinding, limits ---------------------------------------------------------------------------


def test_a_rebound_name_reaches_nothing(stop: Server) -> None:
    """A page of evil.example that now resolves to 127.0.0.1: for the browser it is one origin, and CORS is silent."""
    host = f"evil.example:{stop.port}"
    head = f"Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n"
    steps = stop.get("/health").json["steps"]
    for path in (CHAT, "/v1/completions", DRAIN, "/v1/adapters"):
        request = post_bytes({**TINY, "prompt": "x"}, path, head=head).replace(b"Host: x", f"Host: {host}".encode())
        answer = stop.exchange(request)
        assert answer.startswith(b"HTTP/1.1 403") and b"host_not_allowed" in answer
    for path in ("/v1/models", "/health", "/metrics"):
        assert stop.get(path, Host=host, Origin=f"http://{host}").status == 403
    assert stop.get("/health").json["steps"] == steps, "nothing was drawn for it"


@pytest.mark.parametrize(
    "head",
    [
        "X: " + "y" * 9000 + "\r\n",
        "".join(f"X-{number}: y\r\n" for number in range(200)),
        "X" * 9000 + ": y\r\n",
    ],
    ids=["a long value", "many headers", "a long name"],
)
def test_headers_have_limits(stop: Server, head: str) -> None:
    answer = stop.exchange(f"GET /health HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
    assert answer.split(b" ", 2)[1] == b"400" and b"invalid_http" in answer
    stop.canary()


def test_a_long_path_is_refused(stop: Server) -> None:
    answer = stop.exchange(b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.split(b" ", 2)[1] == b"400"


def test_parts_and_depth_have_limits(stop: Server) -> None:
    part = {"type": "text", "text": "a"}
    assert stop.chat([{"role": "user", "content": [part] * 1024}], max_tokens=1).status == 200
    reply = stop.chat([{"role": "user", "content": [part] * 1025}])
    assert (reply.status, reply.error["param"]) == (400, "messages[0].content")
    for depth in (200, 100_000):
        deep = b'{"messages": ' + b"[" * depth + b"]" * depth + b"}"
        reply = stop.request("POST", CHAT, deep)
        assert (reply.status, reply.error["code"]) == (400, "invalid_json")
    stop.canary()


# -- what must not take long, or run at all -------------------------------------------------------

WATCHED = """
import os, sys
real = os._exit
def leave(code):
    loaded = sorted({name.split(".")[0] for name in sys.modules} & {"mlx", "mlx_lm", "transformers"})
    print("LOADED", loaded, file=sys.stderr, flush=True)
    real(code)
os._exit = leave
from soloist.__main__ import main
os._exit(main())
"""


def refused(*arguments: str) -> tuple[int, str]:
    ended = subprocess.run(
        [sys.executable, "-c", WATCHED, "serve", *arguments],
        capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    return ended.returncode, ended.stderr


@pytest.fixture(scope="module")
def taken() -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


def bad_folder(root: Path, fault: str) -> Path:
    folder = scripted(root / fault, ["a"])
    if fault == "truncated":
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
    elif fault == "unsupported":
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "no_such_thing"}))
    elif fault == "no tokenizer":
        (folder / "tokenizer.json").unlink()
    elif fault == "no JSON":
        (folder / "config.json").write_text("{")
    return folder


@pytest.mark.parametrize("fault", ["truncated", "unsupported", "no tokenizer", "no JSON", "missing"])
def test_a_bad_model_ends_the_process_before_mlx_is_imported(tmp_path: Path, fault: str) -> None:
    folder = tmp_path / "none" if fault == "missing" else bad_folder(tmp_path, fault)
    code, err = refused("--model", str(folder), "--port", "0")
    assert 65 <= code <= 70, err
    assert "LOADED []" in err and "Traceback" not in err


def test_a_bad_adapter_ends_the_process_before_mlx_is_imported(folders: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    code, err = refused("--model", str(folders / "stop"), "--port", "0", "--adapter", f"a={tmp_path / 'adapter'}")
    assert code == exit_codes.ADAPTER_REFUSED, err
    assert "LOADED []" in err and "Traceback" not in err


def test_a_bad_address_key_or_certificate_ends_the_process_before_mlx_is_imported(
    folders: Path, tmp_path: Path, taken: str
) -> None:
    model = ("--model", str(folders / "stop"))
    for arguments, expected in (
        (("--port", taken), exit_codes.PORT_TAKEN),
        (("--unix-socket", str(tmp_path / "no" / "s")), exit_codes.PORT_TAKEN),
        (("--host", "0.0.0.0", "--port", "0"), exit_codes.CONFIGURATION),
        (("--api-key-file", str(tmp_path / "none"), "--port", "0"), exit_codes.CONFIGURATION),
        (("--tls-cert", __file__, "--tls-key", __file__, "--port", "0"), exit_codes.CONFIGURATION),
    ):
        code, err = refused(*model, *arguments)
        assert code == expected, err
        assert "LOADED []" in err and err.count("\n") == 2


def test_code_that_comes_with_a_model_does_not_run_unless_that_is_asked_for(tmp_path: Path) -> None:
    folder = scripted(tmp_path / "trojan", ["a"])
    trace = tmp_path / "it-ran"
    (folder / "trojan.py").write_text(f"open({str(trace)!r}, 'w').close()\nraise RuntimeError('ran')\n")
    for name, extra in (
        ("config.json", {"model_file": "trojan.py", "auto_map": {"AutoModelForCausalLM": "trojan.Model"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["trojan.Tokenizer", None]}}),
    ):
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | extra))
    threading.excepthook, before = (lambda args: None), threading.excepthook
    try:
        with serving(folder) as server:
            server.canary()
    except Exception as error:
        assert "trust_remote_code" in str(error).replace("-", "_")
    finally:
        threading.excepthook = before
    assert not trace.exists()


def test_a_second_signal_does_not_wait_for_a_drain(folders: Path, tmp_path: Path) -> None:
    path = tmp_path / "s"
    child = process("--model", str(folders / "loop"), "--unix-socket", str(path), "--shutdown-grace", "60")
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                if over_unix(path, "GET", "/health")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.05)
        with socket.socket(socket.AF_UNIX) as raw:
            raw.connect(str(path))
            raw.sendall(post_bytes({"messages": HI, "max_tokens": 4000, "stream": True}))
            while not over_unix(path, "GET", "/health")[1]["running"]:
                time.sleep(0.01)
            assert over_unix(path, "POST", DRAIN)[0] == 202
            child.send_signal(signal.SIGTERM)
            assert child.wait(5) == exit_codes.SIGNALLED + signal.SIGTERM
    finally:
        child.kill()
        child.communicate()
