/* Reads the open book or an answer aloud, by voices of this computer alone: sentence by sentence, each marked
   and followed. */
(() => {
  const { send, recall, keep } = window.triforce;
  const speech = window.speechSynthesis;
  const BLOCKS = ":is(h3, h4, p[dir], li, blockquote)";
  // an abbreviation ends no sentence
  const GOES_ON = /(?:^|[\s(“‘„\"'])(?:Mr|Mrs|Ms|Dr|St|Prof|Hr|Fr|Nr|No)\.\s*$/;
  const SAME = { cmn: "zh", iw: "he" };        // what systems call a language otherwise
  const bar = () => document.querySelector(".aloud");
  const part = (name) => bar().querySelector(`[data-aloud-${name}]`);

  // --- voices: one that sends the text away is none
  const languageOf = ({ lang }) => {
    const [code] = lang.toLowerCase().split(/[-_]/); return SAME[code] ?? code;
  };
  const voices = (language) => (speech?.getVoices() ?? [])
    .filter((one) => one.localService && (!language || languageOf(one) === language));
  const voice = () => {
    const able = voices(source.language), chosen = recall(`voice.${source.language}`, "");
    return able.find((one) => one.voiceURI === chosen)
      ?? able.find((one) => languageOf(one) === document.documentElement.lang)
      ?? able[0];
  };
  const book = () => document.querySelector(".reader-text");
  // the buttons say where there is no voice
  const label = () => {
    for (const button of document.querySelectorAll("[data-aloud]")) {
      const text = button.dataset.aloud === "answer" ? button.closest(".turn").querySelector(".text")
        : book();
      button.toggleAttribute("data-voiceless", !voices(text?.dataset.spoken).length);
    }
  };
  speech?.addEventListener?.("voiceschanged", label);

  // --- sentences
  // a mark is the page's, not the text's
  const pieces = (block) => {
    const walk = document.createTreeWalker(block, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT), found = [];
    while (walk.nextNode()) {
      const node = walk.currentNode;
      if (node.nodeName === "BR") found.push({ node, text: " " });
      else if (node.data && !node.parentElement.closest(".sign, sup"))
        found.push({ node, text: node.data.replace(/\s/g, " ") });
    }
    return found;
  };
  const point = (parts, at) => {
    for (const { node, text } of parts) {
      if (at <= text.length && node.data) return [node, at]; at -= text.length;
    }
  };
  const spans = (text, language) => {
    const found = [];
    for (const { segment, index } of new Intl.Segmenter(language || undefined, { granularity: "sentence" })
      .segment(text)) {
      const last = found.at(-1), end = index + segment.trimEnd().length;
      if (last && GOES_ON.test(text.slice(...last))) last[1] = end;
      else if (/[\p{L}\p{N}]/u.test(segment))
        found.push([index + segment.length - segment.trimStart().length, end]);
      else if (last && segment.trim()) last[1] = end;
    }
    return found;
  };
  const sentences = (text) => [...text.querySelectorAll(BLOCKS)].flatMap((block, number) => {
    const parts = pieces(block), whole = parts.map((one) => one.text).join("");
    return spans(whole, text.dataset.spoken).map(([start, end]) => {
      const range = document.createRange();
      range.setStart(...point(parts, start + 1));
      range.setStart(range.startContainer, range.startOffset - 1);
      range.setEnd(...point(parts, end));
      const name = `${block.dataset.offset ?? `#${number}`}:${start}`;
      return { block, range, name, words: whole.slice(start, end).replace(/\s+/g, " ") };
    });
  });

  // --- what is read now
  // source: its text, found again when it is drawn anew; its language
  let source = null, list = [], at = 0;
  // the utterance under way; the place of the book's text to go on at
  let spoken = null, wanted = "";
  let starter = null;
  const state = (name) => {
    if (name) document.body.dataset.readsAloud = name; else delete document.body.dataset.readsAloud;
    bar().hidden = !name;
    document.body.style.setProperty("--aloud", `${bar().offsetHeight}px`);
  };
  const inSight = (range, pane) => {
    const box = range.getBoundingClientRect(), edge = pane.getBoundingClientRect();
    return !box.height || (box.top >= edge.top && box.bottom <= edge.bottom);
  };
  // who has scrolled away is left there
  const show = (before) => {
    const { block, range } = list[at], pane = block.closest(".reader-text, #scroller");
    for (const one of document.querySelectorAll(".speaking")) one.classList.remove("speaking");
    block.classList.add("speaking");
    window.CSS?.highlights?.set("spoken", new Highlight(range));
    if (inSight(range, pane) || (before && !inSight(before.range, pane))) return;
    const edge = pane.getBoundingClientRect();
    pane.scrollTop += range.getBoundingClientRect().top - edge.top - edge.height / 3;
  };
  const speak = (before) => {
    show(before);
    const said = new SpeechSynthesisUtterance(list[at].words);
    said.voice = voice();
    if (!said.voice) { quiet("voiceless"); return; }
    said.lang = said.voice.lang;
    said.rate = Number(part("rate").value);
    said.onend = () => { if (said === spoken) step(1); };
    said.onerror = () => { if (said === spoken) quiet("failed"); };
    spoken = said;
    speech.cancel();
    speech.speak(said);
    state("speaking");
  };
  // not by the browser's own pause: some never go on after it
  const quiet = (name) => { spoken = null; speech?.cancel(); state(name); };
  const stop = () => {
    const back = bar().contains(document.activeElement) && starter;
    source = null;
    wanted = "";
    quiet("");
    window.CSS?.highlights?.delete("spoken");
    for (const one of document.querySelectorAll(".speaking")) one.classList.remove("speaking");
    if (back) back.focus();
  };
  const step = (by) => {
    const before = list[at], more = source.text().querySelector("p ~ .quiet-button");
    if (list[at + by]) { at += by; speak(before); }
    else if (by < 0) speak(before);
    else if (!more) stop();
    else { wanted = more.dataset.offset; spoken = null; send({ act: "cite", offset: wanted, length: "0" }); }
  };
  const toggle = () => {
    if (document.body.dataset.readsAloud === "speaking") quiet("paused"); else speak();
  };
  // what is read was drawn anew: a place further on in the book, or the same words; else it is gone
  const again = () => {
    if (!source || (!wanted && list[at].block.isConnected)) return;
    const text = source.text();
    if (wanted && text?.dataset.place !== `${wanted}:0`) return;
    const old = list[at];
    list = text ? sentences(text) : [];
    at = list.findIndex((one) => (wanted ? Number(one.block.dataset.offset) >= Number(wanted)
      : one.name === old.name && one.words === old.words));
    // a new chapter: its heading first
    if (wanted && list[0] && !text.querySelector("h3 + .quiet-button")) at = 0;
    const further = wanted;
    wanted = "";
    if (at < 0) stop(); else if (further) speak(); else show(old);
  };

  // --- from where
  const here = (text) => {
    const selection = getSelection(), mark = document.getElementById("passage"),
      edge = text.getBoundingClientRect();
    const range = selection.rangeCount && !selection.isCollapsed && text.contains(selection.anchorNode)
      && selection.getRangeAt(0);
    const from = document.createRange();
    if (mark) from.selectNodeContents(mark);
    const sought = range || (mark && inSight(from, text) && from);
    const first = sought
      ? list.findIndex(({ range: { endContainer, endOffset } }) =>
        sought.comparePoint(endContainer, endOffset) >= 0)
      : list.findIndex((one) => one.range.getBoundingClientRect().top >= edge.top - 4);
    return Math.max(0, first);
  };
  const begin = (button) => {
    const turn = button?.dataset.aloud === "answer" && button.closest(".turn").dataset.turn;
    const text = () => (turn ? document.querySelector(`#turns [data-turn="${CSS.escape(turn)}"] .text`)
      : book());
    if (!text()) return;
    if (source) stop();
    starter = button;
    source = { text, language: text().dataset.spoken };
    list = sentences(text());
    if (!list.length) { source = null; return; }
    at = turn ? 0 : here(text());
    const able = voices(source.language);
    part("voice").replaceChildren(...able.map((one) => new Option(one.name, one.voiceURI)));
    part("rate").value = recall("rate", "1");
    if (!able.length) { quiet("voiceless"); return; }
    part("voice").value = voice().voiceURI;
    speak();
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-aloud], [data-aloud-do]");
    const { aloud, aloudDo } = button?.dataset ?? {};
    if (aloud) begin(button);
    else if (aloudDo === "stop") stop();
    else if (!source || wanted) return;
    else if (aloudDo === "toggle") toggle();
    else if (aloudDo) step(Number(aloudDo));
  });
  document.addEventListener("change", ({ target }) => {
    if (target.matches?.("[data-aloud-rate]")) keep("rate", target.value);
    else if (target.matches?.("[data-aloud-voice]") && source) keep(`voice.${source.language}`, target.value);
    else return;
    if (document.body.dataset.readsAloud === "speaking" && !wanted) speak();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "l" || !window.triforce.reading(event)) return;
    if (source && !wanted) toggle();
    else if (!source && document.body.dataset.tab === "reader")
      begin(document.querySelector("[data-aloud='book']"));
  });
  // else a browser speaks on behind another page
  window.addEventListener("pagehide", () => speech?.cancel());
  window.triforce.listen = () => {
    label();
    new MutationObserver(() => { label(); again(); })
      .observe(document.body, { childList: true, subtree: true });
  };
})();
