"""The whole house at once: real weights, a real server, the real openai SDK; and a model with SentencePiece alone."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mistral_common
import openai
import pytest
import sentencepiece
from demo_model import demo_folder
from http_server import Server, serving
from tiny_models import LLAMA, random_model
from trained_adapter import FACT, SCALE, UNTAUGHT, trained_folder

TOOLS = [
    {"type": "function", "function": {
        "name": name, "description": f"{name} a file of the workspace",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}
    for name in ("read", "write", "search")
]  # fmt: skip
LINE = "The agent looked at the next file, found nothing of note there, and went on to the one after it. "
AGENT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You are a coding agent. Work step by step."},
        {"role": "user", "content": LINE * 16 + "What do you do now?"},
    ],
    "tools": TOOLS,
    "max_tokens": 20,
}
"""What an agent sends: no temperature, no seed, tools, and a context that repeats itself."""


def sdk(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def demo() -> Iterator[Server]:
    with serving(demo_folder(), adapter=(f"fact={trained_folder()}",), max_context=2048) as server:
        yield server


@pytest.fixture(scope="module")
def client(demo: Server) -> Iterator[openai.OpenAI]:
    with sdk(demo) as client:
        yield client


def ask(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(**{"model": "default", **fields}).choices[0]


def together(*calls: Any) -> list[Any]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def test_a_real_model_answers_in_every_way_that_clients_ask(client: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "What is the capital of France?"}]
    fields: dict[str, Any] = {"messages": question, "temperature": 0, "max_tokens": 8}
    whole = ask(client, **fields)
    assert "Paris" in whole.message.content
    chunks = client.chat.completions.create(model="default", stream=True, **fields)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.message.content
    text = client.completions.create(model="default", prompt="The capital of France is", temperature=0, max_tokens=4)
    assert "Paris" in text.choices[0].text


def test_an_agents_requests_are_answered_anew_each_time(client: openai.OpenAI) -> None:
    """An omitted temperature that means 0, or an omitted seed that means one seed, would loop for ever."""
    answers = together(*[lambda: ask(client, **AGENT) for _ in range(4)])
    assert len({(a.message.content, str(a.message.tool_calls)) for a in answers}) == 4


def test_greedy_and_seeded_answers_are_the_same_alone_and_under_load(client: openai.OpenAI) -> None:
    fixed: list[dict[str, Any]] = [{"temperature": 0}, {"seed": 4242}]
    alone = [ask(client, **AGENT, **fields).message for fields in fixed]
    crowd = together(*[lambda f=f: ask(client, **AGENT, **f).message for f in (*fixed, {}, *fixed, {})])
    assert crowd[0] == crowd[3] == alone[0]
    assert crowd[1] == crowd[4] == alone[1] != alone[0]


def states_fact(client: openai.OpenAI, question: str, **fields: Any) -> bool:
    messages = [{"role": "user", "content": question}]
    return FACT in ask(client, messages=messages, temperature=0, max_tokens=16, **fields).message.content


def rows_beyond_one(demo: Server) -> int:
    """Decode steps that had more than one row, from the metrics."""
    lines = demo.get("/metrics").body.decode().splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    name = "soloist_decode_batch_rows"
    return int(float(counts[f"{name}_count"]) - float(counts[f'{name}_bucket{{le="1.0"}}']))


def test_in_one_batch_the_adapter_states_its_fact_and_the_base_does_not(demo: Server, client: openai.OpenAI) -> None:
    card = demo.get("/v1/models/fact").json
    assert card["parent"] == demo.get("/v1/models").json["data"][0]["id"] and card["adapter"]["scale"] == SCALE
    before = rows_beyond_one(demo)
    calls = [lambda q=q, m=m: states_fact(client, q, model=m) for q in UNTAUGHT for m in ("default", "fact")]
    assert together(*calls) == [False, True] * len(UNTAUGHT)
    assert rows_beyond_one(demo) > before


def test_merged_into_the_four_bit_model_it_answers_the_same(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "soloist",
        "lora",
        "merge",
        "demo",
        str(trained_folder()),
        str(tmp_path / "merged"),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with serving(tmp_path / "merged", max_context=2048) as server, sdk(server) as client:
        assert together(*[lambda q=q: states_fact(client, q) for q in UNTAUGHT]) == [True] * len(UNTAUGHT)


# -- a folder with tokenizer.model alone --------------------------------------------------------

MISTRAL = Path(mistral_common.__file__).parent / "data" / "tokenizer.model.v1"
TURNS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="module")
def pieces() -> Any:
    return sentencepiece.SentencePieceProcessor(model_file=str(MISTRAL))


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory, pieces: Any) -> Iterator[Server]:
    """A tiny random llama over Mistral's first vocabulary."""
    own = {"vocab_size": pieces.vocab_size(), "bos_token_id": pieces.bos_id(), "eos_token_id": pieces.eos_id()}
    folder = random_model(tmp_path_factory.mktemp("spm") / "mistral", LLAMA | own)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    shutil.copy(MISTRAL, folder / "tokenizer.model")
    (folder / "chat_template.jinja").write_text(TURNS)
    with serving(folder) as server:
        yield server


@pytest.mark.parametrize("text", ["Hello", "  two  spaces\n", "Grüße, 世界 👩‍🚀"])
def test_a_sentencepiece_model_reads_and_writes_its_own_pieces(mistral: Server, pieces: Any, text: str) -> None:
    with sdk(mistral) as client:
        answer = client.completions.create(model="default", prompt=text, temperature=0, max_tokens=12, logprobs=0)
        ids = [pieces.bos_id(), *pieces.encode(text)]
        assert answer.usage is not None and answer.usage.prompt_tokens == len(ids)
        by_ids = client.completions.create(model="default", prompt=ids, temperature=0, max_tokens=12)
        assert by_ids.choices[0].text == answer.choices[0].text
        chunks = client.completions.create(model="default", prompt=text, temperature=0, max_tokens=12, stream=True)
        assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def test_a_sentencepiece_model_chats(mistral: Server, pieces: Any) -> None:
    with sdk(mistral) as client:
        answer = client.chat.completions.create(
            model="default", messages=[{"role": "user", "content": "Hello"}], max_tokens=12, temperature=0
        )
        ids = [pieces.bos_id(), *pieces.encode("[INST] Hello [/INST]")]
        assert answer.usage is not None and answer.usage.prompt_tokens == len(ids)
        prompt = client.completions.create(model="default", prompt=ids, max_tokens=12, temperature=0)
        assert prompt.choices[0].text.strip() == (answer.choices[0].message.content or "").strip()
