/* The reader pane: where it scrolls to, what is looked for, what can be done with selected words. */
(() => {
  const { send, recall, keep } = window.triforce;
  const pane = () => document.querySelector(".reader-text");
  const typing = (element) => element?.closest?.("input, textarea, select, [contenteditable]");

  // a single key is a command where one reads: not behind a dialog or a drawer, nor on a button elsewhere
  const PLACES = "#right, .aloud, [data-aloud]";
  const reading = ({ target, ctrlKey, metaKey, altKey }, where = PLACES) => !ctrlKey && !metaKey && !altKey
    && !typing(target) && !document.querySelector("dialog[open], [data-settings], [data-shelf]")
    && (target === document.body || target.closest?.(where));
  window.triforce.reading = reading;

  // --- size and length of its lines
  const SIZES = [14.5, 16.5, 18.5, 21, 24];
  // line, pane
  const LINES = [["22em", "32vw"], ["28em", "32vw"], ["36em", "38vw"], ["46em", "44vw"], ["60em", "50vw"]];
  const chosen = (name, steps) => Math.max(0, Math.min(steps.length - 1, Number(recall(name, 1)) || 0));
  const dress = () => {
    const size = chosen("text", SIZES), line = chosen("lines", LINES);
    document.body.style.setProperty("--reader-size", `${SIZES[size]}px`);
    document.body.style.setProperty("--reader-measure", LINES[line][0]);
    document.body.style.setProperty("--reader-pane", LINES[line][1]);
    for (const button of document.querySelectorAll("[data-size]"))
      button.disabled = !SIZES[size + Number(button.dataset.size)];
    for (const button of document.querySelectorAll("[data-lines]"))
      button.disabled = !LINES[line + Number(button.dataset.lines)];
  };

  // --- where it stands
  let place = "", shown = null, held = false;
  const settle = (text) => {
    // the pane may still be hidden, and fonts may move the text once more
    let frames = 60;
    const wanted = Number(place.split(":")[0]);
    const first = [...text.querySelectorAll("p[data-offset]")]
      .filter((one) => Number(one.dataset.offset) <= wanted).at(-1);
    const step = () => {
      if (shown !== text || frames < 0) return;
      const mark = document.getElementById("passage");
      if (mark) {
        const box = mark.getBoundingClientRect();
        if (frames === 60 || !box.height || box.top < 0 || box.bottom > innerHeight)
          mark.scrollIntoView({ block: "center" });
      } else if (frames === 60 || !text.clientHeight) {
        text.scrollTop = first ? first.offsetTop - text.offsetTop - 18 : 0;
      }
      frames -= 1;
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  };
  const read = () => {
    const text = pane();
    if (!text || (text === shown && text.dataset.place === place)) return;
    if (shown?.dataset.book !== text.dataset.book) forget();
    shown = text;                              // an element drawn anew has lost its scroll position
    place = text.dataset.place;
    dress();
    settle(text);
    if (held && document.activeElement === document.body) text.focus({ preventScroll: true });
  };
  // a place that stands there is not drawn anew; it may be out of sight
  document.addEventListener("click", (event) => {
    const to = event.target.closest?.("[data-act='cite']");
    if (to && shown && `${to.dataset.offset}:${to.dataset.length}` === place) settle(shown);
  });
  document.addEventListener("focusin", (event) => { held = event.target === pane(); });
  const topmost = (text) => {                    // the first paragraph in sight
    const top = text.getBoundingClientRect().top;
    return [...text.querySelectorAll("p[data-offset]")]
      .find((one) => one.getBoundingClientRect().bottom > top + 8);
  };
  let later = 0;
  document.addEventListener("scroll", (event) => {
    offer();                                     // beside the selected words, wherever they are now
    if (event.target !== shown) return;
    const first = topmost(shown), page = document.querySelector(".reader-page");
    if (page && first) page.textContent = first.dataset.page;
    clearTimeout(later);
    later = setTimeout(() => {
      if (first && shown.clientHeight) send({ act: "stand", value: first.dataset.offset });
    }, 1200);
  }, { capture: true, passive: true });

  // --- finding
  let waiting = 0, at = -1;
  let sought = {};                             // what is looked for in which book, once that is open
  const forget = () => {                       // another book is open: nothing was looked for in it
    clearTimeout(waiting);
    document.querySelector("[data-find]").value = "";
    at = -1;
    if (sought.book === pane().dataset.book) seek();
  };
  const seek = () => {
    document.querySelector("[data-find]").value = sought.sought;
    document.querySelector("[data-find-exact]").checked = false;
    sought = {};
    look();
  };
  document.addEventListener("click", ({ target }) => {
    const every = target.closest?.("[data-sought]");
    if (!every) return;
    sought = every.dataset;
    if (sought.book === pane()?.dataset.book) seek();
  });
  const look = () => {
    const { value } = document.querySelector("[data-find]");
    const exact = document.querySelector("[data-find-exact]").checked ? "1" : "";
    at = -1;
    document.getElementById("folds").scrollTop = 0;   // what is found stands first there
    send({ act: "find", text: value, exact });
  };
  document.addEventListener("input", (event) => {
    if (!event.target.matches?.("[data-find], [data-find-exact]")) return;
    clearTimeout(waiting);
    waiting = setTimeout(look, 300);
  });
  const next = (step) => {
    const places = document.querySelectorAll(".found [data-act='cite']");
    if (!places.length) return;
    at = (at + step + places.length) % places.length;
    for (const one of places) one.removeAttribute("aria-current");
    places[at].setAttribute("aria-current", "true");
    places[at].scrollIntoView({ block: "nearest" });
    places[at].click();
  };

  // --- a selection
  const tools = () => document.querySelector(".selected");
  const hide = () => { const bar = tools(); if (bar) bar.hidden = true; };
  const selected = () => {
    const selection = getSelection();
    const range = selection.rangeCount && !selection.isCollapsed ? selection.getRangeAt(0) : null;
    const start = range?.startContainer.parentElement?.closest(".reader-text p[data-offset]");
    return start && pane()?.contains(range.endContainer)
      ? { range, start, words: selection.toString().trim() } : null;
  };
  // without a mouse nothing is selected: the place that is marked, else what is read now
  const inSight = () => {
    const place = document.getElementById("passage");
    const start = place?.closest("p[data-offset]") ?? topmost(pane());
    return start && { start, words: (place ?? start).innerText.trim() };
  };
  const offer = () => {
    const found = selected(), bar = tools();
    if (!bar) return;
    const box = found?.range.getBoundingClientRect(), edge = pane()?.getBoundingClientRect();
    bar.hidden = !found?.words || !edge.height || box.bottom < edge.top || box.top > edge.bottom;
    if (bar.hidden) return;
    bar.style.left = `${Math.max(8, Math.min(innerWidth - bar.offsetWidth - 8, box.left))}px`;
    bar.style.top = `${Math.max(8, Math.min(innerHeight - bar.offsetHeight - 8, box.bottom + 8))}px`;
  };
  document.addEventListener("selectionchange", offer);
  window.addEventListener("resize", offer);
  const cite = async ({ words, start }) => {
    const where = [pane().dataset.source.trim(), start.dataset.page].filter(Boolean).join(", ");
    await navigator.clipboard.writeText(`“${words}”\n${where}`);
    hide();
  };

  const mark = ({ words, start }) => {
    send({ act: "mark", offset: start.dataset.offset, text: words }); hide();
  };
  const explain = ({ words, start }, id) => {
    send({ act: "explain", id, offset: start.dataset.offset, text: words }); hide();
  };
  const askAbout = ({ words }, about) => {
    hide(); getSelection().removeAllRanges(); window.triforce.type(`${about.replace("{words}", words)}\n`);
  };
  document.addEventListener("mousedown", (event) => {
    if (event.target.closest?.(".selected")) event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest?.(selector);
    const found = hit("[data-cited], [data-mark], [data-explain], [data-ask-about]") && selected();
    if (hit("[data-cited]") && found) cite(found);
    else if (hit("[data-mark]") && found) mark(found);
    else if (hit("[data-explain]") && found) explain(found, hit("[data-explain]").dataset.explain);
    else if (hit("[data-ask-about]") && found) askAbout(found, hit("[data-ask-about]").dataset.words);
    else if (hit("[data-size]")) {
      keep("text", chosen("text", SIZES) + Number(hit("[data-size]").dataset.size)); dress();
    }
    else if (hit("[data-lines]")) {
      keep("lines", chosen("lines", LINES) + Number(hit("[data-lines]").dataset.lines)); dress();
    }
  });
  document.addEventListener("change", (event) => {
    const { note } = event.target.dataset ?? {};
    if (note !== undefined) send({ act: "note", offset: note, text: event.target.value });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches?.("[data-find]")) next(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape" && event.target.matches?.("[data-find]") && event.target.value) {
      event.target.value = "";
      look();
    } else if (reading(event) && document.body.dataset.tab === "reader" && pane()) {
      if (/^[np]$/.test(event.key)) send({ act: "turn", value: event.key === "n" ? "on" : "back" });
      const found = /^[bce]$/.test(event.key) && (selected() ?? inSight());
      if (found && event.key === "e") explain(found, "meaning");
      else if (found) (event.key === "b" ? mark : cite)(found);
    }
  });

  window.triforce.read = () => {
    dress(); new MutationObserver(read).observe(document.body, { childList: true, subtree: true });
  };
})();
