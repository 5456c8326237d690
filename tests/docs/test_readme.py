"""The README's commands do what it says; each block is taken from the file and run."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from commands import DEADLINE_S, serving
from harness import free_port

from streamwell.models import brooklet_path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(bash|python)\n(.*?)```", README, re.DOTALL)

pytestmark = pytest.mark.slow


def blocks_with(text: str) -> str:
    """The one code block that has this text in it."""
    (block,) = (body for _, body in BLOCKS if text in body)
    return block


def run_block(block: str, url: str, *, shell: list[str], typed: str = "") -> str:
    """Run a block against this server; returns what it printed."""
    block = block.replace("http://127.0.0.1:8000", url)
    result = subprocess.run(
        [*shell, block], cwd=ROOT, input=typed, capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert 0 == result.returncode, result.stderr
    return result.stdout


def test_every_block_is_known() -> None:
    """A command block that is added to the README must be added here."""
    firsts = [body.splitlines()[0] for _, body in BLOCKS]

    assert [
        "make serve",
        "curl -N http://127.0.0.1:8000/v1/chat/completions \\",
        "from openai import OpenAI",
        ".venv/bin/streamwell chat",
        "make test",
        ".venv/bin/streamwell serve ./my-model --max-model-len 4096",
        ".venv/bin/streamwell serve brooklet second=./my-model --models-dir ./models",
    ] == firsts


def test_curl_streams_an_answer(url: str) -> None:
    """The curl line prints frames up to the end of the stream."""
    printed = run_block(blocks_with("curl -N"), url, shell=["bash", "-c"])

    assert "data: [DONE]" == printed.strip().splitlines()[-1]
    assert '"finish_reason":"stop"' in printed


def test_openai_client_prints_an_answer(url: str) -> None:
    """The Python block prints what the model says."""
    printed = run_block(blocks_with("import OpenAI"), url, shell=[sys.executable, "-c"])

    assert printed.strip()


def test_both_models_of_the_box_are_served(url: str) -> None:
    """Without a model named at the start, the decoder and the encoder-decoder answer."""
    with urllib.request.urlopen(f"{url}/v1/models") as response:
        listed = [card["id"] for card in json.load(response)["data"]]
    ask = {"messages": [{"role": "user", "content": "Write 4027 in words"}], "temperature": 0}
    body = json.dumps({"model": "brooklet-t5", **ask}).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request) as response:
        answer = json.load(response)["choices"][0]["message"]["content"]

    assert ["brooklet", "brooklet-t5"] == listed
    assert "four thousand and twenty-seven" == answer


def test_chat_answers_in_the_terminal(url: str) -> None:
    """`streamwell chat` answers a typed line, then ends with its input."""
    block = blocks_with("streamwell chat").strip() + f" --url {url}"
    printed = run_block(block, url, shell=["bash", "-c"], typed="Hello!\n")

    assert printed.replace(">", "").strip()


def test_own_model_block(url: str) -> None:
    """A folder and a context are taken as the README shows them, and help is there."""
    serve, show_help = blocks_with("./my-model --max").strip().splitlines()
    refused = subprocess.run(
        ["bash", "-c", serve], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert 2 == refused.returncode
    assert "there is no folder or file ./my-model" in refused.stderr
    assert "--max-model-len" in run_block(show_help, url, shell=["bash", "-c"])


def test_several_models_block(tmp_path: Path) -> None:
    """Two models are served under their names, and the folder's can be loaded."""
    for name in ("my-model", "models/third"):
        shutil.copytree(brooklet_path(), tmp_path / name)
    port = free_port()
    settings = {"STREAMWELL_PORT": str(port), "STREAMWELL_DATA_DIR": str(tmp_path / "data")}
    command = blocks_with("second=./my-model").replace(".venv/bin", str(ROOT / ".venv/bin"))
    with (
        serving(command.split(), tmp_path, port, settings) as address,
        urllib.request.urlopen(f"{address}/v1/models") as response,
    ):
        models = {card["id"]: card["status"] for card in json.load(response)["data"]}

    assert {"brooklet": "ready", "second": "ready", "third": "unloaded"} == models


def test_make_test_runs_pytest() -> None:
    """`make test` is this test suite."""
    plan = subprocess.run(
        [*blocks_with("make test").split(), "--dry-run"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "pytest" in plan.stdout
