"""The static site as a person uses it: train, decode, look inside, keep and open runs; and what goes wrong."""

import re
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, Route, expect

from core.interpret.trained import Trained
from core.runs import DEFAULT_ROOT, Run, RunFolder
from core.runs.export import export_weights
from core.runs.importing import import_run
from core.text.pieces import word_names
from tests.browser.chromium import COOKIES_BLOCKED, NOTHING_SIDEWAYS, PHONE, open_tab
from tests.browser.test_accessibility import CHECK, NO_TRANSITIONS
from tests.support.run_helpers import wait_for
from tests.support.trainings import train_run

pytestmark = pytest.mark.slow
TABS = ("Train", "Decode", "Look inside", "Learn", "About")
MINUTE = 60_000
READY = "body[data-ready]"
OUTPUT = "#answer .output .tile"
ADD_STYLE = """(css) => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(css);
  document.adoptedStyleSheets = [sheet];
}"""
NO_STORAGE = """IDBObjectStore.prototype.put = () => { throw new DOMException("full", "QuotaExceededError"); };"""


def choose(page: Page, preset: str) -> None:
    page.locator(f"#preset-picker input[value={preset}]").check(force=True)


def train(page: Page, preset: str = "tiny", *, minutes: float = 3) -> None:
    choose(page, preset)
    title = page.locator("#run-bar .title")
    before = title.inner_text()
    page.locator("#train").click()
    expect(title).not_to_have_text(before, timeout=MINUTE)  # which may be that of a run of this preset
    expect(title).to_have_text(re.compile(rf"{preset} \d+"), timeout=MINUTE)
    expect(page.locator("#run-bar .status")).to_contain_text("finished", timeout=minutes * MINUTE)


def decode(page: Page, text: str) -> None:
    page.locator("#text").fill(text)
    page.locator("#ask button").click()


def test_a_preset_is_trained_decoded_and_looked_into_without_a_server(page, requests):
    train(page, "digits-reversal-fast")
    expect(page.locator("#run-bar .status")).to_have_text("finished, validation exact match 100 %")
    expect(page.locator("#bench-view .health")).to_be_hidden()
    expect(page.locator("#bench-view .answer .mark.good")).to_have_count(4)
    assert int(page.locator("#bench-view .scrubber").get_attribute("max")) > 8  # the heads moved meanwhile
    page.locator("#measure-test").click()
    expect(page.locator("#test-result")).to_contain_text("with the weights after step", timeout=MINUTE)
    right, of = re.findall(r"[\d,]+", page.locator("#test-result").inner_text())[:2]
    assert of == "10,000"
    assert int(right.replace(",", "")) >= 9_990
    open_tab(page, "Decode")
    decode(page, "7 0 0 3 5")
    expect(page.locator("#answer .verdict")).to_have_text("✓ correct")
    expect(page.locator(OUTPUT)).to_have_text(["5", "3", "0", "0", "7"])
    decode(page, "4")
    expect(page.locator("#answer .note")).to_contain_text("shorter than any training input (3–10 tokens)")
    decode(page, "7 0 0 3 5")
    open_tab(page, "Look inside")
    expect(page.locator("#viewer .head-grid canvas")).to_have_count(8)
    expect(page.locator("#viewer .story-say")).to_contain_text("this head takes")
    page.locator("#heads .cell", has_text="all").last.click()
    expect(page.locator("#attention-edited .row")).to_have_count(2)
    page.get_by_role("button", name="Restore all heads").click()
    expect(page.locator("#attention-edited .shown")).to_be_hidden()
    page.get_by_role("radio", name="training replay").check()
    expect(page.locator("#viewer .replay")).to_be_visible()
    assert {method for method, _ in requests.seen} == {"GET"}
    assert {urlsplit(path).path.rpartition(".")[2] for _, path in requests.seen} <= {
        "/",
        "js",
        "mjs",
        "css",
        "gz",
        "svg",
    }


def test_the_plurals_are_learned_letter_by_letter(page):
    """Half a minute of training on a quiet machine. Dropout is drawn anew, so rare endings differ from run to run."""
    page.locator("#preset-picker .family").select_option(label="Plurals")
    train(page, "plurals", minutes=10)
    measured = re.search(r"exact match ([\d.]+) %", page.locator("#run-bar .status").inner_text())
    assert measured
    assert float(measured[1]) > 75
    open_tab(page, "Decode")
    for word, plural in (("Glarty", "glarties"), ("box", "boxes"), ("wug", "wugs")):
        decode(page, word)
        expect(page.locator("#answer .output .tile")).to_have_text(list(plural))


@pytest.mark.parametrize("seed", range(5))
def test_five_seeds_learn_to_reverse(new_visitor, address, requests, seed):
    """Times are printed, with -s, and depend on the machine; accuracy and size do not."""
    page, before = new_visitor(), requests.sent
    page.goto(address)
    expect(page.locator("#bench-view .answer")).to_have_count(4)
    usable = page.evaluate("performance.now()")
    expect(page.locator(READY)).to_be_attached(timeout=MINUTE)
    page.wait_for_load_state("networkidle")  # the runtime and the graph of an update are loaded beforehand
    transferred = requests.sent - before
    assert transferred < 6e6
    page.evaluate(WATCH)
    page.locator("#seed").fill(str(seed))
    train(page, "digits-reversal-fast")
    first, seconds, frames = page.evaluate("[watched.first, watched.last, watched.frames].map((each) => each - 0)")
    page.locator("#measure-test").click()
    expect(page.locator("#test-result")).to_contain_text("with the weights after step", timeout=MINUTE)
    right = int(page.locator("#test-result").inner_text().split()[0].replace(",", ""))
    print(
        f"\nseed {seed}: usable after {usable / 1000:.1f} s and {transferred / 1e6:.2f} MB, first update after "
        f"{first / 1000:.1f} s, trained in {seconds / 1000:.1f} s, {1000 * frames / seconds:.1f} frames a second, "
        f"{right:,} of 10,000"
    )
    assert right >= 9_990


# When the page showed the first update of the training that begins now, and the last one; and how many it showed.
WATCH = """() => {
  const steps = document.querySelector("#bench-view .when");
  const watched = (window.watched = { first: 0, last: 0, frames: 0 });
  let pressed = 0;
  let shown = steps.textContent;
  document.querySelector("#train").addEventListener("click", () => (pressed = performance.now()), true);
  new MutationObserver(() => {
    if (!pressed || steps.textContent === shown) return;
    shown = steps.textContent;
    watched.last = performance.now() - pressed;
    watched.frames += 1;
    if (!watched.first && shown.startsWith("step 1")) watched.first = watched.last;
  }).observe(steps, { childList: true, characterData: true, subtree: true });
}"""


def test_a_stopped_training_survives_the_tab_and_goes_on(page):
    choose(page, "deduplicate-digits")
    page.locator("#train").click()
    expect(page.locator("#run-bar .steps")).to_contain_text(re.compile(r"^[1-9]\d+ "), timeout=MINUTE)
    page.locator("#run-bar .stop").click()
    expect(page.locator("#run-bar .resume")).to_be_visible()
    step = page.locator("#run-bar .steps").inner_text()
    page.reload()
    expect(page.locator(READY)).to_be_attached()
    expect(page.locator("#run-bar .title")).to_have_text("deduplicate-digits 1")
    expect(page.locator("#run-bar .steps")).to_have_text(step)
    page.locator("#run-bar .resume").click()
    expect(page.locator("#run-bar .steps")).to_contain_text(re.compile(r"^[1-9]\d\d "), timeout=2 * MINUTE)
    page.reload()  # in the middle of it: what was saved at an evaluation is there
    expect(page.locator(READY)).to_be_attached()
    expect(page.locator("#run-bar .status")).to_have_text("interrupted")
    assert int(page.locator("#run-bar .steps").inner_text().split()[0]) > int(step.split()[0])
    page.locator("#run-bar .resume").click()
    expect(page.locator("#run-bar .stop")).to_be_enabled()
    page.locator("#run-bar .stop").click()
    expect(page.locator("#run-bar .resume")).to_be_visible()


def test_a_reload_between_evaluations_loses_a_few_seconds_at_most(page):
    page.locator("#preset-picker .family").select_option(label="Addition")
    choose(page, "addition")
    page.locator("#train").click()
    expect(page.locator("#run-bar .title")).to_have_text("addition 1", timeout=MINUTE)
    for stored in (0, 1):  # while its model loads, and between two evaluations
        wait_for(partial(page.evaluate, IS_STORED, stored))
        page.reload()
        expect(page.locator(READY)).to_be_attached(timeout=MINUTE)
        expect(page.locator("#run-bar .title")).to_have_text("addition 1")
        expect(page.locator("#run-bar .status")).to_have_text("interrupted")
        step = int(page.locator("#run-bar .steps").inner_text().split()[0])
        page.locator("#run-bar .resume").click()
        expect(page.locator("#run-bar .stop")).to_be_enabled()
    assert 0 < step < 200  # the preset evaluates every 200 steps
    page.locator("#run-bar .stop").click()
    expect(page.locator("#run-bar .resume")).to_be_visible()
    assert int(page.locator("#run-bar .steps").inner_text().split()[0]) >= step


# Whether this browser has stored the run that the page shows at a training step or after it.
IS_STORED = """(step) => new Promise((resolve) => {
  indexedDB.open("attention-lab").onsuccess = ({ target: { result: database } }) => {
    const id = new URLSearchParams(location.search).get("run");
    const request = database.transaction("runs").objectStore("runs").get(id);
    request.onsuccess = () => resolve(request.result?.step >= step);
    database.close();
  };
})"""


def test_two_tabs_do_not_train_or_change_one_run(page):
    choose(page, "deduplicate-digits")
    page.locator("#train").click()
    expect(page.locator("#run-bar .steps")).to_contain_text(re.compile(r"^[1-9]\d+ "), timeout=MINUTE)
    page.locator("#run-bar .stop").click()
    expect(page.locator("#run-bar .resume")).to_be_visible()
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#run-bar .resume")).to_be_visible(timeout=MINUTE)
    page.locator("#run-bar .resume").click()
    expect(other.locator("#run-bar .message-text")).to_have_text(ELSEWHERE)
    expect(other.locator("#run-bar .resume")).to_be_hidden()
    expect(other.locator("#run-bar .stop")).to_be_disabled()
    other.locator("#run-bar .run").click()
    menu = other.get_by_role("dialog", name="Runs")
    expect(menu.locator(".item", has_text="deduplicate-digits 1")).to_contain_text("training")
    for name in ("rename", "delete"):
        expect(menu.locator(f".{name}")).to_be_hidden()
    for change in ("resume", "delete", "rename"):
        assert "is training in another tab" in other.evaluate(CALL, change)["error"]
    page.locator("#run-bar .stop").click()
    expect(page.locator("#run-bar .resume")).to_be_visible()
    expect(other.locator("#run-bar .steps")).to_have_text(page.locator("#run-bar .steps").inner_text())
    expect(other.locator("#run-bar .resume")).to_be_visible()
    assert other.evaluate(CALL, "rename")["title"] == "another name"
    expect(page.locator("#run-bar .title")).to_have_text("another name")
    assert other.evaluate(CALL, "delete") == {"run": None}
    expect(page.locator("#run-bar .message-text")).to_have_text("The run “another name” was deleted in another tab.")
    expect(page.locator("#run-bar .title")).to_have_text("digits-reversal-shipped")


ELSEWHERE = "This run is training in another tab of this browser"
CALL = """async (name) => {
  const { call } = await import("./site/remote.js");
  const run = new URLSearchParams(location.search).get("run");
  return call(name, { run, title: "another name" });
}"""


def test_a_sentence_is_translated_and_its_maps_are_by_word(page):
    page.locator("#bench-view .translate-link").click()
    expect(page.locator("#run-bar .title")).to_have_text("translate-en-de-shipped", timeout=MINUTE)
    expect(page.locator("#answer .ribbon path").first).to_be_attached(timeout=MINUTE)
    trained = Run(RunFolder(DEFAULT_ROOT, "translate-en-de-shipped")).trained()
    for sentence in ("The document is saved in the selected folder.", "I know where he lives."):
        decode(page, sentence)
        decoded = trained.decode(sentence)
        expect(page.locator("#answer .output")).to_have_text(decoded.text)
        expect(page.locator("#answer .ribbon .above .word")).to_have_text(word_names(decoded.symbols))
        expect(page.locator("#answer .ribbon .below .word")).to_have_text(word_names(decoded.output))
        expect(page.locator("#answer .sureness")).to_contain_text("Unsure" if decoded.is_unsure else "as probable")
    decode(page, "サクラ")
    expect(page.locator("#decode-message")).to_contain_text("vocabulary has nothing of this input: サ, ク, ラ")
    decode(page, "I like サクラ.")
    expect(page.locator("#answer .note")).to_contain_text("read as bytes: サ, ク, ラ")
    decode(page, "9" * 1000 + ". I have a dog. I know where he lives.")
    pick = page.locator("#translations .pick")
    expect(page.locator("#translations .heading")).to_have_text("Translation of 3 sentences")
    expect(page.locator("#translations .problem")).to_contain_text("with <BOS> and <EOS>; this model reads")
    expect(page.locator("#decode-message")).to_contain_text("Steps and attention are those of “I have a dog.”")
    expect(page.locator("#answer .ribbon .above .word")).to_have_text(["I", "have", "a", "dog", "."])
    pick.last.click()
    expect(page.locator("#answer .ribbon .above .word")).to_have_text(["I", "know", "where", "he", "lives", "."])
    expect(pick.last).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#translations .text")).to_have_text("Ich habe einen Hund. Ich weiß, wo er wohnt.")
    decode(page, "I know where he lives.")
    expect(page.locator("#translations .shown")).to_be_hidden()
    open_tab(page, "Look inside")
    expect(page.locator("#viewer .units input[value=words]")).to_be_checked()
    expect(page.locator("#viewer .ribbon path").first).to_be_attached()


def test_line_breaks_of_an_input_are_kept_as_on_the_page(new_visitor, address):
    page = new_visitor()
    page.goto(f"{address}?tab=decode&run=translate-en-de-shipped&input=I+have+a+dog%0AI+know+where+he+lives")
    field, sources = page.locator("#text"), page.locator("#translations .source")
    expect(sources).to_have_text(["I have a dog", "I know where he lives"], timeout=MINUTE)
    expect(field).to_have_value("I have a dog\nI know where he lives")
    expect(page).to_have_url(re.compile("dog%0AI"))
    field.fill("I like cats")
    field.press("Shift+Enter")
    field.press_sequentially("I have a dog")
    field.press("Enter")
    expect(sources).to_have_text(["I like cats", "I have a dog"])
    expect(field).to_have_value("I like cats\nI have a dog")


def test_what_is_typed_while_the_page_loads_is_decoded(new_visitor, address):
    page, held = new_visitor(), list[Route]()
    page.route("**/worker.js", lambda route: held.append(route))
    page.goto(address)
    open_tab(page, "Decode")
    field = page.locator("#text")
    field.fill("3 1 4 1 5")
    field.press("Enter")
    page.locator("#decode").click()
    while not held:
        page.wait_for_timeout(10)
    for each in held:
        each.continue_()
    expect(page.locator(OUTPUT)).to_have_text(list("51413"), timeout=MINUTE)
    expect(field).to_have_value("3 1 4 1 5")
    expect(page).to_have_url(re.compile(r"input=3\+1\+4\+1\+5"))
    field.fill("3 1 4 1")
    expect(page.locator("#answer .former-note")).to_be_visible()
    field.fill("3 1 4 1 5 ")
    expect(page.locator("#answer .former-note")).to_be_hidden()


def test_a_run_goes_to_the_program_and_back(page, tiny, tmp_path: Path):
    train(page)
    page.locator("#run-bar .run").click()
    with page.expect_download() as download:
        page.locator("#run-bar .file").click()
    file = tmp_path / "run.safetensors"
    download.value.save_as(file)
    folder = import_run(tmp_path / "runs", file, name="from-the-tab")
    trained: Trained = Run(folder).trained()
    page.keyboard.press("Escape")
    open_tab(page, "Decode")
    for text in ("1 2 3", "4 8 2 9", "0 0 7 1"):
        decode(page, text)
        expect(page.locator("#answer .expected .tile").first).to_have_text(text[-1])
        expect(page.locator(OUTPUT)).to_have_text(trained.decode(text).output)
    open_tab(page, "Train")
    other = RunFolder.create(tmp_path / "runs", tiny, name="of-another-size")
    train_run(other)
    page.locator("#open-file").set_input_files(exported(other, tmp_path))
    expect(page.locator("#train-problem")).to_contain_text("its task or its model is none of this site's")
    page.locator("#open-file").set_input_files(exported(RunFolder(DEFAULT_ROOT, "digits-reversal-shipped"), tmp_path))
    expect(page.locator("#run-bar .title")).to_have_text("digits-reversal-shipped 2")  # another run has its title
    expect(page.locator("#run-bar .status")).to_have_text("finished, validation exact match 100 %")
    page.locator("#run-bar .run").click()
    expect(page.locator("#run-bar .item")).to_have_count(4)


def exported(run: RunFolder, folder: Path) -> Path:
    file = folder / f"{run.name}.safetensors"
    export_weights(run, file)
    return file


def test_a_file_that_is_no_run_is_refused_in_words(page, tmp_path: Path):
    train(page)
    page.locator("#run-bar .run").click()
    with page.expect_download() as download:
        page.locator("#run-bar .file").click()
    whole = Path(download.value.path()).read_bytes()
    page.keyboard.press("Escape")
    damaged = bytearray(whole)
    damaged[-5] ^= 1
    files = {"empty": b"", "text": b"hello, world", "half": whole[: len(whole) // 2], "damaged": bytes(damaged)}
    for name, content in files.items():
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(content)
        page.locator("#open-file").set_input_files(path)
        expect(page.locator("#train-problem")).to_contain_text(f"“{name}.safetensors” cannot be opened: ")


def test_no_two_runs_have_one_title_and_a_lesson_that_is_missing_is_named(page, address):
    for number in (1, 2):
        train(page)
        expect(page.locator("#run-bar .title")).to_have_text(f"tiny {number}")
    page.locator("#run-bar .run").click()
    menu = page.get_by_role("dialog", name="Runs")
    menu.locator(".item", has_text="tiny 1").click()
    expect(page.locator("#run-bar .title")).to_have_text("tiny 1")
    page.locator("#run-bar .run").click()
    menu.get_by_role("button", name="Delete", exact=True).click()
    menu.locator(".yes").click()
    expect(page.locator("#run-bar .title")).not_to_have_text("tiny 1")
    page.keyboard.press("Escape")
    train(page)
    expect(page.locator("#run-bar .title")).to_have_text("tiny 3")
    page.goto(f"{address}?tab=lessons&lesson=induction")
    expect(page.locator("#lesson .error")).to_have_text("This site has no lesson “induction”.")


def test_a_link_says_what_of_it_is_not_here(new_visitor, address):
    page = new_visitor()
    page.goto(f"{address}?tab=decode&run=tiny-1")
    expect(page.locator(READY)).to_be_attached(timeout=MINUTE)
    expect(page.locator("#site-status")).to_be_hidden()  # the runtime is loaded
    message = page.locator("#run-bar .message-text")
    expect(message).to_contain_text("There is no run “tiny-1” in this browser")
    open_tab(page, "Train")
    train(page)
    expect(message).to_be_hidden()
    page.goto(f"{address}?tab=zzz&preset=nope&block=cross&layer=9&head=77&ablate=cross.9,cross.1&strategy=beam")
    for said in (
        "tab=zzz is not one of the tabs",
        "preset=nope is not one of the presets",
        "strategy=beam needs the program",
        "block=cross, layer=9, head=77 is not in this model, which has 2 layers of 4 heads in block cross",
        "ablate=cross.9 is not in this model",
    ):
        expect(message).to_contain_text(said)
    expect(page.locator(READY)).to_be_attached(timeout=MINUTE)
    expect(page).not_to_have_url(re.compile("nope|=77"))
    expect(page).to_have_url(re.compile("ablate=cross.1"))


def test_a_lesson_orders_its_vectors_and_refuses_an_input_as_on_the_page(new_visitor, address):
    page = new_visitor()
    page.goto(f"{address}?tab=lessons&lesson=tokens")
    labels = page.locator("#lesson").get_by_role("group", name="vectors to compare").locator("label")
    stages = ["embedding", "position", "embedding + position", "encoder output"]
    expect(labels).to_have_text(stages * 2, timeout=MINUTE)  # of two figures
    page.get_by_label("Input of the figures").fill("4 x")
    page.get_by_role("button", name="Show", exact=True).click()
    alert = page.locator("#lesson .attention-lesson [role=alert]").first
    expect(alert).to_have_text(re.compile(r"[^.]; the figures below are those of 4 8"))


def test_what_a_browser_lacks_is_said(new_visitor, address, errors):
    page = new_visitor()
    page.add_init_script("delete window.WebAssembly;")
    page.route("**/worker.js", lambda route: route.fulfill(content_type="text/javascript", body=WITHOUT_WASM))
    page.goto(address)
    expect(page.locator("#site-status")).to_contain_text("This browser has no WebAssembly")
    expect(page.locator("#bench-view .answer")).to_have_count(4)  # the recorded run can still be looked at
    errors.clear()
    page = new_visitor()
    page.add_init_script(COOKIES_BLOCKED)
    worker = f'import {{ serve }} from "./functions.js"; const window = self; {COOKIES_BLOCKED} serve(self);'
    page.route("**/worker.js", lambda route: route.fulfill(content_type="text/javascript", body=worker))
    page.goto(address)
    expect(page.locator(READY)).to_be_attached(timeout=MINUTE)
    train(page)
    expect(page.locator("#run-bar .message")).to_contain_text("This browser cannot keep the run (Access is denied)")
    open_tab(page, "Learn")
    expect(page.locator("#lesson article:visible .title")).not_to_be_empty()


WITHOUT_WASM = 'import { serve } from "./functions.js"; delete self.WebAssembly; serve(self);'


def test_a_broken_download_is_said(new_visitor, address, errors):
    page = new_visitor()
    page.route("**/ort.wasm.gz", lambda route: route.fulfill(body=b"\x1f\x8bnot a gzip file"))
    page.goto(address)
    expect(page.locator("#site-status")).to_contain_text("The file “ort/ort.wasm” arrived damaged. Reload the page")
    page.unroute("**/ort.wasm.gz")
    page.route("**/ort.wasm.gz", lambda route: route.abort())
    page.reload()
    expect(page.locator("#site-status")).to_contain_text("could not be downloaded: no connection")
    errors.clear()


def test_a_full_storage_is_said_and_the_run_stays_in_the_tab(new_visitor, address):
    page = new_visitor()
    worker = f'import {{ serve }} from "./functions.js"; {NO_STORAGE} serve(self);'
    page.route("**/worker.js", lambda route: route.fulfill(content_type="text/javascript", body=worker))
    page.goto(address)
    expect(page.locator(READY)).to_be_attached()
    train(page)
    expect(page.locator("#run-bar .message")).to_contain_text("its storage for this page is full")
    open_tab(page, "Decode")
    decode(page, "1 2 3")
    expect(page.locator("#decode-message")).to_contain_text("tiny 1")


# Fields whose font makes an iPhone zoom in, and stay there, when one types.
SMALL_FIELDS = """() => [...document.querySelectorAll("input, textarea")]
  .filter((each) => parseFloat(getComputedStyle(each).fontSize) < 16).map((each) => each.outerHTML)"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_tab_is_accessible_and_fits_a_phone(new_visitor, address, dark):
    page = new_visitor(viewport=PHONE, color_scheme="dark" if dark else "light")
    page.goto(address)
    expect(page.locator(READY)).to_be_attached()
    assert page.evaluate("document.body.classList.contains('dark')") == dark
    for scheme in ("light", "dark") if dark else ("dark", "light"):  # the system's, while the page is open
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("body.dark")).to_have_count(int(scheme == "dark"))
    page.evaluate(ADD_STYLE, NO_TRANSITIONS)
    page.evaluate(AXE_SCRIPT)
    for tab in TABS:
        open_tab(page, tab)
        expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
        assert page.evaluate(SMALL_FIELDS) == [], tab
        assert page.evaluate(NOTHING_SIDEWAYS), tab
        assert page.evaluate(CHECK) == [], tab


def test_a_page_of_one_run_opens_from_a_disk(new_visitor, tmp_path: Path):
    from ui.site.one_file import export_html

    file = tmp_path / "run.html"
    export_html(RunFolder(DEFAULT_ROOT, "digits-reversal-shipped"), file)
    page = new_visitor(offline=True, color_scheme="dark")
    page.goto(f"{file.as_uri()}?tab=lessons&run=nope")
    expect(page.locator("#run-bar .message-text")).to_contain_text("There is no run “nope”")
    expect(page.get_by_role("tab", name="Train")).to_have_attribute("aria-selected", "true")
    page.goto(file.as_uri())
    expect(page.locator(READY)).to_be_attached(timeout=MINUTE)
    assert page.evaluate("document.body.classList.contains('dark')")
    expect(page.locator("#bench-view .answer")).to_have_count(4)
    expect(page.get_by_role("tab")).to_have_text(["Train", "Decode", "Look inside", "About"])
    expect(page.get_by_role("heading", level=1)).to_have_text("digits-reversal-shipped: a run of Attention Lab")
    expect(page).to_have_title("digits-reversal-shipped: a run of Attention Lab")
    open_tab(page, "About")
    expect(page.locator("#tab-about")).to_contain_text("This page is one run of Attention Lab")
    expect(page.locator("#tab-about")).not_to_contain_text("trains")
    open_tab(page, "Decode")
    decode(page, "9 1 1")
    expect(page.locator("#answer .verdict")).to_have_text("✓ correct")
    expect(page.locator("#answer .ribbon .below .word")).to_have_text(["1", "1", "9"])
    expect(page.locator("#answer .ribbon path").first).to_be_attached()
    open_tab(page, "Look inside")
    page.locator("#heads .cell", has_text="all").last.click()
    expect(page.locator("#attention-edited .row")).to_have_count(2)
