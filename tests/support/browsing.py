"""What a person does on the page, for browser tests."""

from __future__ import annotations

import os

from tests.support.fake_runtime import FakeRuntime

DROP = """([data, name, selector]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name));
  const target = document.querySelector(selector);
  for (const type of ["dragenter", "dragover", "drop"])
    target.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: transfer }));
}"""


def admission(page) -> dict[str, str]:
    """Lets a request of the test's own in, as the page's cookie does. It goes to 127.0.0.1, since
    not every resolver knows the page's name.
    """
    (cookie,) = page.context.cookies()
    return {"Cookie": f"{cookie['name']}={cookie['value']}"}


def ask(page, question: str, *, answers: int) -> None:
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")
    page.wait_for_selector(f"#turns .answer footer >> nth={answers - 1}")


def open_reader(page, drop, sample) -> None:
    """Drops the sample book and opens it in its pane."""
    drop(page, sample)
    page.wait_for_selector(".card h2")
    page.click("#tab-reader")
    page.wait_for_selector(".reader-text p[data-offset]")


def shot(page, name: str) -> None:
    if folder := os.environ.get("TRIFORCE_SHOTS"):
        page.screenshot(path=f"{folder}/{name}.png")


def engine(**options):
    return FakeRuntime(**{"pace": 0.05, **options})


FOCUSED = "document.activeElement.matches(%r)"


def tab_to(page, name: str) -> None:
    """By the Tab key alone, at most twice round the page."""
    for _ in range(200):
        if page.evaluate(FOCUSED % name):
            return
        page.keyboard.press("Tab")
    raise AssertionError(
        f"{name} is not to be reached: {page.evaluate('document.activeElement.outerHTML')[:200]}"
    )


SELECTED = """(wanted) => {
  if (!document.querySelector('.selected').hidden) return true;
  const walk = document.createTreeWalker(document.querySelector('.reader-text'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const at = walk.currentNode.data.indexOf(wanted);
    if (at < 0) continue;
    const range = document.createRange();
    range.setStart(walk.currentNode, at);
    range.setEnd(walk.currentNode, at + wanted.length);
    walk.currentNode.parentElement.scrollIntoView({ block: 'center' });
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    return false;
  }
}"""


def select(page, words: str) -> None:
    """Words of the open book are selected, in sight; again, if the page draws itself anew meanwhile."""
    page.wait_for_selector(".selected", state="hidden")
    page.wait_for_function(SELECTED, arg=words, polling=250)
