"""`--loader module:function`: the model of the operator's own `load_model()` is served."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from harness import ServerProcess

from streamwell.core.errors import InvalidRequest, LoadError
from streamwell.models.loader_hook import call_loader
from streamwell.settings import Settings

PROMPT, NUM_TOKENS = "Once upon a time", 12

#: What an operator has: a base with an adapter on it, as it comes from fine-tuning; and mistakes.
MODULE = """
print("a line of the operator's own")

def load_model():
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from streamwell.models import brooklet_path

    model = AutoModelForCausalLM.from_pretrained(brooklet_path())
    return model, AutoTokenizer.from_pretrained(brooklet_path())

def load_fine_tuned():
    import torch
    from peft import LoraConfig, get_peft_model

    model, tokenizer = load_model()
    torch.manual_seed(0)
    config = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    return get_peft_model(model, config), tokenizer

def load_nothing():
    return None

def load_names():
    return "model", "tokenizer"

def load_what_is_missing():
    return open("weights.bin")

def load_own_class():
    from transformers import LlamaForCausalLM
    from streamwell.models import brooklet_path

    class Mine(LlamaForCausalLM):
        pass

    return Mine.from_pretrained(brooklet_path()), load_model()[1]
"""
MISTAKES = {
    "my_models:load_nothing": "it returned a builtins.NoneType, not (model, tokenizer)",
    "my_models:load_names": "the model it returned is a builtins.str, not one of Transformers",
    "my_models:load_own_class": (
        "the model it returned is a my_models.load_own_class.<locals>.Mine, whose code is not "
        "saved with its weights: call register_for_auto_class on the class, and serve with "
        "--trust-remote-code"
    ),
    "my_models:load_what_is_missing": (
        "FileNotFoundError: [Errno 2] No such file or directory: 'weights.bin' "
        "(my_models.py, line 27)"
    ),
    "my_models:load": "the module my_models has no function load",
    "misspelt:load": "SyntaxError: invalid syntax (misspelt.py, line 1)",
    "no_such_module:load": "ModuleNotFoundError: No module named 'no_such_module'",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The operator's folder, in which servers are started."""
    folder, before = tmp_path_factory.mktemp("operator"), Path.cwd()
    (folder / "my_models.py").write_text(MODULE, encoding="utf-8")
    (folder / "misspelt.py").write_text("def load(:\n", encoding="utf-8")
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # PEFT's
def test_req_05_the_model_of_a_users_function_is_served(folder: Path) -> None:
    """A PEFT model is served, with its tokenizer, and says what it says in Transformers."""
    name = "my_models:load_fine_tuned"
    flags = ("--loader", name, "--num-threads", "1", "--dtype", "float32")
    with closing(ServerProcess(folder, *flags)) as server:
        server.wait_until_ready()
        names = [model["id"] for model in server.client.get("/v1/models").json()["data"]]
        body = {"prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0}
        text = server.text(body)

    fine_tuned, base = (_text(folder, name) for name in ("load_fine_tuned", "load_model"))
    assert ([name], fine_tuned) == (names, text)
    assert fine_tuned != base
    assert "a line of the operator's own" in server.log()


def _text(folder: Path, function: str) -> str:
    """What Transformers makes of the prompt with the model of a function."""
    model, tokenizer = runpy.run_path(str(folder / "my_models.py"))[function]()
    inputs = tokenizer(PROMPT, return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=NUM_TOKENS, do_sample=False)[0]
    return str(tokenizer.decode(ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_function_that_fails_is_explained_in_one_line(name: str, folder: Path) -> None:
    """The line says what is wrong and where in the operator's file; nothing is left on disk."""
    with pytest.raises(LoadError) as failure:
        call_loader(name, folder / "saved")

    assert f"--loader {name}: {MISTAKES[name]}" == str(failure.value)
    assert [] == list((folder / "saved").iterdir())


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_explained(folder: Path) -> None:
    """It is said before anything is loaded."""
    with pytest.raises(LoadError, match="cannot be saved"):
        call_loader("my_models:load_nothing", folder / "my_models.py" / "saved")


@pytest.mark.parametrize("loader", ["", "module", "module:", ":function", "a/b:c", "a:b:c"])
def test_what_is_no_function_is_refused(loader: str) -> None:
    """The flag is checked before anything is imported."""
    with pytest.raises(InvalidRequest, match="MODULE:FUNCTION"):
        Settings(loader=loader)
