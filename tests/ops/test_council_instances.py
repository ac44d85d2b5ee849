"""Three real daemons behind a real HAProxy, under load: kills, restarts, affinity, large bodies."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from instances import PATIENCE, Answer, Process, ask, end, free_ports, ready, running, serve, until
from tiny_models import ABCD, scripted

COUNCIL = """
address = "127.0.0.1:{port}"
metrics = "127.0.0.1:{metrics}"
largest_body = "1MiB"
check_every = 0.25
check_timeout = 2
check_rise = 1
[tiers]
careful = ["big", "small"]
"""
NAMES = {"alpha": ("demo", "big", "council-tiered/careful"), "beta": ("demo", "small", "council-tiered/careful"),
         "gamma": ("demo", "small", "council-tiered/careful")}  # fmt: skip
CHAT = "/v1/chat/completions"


@dataclass
class Bench:
    """metrics: HAProxy's own figures, by Prometheus name and instance."""

    folder: Path
    port: int
    metrics_port: int
    ports: dict[str, int]
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, name: str) -> None:
        flags = [word for served in NAMES[name] for word in ("--served-model-name", served)]
        if name in self.processes:
            end(self.processes[name])
        self.processes[name] = serve(self.folder, self.ports[name], *flags)

    def up(self, model: str = "demo") -> int:
        return ask(f"{self.url}/health").json["instances"][model]

    def complete(self) -> bool:
        """Each model has a rotation of its own, with checks of its own."""
        expected = Counter(model for models in NAMES.values() for model in models if "/" not in model)
        counted = ask(f"{self.url}/health").json["instances"]
        return all(counted[model] == count for model, count in expected.items())

    def post(self, model: str, path: str = "/v1/completions", **more: object) -> Answer:
        return ask(self.url + path, {"prompt": "x", "max_tokens": 2, "model": model, **more})

    def aborts(self) -> float:
        text = ask(f"http://127.0.0.1:{self.metrics_port}/metrics").body.decode()
        lines = [line for line in text.splitlines() if line.startswith("haproxy_server_server_aborts_total{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("c")
    scripted(folder / "model", dist=ABCD, context=8192)
    port, metrics, *ports = free_ports(5)
    bench = Bench(folder / "model", port, metrics, dict(zip(NAMES, ports, strict=True)))
    lines = [
        f'instances.{name} = {{ address = "127.0.0.1:{bench.ports[name]}", models = {json.dumps(models)} }}'
        for name, models in NAMES.items()
    ]
    file = folder / "council.toml"
    settings, _, tiers = COUNCIL.format(port=port, metrics=metrics).partition("[tiers]")
    file.write_text("\n".join([settings, *lines, "[tiers]", tiers]))
    for name in NAMES:
        bench.start(name)
    try:
        with running(["council", "up", str(file), "--state", str(folder / "s")], folder / "council.log"):
            until(lambda: ready(port), "the council answers")
            until(bench.complete, "every instance is in the rotation of every model that it serves")
            yield bench
    finally:
        for process in bench.processes.values():
            process.kill()
            end(process)


def test_a_request_finds_its_instance_by_the_model_in_its_body(bench: Bench) -> None:
    assert bench.post("big").headers["x-council-instance"] == "alpha"
    assert {bench.post("small").headers["x-council-instance"] for _ in range(6)} == {"beta", "gamma"}
    assert bench.post("council-tiered/careful").headers["x-council-instance"] == "alpha"
    refused = bench.post("nobody's")
    assert (refused.status, refused.json["error"]["code"]) == (404, "model_not_found")


def test_half_a_megabyte_with_the_model_last_arrives_whole_and_too_much_is_refused(bench: Bench) -> None:
    def body(size: int) -> bytes:
        return json.dumps(
            {"prompt": ["x" * 3000], "metadata": {"m": "y" * size}, "max_tokens": 1, "model": "big"}
        ).encode()

    answer = ask(bench.url + "/v1/completions", body(500_000))
    assert (answer.status, answer.headers["x-council-instance"]) == (200, "alpha")
    for size in (1_100_000, 5_000_000):
        refused = ask(bench.url + "/v1/completions", body(size))
        assert (refused.status, refused.json["error"]["code"]) == (413, "request_too_large")


def test_the_list_of_models_is_the_union(bench: Bench) -> None:
    cards = ask(bench.url + "/v1/models").json["data"]
    assert {card["id"] for card in cards} == {name for names in NAMES.values() for name in names}
    assert ask(bench.url + "/v1/models/council-tiered/careful").json["id"] == "council-tiered/careful"
    assert ask(bench.url + "/v1/models/nobody").status == 404


async def converse(bench: Bench, client: aiohttp.ClientSession, number: int) -> list[str]:
    """Ten turns of a growing conversation under a shared system prompt; odd ones spell their text as parts."""

    def said(text: str) -> object:
        return [{"type": "text", "text": text}] if number % 2 else text

    messages: list[object] = [{"role": "system", "content": said("You are terse. " * 20)}]
    instances = []
    for turn in range(10):
        messages.append({"role": "user", "content": said(f"question {turn} of session {number}")})
        body = {"model": "demo", "messages": messages, "max_tokens": 12}
        async with client.post(bench.url + CHAT, json=body) as response:
            assert response.status == 200
            instances.append(response.headers["x-council-instance"])
            answer = (await response.json())["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": answer})
    return instances


async def test_twelve_conversations_stay_with_the_instances_that_hold_their_prefixes(bench: Bench) -> None:
    async with aiohttp.ClientSession() as client:
        paths = await asyncio.gather(*(converse(bench, client, number) for number in range(12)))
    homes = [Counter(path).most_common(1)[0] for path in paths]
    kept = sum(turns for _, turns in homes)
    print(f"affinity: {kept} of 120 turns at home; sessions at home: {Counter(home for home, _ in homes)}")
    assert kept >= 0.95 * 120
    assert len({home for home, _ in homes}) >= 2


@dataclass
class Outcomes:
    """What clients saw: whole answers, streams cut after their first byte, requests lost before it."""

    whole: int = 0
    cut: int = 0
    lost: list[str] = field(default_factory=list)


async def load(
    bench: Bench, client: aiohttp.ClientSession, outcomes: Outcomes, stop: asyncio.Event, number: int
) -> None:
    """Send one request after another, three of four streaming, until told to stop."""
    while not stop.is_set():
        number += 100
        body = {
            "model": "demo",
            "prompt": f"p{number}",
            "max_tokens": 120,
            "stream": number % 4 != 0,
            "user": str(number),
        }
        began = False
        try:
            async with client.post(bench.url + "/v1/completions", json=body) as response:
                if response.status != 200:
                    outcomes.lost.append(f"{response.status} {await response.text()}")
                    continue
                text = b""
                async for part in response.content.iter_any():
                    began, text = True, text + part
            whole = b"[DONE]" in text or b'"usage"' in text
            outcomes.whole += whole
            outcomes.cut += not whole
        except aiohttp.ClientError as error:
            if began or isinstance(error, aiohttp.ClientPayloadError):
                outcomes.cut += 1
            else:
                outcomes.lost.append(repr(error))


async def test_a_kill_under_load_loses_no_request_that_had_no_byte_yet_and_the_instance_comes_back(
    bench: Bench,
) -> None:
    aborted, outcomes, stop = bench.aborts(), Outcomes(), asyncio.Event()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as client:
        clients = [asyncio.create_task(load(bench, client, outcomes, stop, number)) for number in range(18)]
        await asyncio.sleep(1.5)
        bench.processes["beta"].send_signal(signal.SIGKILL)
        loop = asyncio.get_running_loop()
        down = await loop.run_in_executor(None, until, lambda: bench.up() == 2, "beta is out of the rotation")
        await asyncio.sleep(1.5)
        bench.start("beta")
        back = await loop.run_in_executor(None, until, lambda: bench.up() == 3, "beta is back")
        stop.set()
        await asyncio.gather(*clients)
    print(f"{outcomes.whole} whole, {outcomes.cut} cut, {len(outcomes.lost)} lost")
    print(f"out of the rotation after {down:.2f} s, back {back:.2f} s after its start")
    assert outcomes.lost == []
    assert outcomes.whole > 20
    assert outcomes.cut == bench.aborts() - aborted > 0
    homes = {bench.post("demo", user=str(n)).headers["x-council-instance"] for n in range(30)}
    assert homes == set(NAMES)


def test_a_tier_takes_over_when_the_one_above_it_is_gone(bench: Bench) -> None:
    """Runs last: it takes alpha away for good."""
    bench.processes["alpha"].kill()
    answers = [bench.post("council-tiered/careful") for _ in range(10)]
    assert [a.status for a in answers] == [200] * 10
    assert {a.headers["x-council-instance"] for a in answers} <= {"beta", "gamma"}
    until(lambda: bench.up("big") == 0, "alpha is out of the rotation")
    gone = bench.post("big")
    assert (gone.status, gone.json["error"]["code"], gone.headers["retry-after"]) == (503, "unavailable", "2")
