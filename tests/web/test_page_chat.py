"""The chat page: a message, its answer, and what is kept of them."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Page
from harness import START_TIMEOUT_S, StartServer, eventually
from speaker import SpeakingServer

from streamwell.models import brooklet_path

pytestmark = pytest.mark.slow

IDLE = "document.querySelector('.answer') && !document.querySelector('[aria-busy=true]')"
#: Of an answer that has ended, all is drawn at the next frame.
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
ANSWERS = "[...document.querySelectorAll('.markdown')].map(e => e.innerText.trim())"
MARKDOWN = (
    "# Title\n\nSome **bold** text, $x^2$.\n\n- one\n- two\n\n```python\nprint('x')\n```\n\n"
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n$$\\frac{a}{b}$$\n\nThe end."
)
CALL = '<tool_call>{"name": "look", "arguments": {"at": "sky"}}</tool_call>'
TOOLS = '[{"type": "function", "function": {"name": "look"}}]'


def _chat_id(page: Page) -> str:
    chat: str = page.sees("location.hash.startsWith('#/chat/') && location.hash.slice(7)")
    return chat


def _questions(page: Page) -> Any:  # noqa: ANN401
    return page.evaluate("[...document.querySelectorAll('.said')].map(e => e.textContent)")


def _answers(page: Page) -> Any:  # noqa: ANN401
    """The texts of all answers, when the page is idle and its last words are drawn."""
    page.evaluate(DRAWN)
    return page.sees(f"(texts => texts.every(Boolean) && texts)({ANSWERS})")


def _ask(page: Page, text: str) -> None:
    """Ask, and wait for the whole answer."""
    num_answers = page.evaluate("document.querySelectorAll('.answer').length")
    page.ask(text)
    page.sees(f"document.querySelectorAll('.answer').length == {num_answers + 1} && {IDLE}")


def _numbered(server: SpeakingServer) -> None:
    """Each answer is another one."""
    numbers: dict[int, int] = {}
    count = itertools.count(1)
    server.says(lambda _prompt, seed: f"answer {numbers.setdefault(seed, next(count))}")


def test_an_answer_is_shown_as_it_was_meant(page: Page, server: SpeakingServer) -> None:
    """Enter sends; headings, lists, code, tables and formulas are made of the model's markdown."""
    server.says(MARKDOWN, 0.002)
    page.open(server.url + "/")
    page.ask("Hello!")

    assert page.has("The end.")
    page.sees(IDLE)
    shown = ".markdown h1, .markdown strong, .markdown li, .code code, .markdown td"
    texts = f"[...document.querySelectorAll('{shown}')].map(element => element.textContent)"
    expected = json.dumps(["Title", "bold", "one", "two", "print('x')", "1", "2"])
    page.sees(f"JSON.stringify({texts}) == JSON.stringify({expected})")
    page.sees("document.querySelectorAll('.katex').length == 2")
    page.sees("document.querySelector('.code .hljs-string')")
    page.sees("document.querySelector('.speed').textContent.split('·').length == 4")
    assert [] == page.complaints()
    assert {server.url} == {"/".join(url.split("/")[:3]) for url in page.requested()}


def test_enter_sends_and_shift_enter_does_not(page: Page, server: SpeakingServer) -> None:
    """A message may have lines; an empty one is not sent."""
    server.says("fine")
    page.open(server.url + "/")
    page.type(" ")
    page.press("Enter")
    page.type("one")
    page.press("Shift+Enter")
    page.tab.keyboard.insert_text("two")
    page.press("Enter")

    page.sees(IDLE)
    assert ["one\ntwo"] == _questions(page)


def test_an_answer_is_stopped(page: Page, server: SpeakingServer) -> None:
    """By the button and by Esc: the run ends on the server, and keeps what it said."""
    server.says("word " * 5000, 0.01)
    page.open(server.url + "/")
    for stop in (lambda: page.click("Stop"), lambda: page.press("Escape")):
        page.ask("Talk!")
        page.sees("[...document.querySelectorAll('.markdown')].at(-1)?.innerText.includes('word')")
        stop()
        page.sees(IDLE)

    assert page.has("Stopped.")
    items = server.items(_chat_id(page))
    assert ["cancelled"] * 2 == [item["finish_reason"] for item in items[1::2]]
    said = [item["content"][0]["text"].strip() for item in items[1::2]]
    # what came last is drawn in a frame of its own, after the page is idle
    assert page.sees(f"JSON.stringify({ANSWERS}) === JSON.stringify({json.dumps(said)})")


def test_a_reload_in_mid_answer_goes_on(page: Page, server: SpeakingServer) -> None:
    """What is shown in the end is what the run said, each word once."""
    said = " ".join(map(str, range(400)))
    server.says(said, 0.005)
    page.open(server.url + "/")
    page.ask("Count!")
    page.sees("document.querySelector('.markdown')?.innerText.includes('20')")
    page.tab.reload()

    page.sees("document.querySelector('.markdown')?.innerText.includes('399')")
    page.sees(IDLE)
    assert [said] == _answers(page)
    assert said == server.items(_chat_id(page))[1]["content"][0]["text"]
    assert [] == page.complaints()


def test_what_was_sent_is_no_draft(page: Page, server: SpeakingServer) -> None:
    """A page that is loaded again at once has sent the question, once, and does not offer it."""
    server.says("well " * 40, step_s=0.02)
    page.open(server.url + "/")
    page.ask("one")
    _chat_id(page)
    page.sees(IDLE)
    page.ask("two")
    page.evaluate("window.isOld = true; location.reload()")

    page.sees("!window.isOld && document.querySelectorAll('.said').length == 2")
    assert ["one", "two"] == _questions(page)
    assert "" == page.evaluate("document.querySelector('[aria-label=Message]').value")


def test_a_new_chat_is_begun_once(page: Page, server: SpeakingServer) -> None:
    """A page that is loaded again before its question was sent asks it in the chat that it made."""
    server.says("well")
    page.open(server.url + "/")
    page.sees("document.querySelector('.models')")
    before = len(server.chats())
    page.type("begin")
    page.evaluate("""(async () => {
      window.isOld = true;
      const { fetch } = window;
      window.fetch = async (path, options) => { // the page goes when its chat has been made
        const response = await fetch(path, options);
        if (options.method === 'POST') { location.reload(); await new Promise(() => {}); }
        return response;
      };
      document.querySelector('form.composer').requestSubmit();
    })()""")
    page.sees("!window.isOld && location.hash.startsWith('#/chat/')")

    page.sees(IDLE)
    assert (["begin"], ["well"]) == (_questions(page), _answers(page))
    assert before + 1 == len(server.chats())


def test_a_second_device_shows_the_same(
    page: Page, other_device: Page, server: SpeakingServer
) -> None:
    """In mid-answer, and what is asked later on either of them."""
    said = " ".join(map(str, range(300)))
    server.says(said, 0.01)
    page.open(server.url + "/")
    page.ask("Count!")
    page.sees("document.querySelector('.markdown')?.innerText.includes('20')")
    other_device.open(page.evaluate("location.href"))

    for one in (page, other_device):
        one.sees("document.querySelector('.markdown')?.innerText.includes('299')")
        one.sees(IDLE)
        assert ([said], ["Count!"]) == (_answers(one), _questions(one))
    other_device.ask("Again!")
    page.sees("document.querySelectorAll('.markdown')[1]?.innerText.includes('299')")
    page.sees(IDLE)
    assert [said, said] == _answers(page)


def test_branches(page: Page, server: SpeakingServer) -> None:
    """Another answer and another question stand beside the first ones, also after a reload."""
    _numbered(server)
    page.open(server.url + "/")
    _ask(page, "first")
    page.click("Regenerate")
    page.sees("document.querySelector('.branches')?.innerText.includes('2/2')")
    page.sees(IDLE)
    again = _answers(page)
    page.click("Version before")
    before = _answers(page)
    assert again != before
    page.click("Edit")
    page.type("second", into="[aria-label='Edit message']")
    page.press("Enter")
    page.sees("document.querySelector('.question .branches')?.innerText.includes('2/2')")
    page.sees(IDLE)
    assert ["second"] == _questions(page)
    page.tab.reload()
    page.sees("document.querySelector('.question .branches')?.innerText.includes('2/2')")
    page.click("Version before", within=".question")

    page.sees("document.querySelector('.said').textContent == 'first'")
    page.sees("document.querySelector('.answer .branches')?.innerText.includes('2/2')")
    assert again == _answers(page)


def test_what_is_asked_in_an_older_branch_is_shown_there(
    page: Page, server: SpeakingServer
) -> None:
    """Also while it waits: nothing before it is hidden, and its answer is what is shown then."""
    _numbered(server)
    page.open(server.url + "/")
    _ask(page, "first")
    page.click("Regenerate")
    page.sees(f"document.querySelector('.branches')?.innerText.includes('2/2') && {IDLE}")
    page.click("Version before")
    page.sees("document.querySelector('.branches').innerText.includes('1/2')")
    busy = {"status": 503, "json": {"error": {"message": "busy"}}}
    page.tab.route("**/v1/chat/completions", lambda route: route.fulfill(**busy))
    page.ask("second")
    page.has("Waiting:")

    assert ["first", "second"] == _questions(page)
    assert page.evaluate(
        "[...document.querySelectorAll('.branches button')].every(b => b.disabled)"
    )
    page.tab.unroute("**/v1/chat/completions")
    page.sees(f"document.querySelectorAll('.answer').length == 2 && {IDLE}")
    assert "1/2" in page.evaluate("document.querySelector('.branches').innerText")
    assert ["first", "second"] == _questions(page)


def test_chats_are_kept_on_the_server(
    page: Page, other_device: Page, server: SpeakingServer
) -> None:
    """Found by their first words, renamed, deleted with their runs; on every device."""
    server.says("yes")
    page.open(server.url + "/")
    _ask(page, "Do you know the zebra?")
    chat = _chat_id(page)
    run_id = server.items(chat)[1]["run_id"]
    page.press("Control+k")
    page.sees("document.activeElement.id == 'search'")
    page.tab.keyboard.insert_text("ZEBRA")
    page.sees("document.querySelectorAll('.chats li').length == 1")
    page.click("Rename Do you know the zebra?")
    page.type("Animals", into="[aria-label=Title]")
    page.press("Enter")
    eventually(
        lambda: server.get(f"/v1/conversations/{chat}")["metadata"]["title"] == "Animals",
        "the server has the new title",
    )
    other_device.open(f"{server.url}/#/chat/{chat}")
    other_device.has("Animals", "header")
    other_device.has("zebra", ".said")
    other_device.click("Delete Animals")
    other_device.click("Delete", within="dialog")

    eventually(
        lambda: server.client.get(f"/v1/conversations/{chat}").status_code == 404, "it is gone"
    )
    assert 404 == server.client.get(f"/v1/runs/{run_id}").status_code
    page.has("This chat is not there, or no longer.")
    assert [] == page.complaints()


def test_chats_leave_and_come_back(
    page: Page, server: SpeakingServer, open_tab: Callable[[], Page]
) -> None:
    """What is exported is imported again, branches and all."""
    _numbered(server)
    page.open(server.url + "/")
    _ask(page, "take me along")
    page.click("Regenerate")
    page.sees(f"document.querySelector('.branches')?.innerText.includes('2/2') && {IDLE}")
    answers = _answers(page)
    page.evaluate("""(async () => {
      const { exported } = await import('./web/transfer.js');
      const { chats } = await import('./web/chats.js');
      window.file = await exported(chats.value.filter(({ title }) => title == 'take me along'));
    })()""")
    before = {chat["id"] for chat in server.chats()}
    page.click("Settings")
    page.evaluate("""(() => {
      const files = new DataTransfer();
      files.items.add(new File([window.file], 'chats.json'));
      const input = document.getElementById('import');
      input.files = files.files;
      input.dispatchEvent(new Event('change'));
    })()""")
    page.has("1 chat was imported.")

    (new,) = {chat["id"] for chat in server.chats()} - before
    other = open_tab()
    other.open(f"{server.url}/#/chat/{new}")
    other.sees("document.querySelector('.answer .branches')?.innerText.includes('2/2')")
    assert (["take me along"], answers) == (_questions(other), _answers(other))


def test_imported_chats_keep_their_order(page: Page, server: SpeakingServer) -> None:
    """The newest is above the others, as it was; so it is with files that do not say when."""
    page.open(server.url + "/")
    for chats in (
        [{"title": "b", "updated": 2000}, {"title": "a", "updated": 1000}],
        [{"title": "d"}, {"title": "c"}],
    ):
        file = {"format": "streamwell.chats/1", "chats": [chat | {"items": []} for chat in chats]}
        imported = f"imported({json.dumps(json.dumps(file))})"
        page.evaluate(f"import('./web/transfer.js').then(({{ imported }}) => {imported})")

    titles = "[...document.querySelectorAll('.chats a')].map(e => e.textContent)"
    shown = page.sees(f"(all => all.includes('a') && all)({titles})")
    assert ["d", "c", "b", "a"] == [title for title in shown if title in set("abcd")]


def test_a_chat_that_a_list_tells_early_stands_there_once(
    page: Page, server: SpeakingServer
) -> None:
    """A list can be asked for and answered between a chat's creation and the answer to that."""
    page.open(server.url + "/")
    page.evaluate("""(async () => {
      const { createChat, refreshChats } = await import('./web/chats.js');
      const { fetch } = window;
      window.fetch = async (path, options) => {
        const response = await fetch(path, options);
        if (options?.method === 'POST') await refreshChats();
        return response;
      };
      await createChat('told early', {});
      window.fetch = fetch;
    })()""")

    titles = "[...document.querySelectorAll('.chats a')].map(e => e.textContent)"
    shown = page.sees(f"(all => all.includes('told early') && all)({titles})")
    assert shown.count("told early") == 1


DAMAGED: list[Any] = [
    {"title": "no items"},
    {"title": "an item is none", "items": [None]},
    None,
    {"title": "tools are no JSON", "items": [], "settings": {"tools": "nojson"}},
]


@pytest.mark.parametrize("chat", DAMAGED)
def test_a_damaged_file_makes_no_chat(page: Page, server: SpeakingServer, chat: Any) -> None:  # noqa: ANN401
    """Not even those that stand before the damage."""
    chats = [{"title": "whole", "items": []}, chat]
    text = json.dumps({"format": "streamwell.chats/1", "chats": chats})
    page.open(server.url + "/")
    before = server.chats()

    error = page.evaluate(f"""import('./web/transfer.js')
      .then(({{ imported }}) => imported({json.dumps(text)})).catch((error) => error.message)""")

    assert "the file is damaged: chat 2 cannot be read" == error
    assert before == server.chats()


def test_thoughts_are_folded_and_calls_are_shown(page: Page, server: SpeakingServer) -> None:
    """Thoughts unfold by hand; a call's result goes back to the model."""
    server.says(
        lambda prompt, _: "All is blue." if "tool: blue" in prompt else f"<think>Hm.</think>{CALL}"
    )
    page.open(server.url + "/")
    page.click("Settings")
    page.type(TOOLS, into="[name=tools]")
    page.click("Save")
    page.ask("What do you see?")
    page.sees(IDLE)
    assert [False, "look", '{"at":"sky"}'] == page.evaluate("""[
      document.querySelector('.reasoning').open, document.querySelector('.call p code').textContent,
      JSON.stringify(JSON.parse(document.querySelector('.call pre').textContent))]""")
    page.tab.locator("summary", has_text="Thoughts").click()
    assert "Hm." == page.evaluate("document.querySelector('.thoughts').innerText")
    page.type("blue", into=".call input")
    page.press("Enter")

    page.has("All is blue.")
    page.sees(IDLE)
    assert ["What do you see?", "blue"] == _questions(page)


def test_settings_are_the_chats_own(page: Page, server: SpeakingServer) -> None:
    """System prompt and sampling go with each request, and stay with the chat on the server."""
    seen: list[str] = []

    def answer(prompt: str, seed: int) -> str:
        seen.append(f"{seed} {prompt}")
        return "fine"

    server.says(answer)
    page.open(server.url + "/")
    page.click("Settings")
    page.type("Be brief. " * 70, into="[name=system]")
    page.type("7", into="[name=seed]")
    page.type("0.5", into="[name=temperature]")
    page.click("Save")
    _ask(page, "Hello!")
    page.tab.reload()
    page.has("fine", ".answer")
    _ask(page, "And?")

    assert [True] * 2 == [line.startswith("7 system: Be brief.") for line in seen]
    page.click("Settings")
    kept = "[...document.querySelectorAll('[name=system], [name=seed], [name=temperature]')]"
    values = page.evaluate(f"{kept}.map(field => field.value)")
    assert sorted(["Be brief. " * 70, "7", "0.5"]) == sorted(values)


def test_settings_go_to_the_chat_that_they_were_opened_for(
    page: Page, server: SpeakingServer
) -> None:
    """They close when another one is opened; what another tab has changed meanwhile stays."""
    server.says("fine")
    page.open(server.url + "/")
    _ask(page, "Hello!")
    chat = _chat_id(page)
    page.click("Settings")
    path = f"/v1/conversations/{chat}"
    metadata = server.client.get(path).json()["metadata"]
    others = metadata | {"settings.0": json.dumps({"system": "Be brief."})}
    assert server.client.post(path, json={"metadata": others}).is_success
    page.type("7", into="[name=seed]")
    page.click("Save")
    page.sees("!document.querySelector('dialog')")
    kept = json.loads(server.client.get(path).json()["metadata"]["settings.0"])
    assert {"system": "Be brief.", "seed": 7} == kept

    page.click("Settings")
    page.evaluate("location.hash = '#/'")
    page.sees("!document.querySelector('dialog')")


def test_a_model_that_is_served_no_more_can_be_left(page: Page, server: SpeakingServer) -> None:
    """The page says so in its chat, and takes another for new ones."""
    server.says("fine")
    page.open(server.url + "/")
    page.evaluate("""localStorage.setItem('streamwell.settings', '{"model": "gone"}')""")
    page.tab.reload()
    page.sees("document.querySelector('.models')?.value && !document.querySelector('.loading')")
    _ask(page, "Hello!")
    path = f"/v1/conversations/{_chat_id(page)}"
    metadata = server.client.get(path).json()["metadata"] | {"settings.0": '{"model": "gone"}'}
    assert server.client.post(path, json={"metadata": metadata}).is_success
    page.tab.reload()
    page.has("gone (not served)", ".models")
    page.evaluate("""(picker => {
      picker.value = [...picker.options].find(({ value }) => value !== 'gone').value;
      picker.dispatchEvent(new Event('change', { bubbles: true }));
    })(document.querySelector('.models'))""")
    _ask(page, "And now?")

    assert ["fine", "fine"] == _answers(page)
    page.evaluate("localStorage.removeItem('streamwell.settings')")


def test_files_that_are_read_at_the_same_time_are_all_there(
    page: Page, server: SpeakingServer
) -> None:
    """However long each takes; they belong to the chat that they were dropped on."""
    page.open(server.url + "/")
    page.sees("document.querySelector('main')")
    page.evaluate("""import('./web/composer.js').then(async ({ addFiles }) => {
      const waiting = [];
      const slow = (name) => ({ name, size: 1, arrayBuffer: () => new Promise((resolve) => {
        waiting.push(() => resolve(new TextEncoder().encode(name).buffer));
      }) });
      const reading = ['a.txt', 'b.txt'].map((name) => addFiles([slow(name)]));
      waiting.forEach((go) => go());
      await Promise.all(reading);
    })""")

    page.has("a.txt", ".files")
    page.has("b.txt", ".files")


def test_code_in_a_list_stays_code(page: Page, server: SpeakingServer) -> None:
    """Set in or not, with empty lines in it, and however long it is: prose after it is prose."""
    code = "\n".join(f"   line({number})" for number in range(300))
    server.says(
        "1. One:\n```python\nimport os\n\ndef f():\n    pass\n```\n2. Two:\n"
        f"   ```python\n{code}\n\n   more()\n   ```\n3. Run **it**.\n\nThe end."
    )
    page.open(server.url + "/")
    page.ask("How?")
    page.has("The end.", ".answer")
    page.sees(IDLE)

    bold = "[...document.querySelectorAll('.answer strong')].map(e => e.textContent).join()"
    page.sees(f"{bold} == 'it'")
    shown = page.evaluate("[...document.querySelectorAll('.code')].map(e => e.textContent).join()")
    assert [True, True, True] == [part in shown for part in ("def f():", "line(299)", "more()")]
    assert "Run" not in shown


def test_text_files_become_part_of_the_message(page: Page, server: SpeakingServer) -> None:
    """Dropped files are fenced; what is no text is refused by name."""
    server.says("read")
    page.open(server.url + "/")
    page.sees("document.querySelector('main')")
    drop = """(() => {
      const files = new DataTransfer();
      files.items.add(new File([%s], %s));
      document.querySelector('main').dispatchEvent(
        new DragEvent('drop', { dataTransfer: files, bubbles: true, cancelable: true }));
    })()"""
    page.evaluate(drop % ("new Uint8Array([0, 255, 3])", json.dumps("picture.bin")))
    page.has("picture.bin is no text")
    page.evaluate(drop % (json.dumps("a = 1\n```\n"), json.dumps("code.py")))
    page.has("code.py", ".files")
    _ask(page, "What is it?")

    assert ["code.py:\n````\na = 1\n```\n````\n\nWhat is it?"] == _questions(page)


def test_keys(page: Page, server: SpeakingServer) -> None:
    """Ctrl+B the list of chats, Ctrl+Shift+O a new chat."""
    server.says("fine")
    page.open(server.url + "/")
    _ask(page, "Hello!")
    page.press("Control+b")
    page.sees("!document.querySelector('.sidebar').checkVisibility()")
    page.press("Control+b")
    page.sees("document.querySelector('.sidebar').checkVisibility()")
    page.press("Control+Shift+o")

    page.sees("location.hash == '#/' && !document.querySelector('.message')")


def test_a_model_is_loaded_by_hand(page: Page, start_server: StartServer, tmp_path: Path) -> None:
    """One of `--models-dir` is loaded when an operator chooses it, and then answers."""
    (tmp_path / "models").mkdir()
    shutil.copytree(brooklet_path(), tmp_path / "models" / "spare")
    quick = ("--engine", "scripted", "--scripted-load-s", "5", "--max-model-len", "200")
    server = start_server(*quick, "--models-dir", str(tmp_path / "models"))
    server.wait_until_ready()
    page.open(server.url + "/")
    page.sees("document.querySelector('.models')?.innerText.includes('spare (unloaded)')")
    page.evaluate("""(picker => {
      picker.value = 'spare';
      picker.dispatchEvent(new Event('change', { bubbles: true }));
    })(document.querySelector('.models'))""")
    page.sees("document.querySelector('.loading')?.innerText.includes('Loading spare')")
    page.sees("!document.querySelector('.loading')")
    page.sees("!document.querySelector('.models').innerText.includes('(')")
    _ask(page, "Who are you?")

    (item,) = server.client.get(f"/v1/conversations/{_chat_id(page)}/items").json()["data"][:1]
    assert "spare" == server.client.get(f"/v1/runs/{item['run_id']}").json()["model"]
    assert [] == page.complaints()


def test_the_chosen_model_answers(page: Page, start_server: StartServer) -> None:
    """Each of the built-in models, in one chat; the choice stays with it.

    What is left under an answer is of the model that gave it, of an encoder-decoder its output's.
    """
    server = start_server("--model", "brooklet-t5", "--num-threads", "1")
    eventually(server.is_open, "the port is open")
    page.open(server.url + "/")
    page.sees("document.querySelector('.models')", START_TIMEOUT_S)
    page.sees("!document.querySelector('.loading')", START_TIMEOUT_S)
    page.click("Settings")
    page.type("0", into="[name=temperature]")
    page.click("Save")
    _ask(page, "What is 12 + 30?")
    page.evaluate("""(picker => {
      picker.value = 'brooklet-t5';
      picker.dispatchEvent(new Event('change', { bubbles: true }));
    })(document.querySelector('.models'))""")
    _ask(page, "Write 42 in words")
    page.tab.reload()
    page.sees("document.querySelectorAll('.answer').length == 2")

    first, second = _answers(page)
    assert ("42" in first, "forty-two" in second) == (True, True)
    page.sees("document.querySelector('.models')?.value == 'brooklet-t5'")
    items = server.client.get(f"/v1/conversations/{_chat_id(page)}/items").json()["data"]
    said, counted = (item["usage"] for item in items[::-1] if item["role"] == "assistant")
    assert page.has(f"{4096 - said['total_tokens']} of 4096 left")
    assert page.has(f"{2048 - counted['completion_tokens']} of 2048 left")
    assert [] == page.complaints()
