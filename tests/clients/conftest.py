"""A running gristmill for unmodified clients.

GRISTMILL_URL names one that runs already. Otherwise GRISTMILL_BINARY (or target/dist/bin/gristmill)
is started on a free port with the demo model in a store of its own, and stopped at the end.
GRISTMILL_MODEL is the model asked, `smollm2` unless set.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import time

import anthropic
import httpx
import ollama
import openai
import pytest

ROOT = pathlib.Path(__file__).parents[2]
DEMO = ROOT / "target/models/SmolLM2-135M-Instruct.Q4_1.gguf"
START_SECONDS = 60


@pytest.fixture(scope="session")
def model():
    return os.environ.get("GRISTMILL_MODEL", "smollm2")


@pytest.fixture(scope="session")
def url(model):
    if "GRISTMILL_URL" in os.environ:
        yield os.environ["GRISTMILL_URL"].rstrip("/")
        return
    with running(model) as address:
        yield address


@pytest.fixture(scope="session")
def script_url():
    """The same program with the scripted back-end: a prompt says what is answered."""
    if "GRISTMILL_URL" in os.environ:
        pytest.skip("needs a server of its own")
    with running("scripted", GRISTMILL_PLUGINS_BACKEND="scripted") as address:
        yield address


@contextlib.contextmanager
def running(model, *flags, **settings):
    """A server of its own with the demo model under a name."""
    binary = os.environ.get("GRISTMILL_BINARY", str(ROOT / "target/dist/bin/gristmill"))
    work = ROOT / "target/clients-work"
    work.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "GRISTMILL_PATHS_MODELS": str(work / "store"),
        "XDG_CACHE_HOME": str(work / "cache"),
        **settings,
    }
    take = ["import", str(DEMO), "--name", model] if DEMO.exists() else ["pull", model]
    subprocess.run([binary, *take], check=True, cwd=work, env=environment)
    log = work / f"serve-{model}.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [binary, "serve", "--server-listen", "127.0.0.1:0", "--log-filter", "info", *flags],
            cwd=work, env=environment, stdout=out, stderr=subprocess.STDOUT,
        )
    try:
        yield ready(server, log)
    finally:
        server.terminate()
        server.wait(timeout=60)


def ready(server, log):
    """The address that it chose itself and wrote into its log, once it answers there."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            pytest.exit(f"gristmill ended with {server.returncode}:\n{log.read_text()}", 1)
        if named := re.search(r"listening on (http://[\w.:]+)", log.read_text()):
            try:
                if httpx.get(f"{named[1]}/readyz", timeout=1).status_code == 200:
                    return named[1]
            except httpx.TransportError:
                pass
        time.sleep(0.05)
    pytest.exit(f"gristmill was not ready within {START_SECONDS} s:\n{log.read_text()}", 1)


@pytest.fixture(scope="session")
def native(url):
    """The official ollama client."""
    return ollama.Client(host=url, timeout=120)


@pytest.fixture(scope="session")
def oai(url):
    """The official openai client. It must not retry: a first failure is a failure."""
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=120, max_retries=0)


@pytest.fixture(scope="session")
def claude(url):
    """The official anthropic client."""
    return anthropic.Anthropic(base_url=url, api_key="none", timeout=120, max_retries=0)


@pytest.fixture(scope="session")
def scripted_oai(script_url):
    """The official openai client of the scripted back-end."""
    return openai.OpenAI(base_url=f"{script_url}/v1", api_key="none", timeout=120, max_retries=0)


@pytest.fixture(scope="session")
def scripted_claude(script_url):
    """The official anthropic client of the scripted back-end."""
    return anthropic.Anthropic(base_url=script_url, api_key="none", timeout=120, max_retries=0)


@pytest.fixture(scope="session")
def curl(url):
    """Runs curl: `curl(path, *arguments)` gives status, headers (lower case) and body."""

    def run(path, *arguments, data=None):
        command = ["curl", "-sS", "-N", "-i", "--http1.1", "-H", "Expect:", *arguments, url + path]
        if data is not None:
            command += ["-H", "Content-Type: application/json", "--data-binary", "@-"]
        done = subprocess.run(command, input=data, capture_output=True, check=True, timeout=300)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        return int(first.split()[1]), headers, body

    return run
