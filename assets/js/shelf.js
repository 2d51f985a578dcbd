/* The left side: looking through the shelf, a text that is pasted. */
(() => {
  const { send, take, takeAll } = window.triforce;
  const typing = (element) => element?.closest?.("input, textarea, select, [contenteditable]");

  // --- looking
  let waiting = 0;
  const look = (box) => send({ act: "search", text: box.value });
  document.addEventListener("input", (event) => {
    if (!event.target.matches?.("[data-search]")) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => look(event.target), 250);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !event.target.matches?.("[data-search]") || !event.target.value) return;
    event.target.value = "";
    event.stopPropagation();
    look(event.target);
  }, true);
  const goTo = (place, version, frames = 300) => {   // the turn comes with the conversation, a moment later
    const turn = document.querySelector(`#turns [data-turn="${CSS.escape(place)}"]`);
    if (!turn) { if (frames) requestAnimationFrame(() => goTo(place, version, frames - 1)); return; }
    for (const other of document.querySelectorAll(".turn-sought")) other.classList.remove("turn-sought");
    turn.classList.add("turn-sought");
    const earlier = version && turn.querySelector(`[data-version="${CSS.escape(version)}"]`);
    if (earlier) earlier.closest("details").open = true;
    setTimeout(() => (earlier || turn).scrollIntoView({ block: "start" }), 60);
  };

  // what is opened above the conversation comes a moment later, and may be far from where one looks
  const comeInSight = (selector, frames = 300) => {
    const part = document.querySelector(selector);
    if (part) part.scrollIntoView({ block: "nearest" });
    else if (frames) requestAnimationFrame(() => comeInSight(selector, frames - 1));
  };
  window.triforce.comeInSight = comeInSight;

  // --- a text that is pasted
  const dialog = () => document.querySelector(".pasted");
  const inside = (name) => dialog().querySelector(`[data-pasted-${name}]`);
  const open = (text = "") => {
    inside("title").value = "";
    inside("text").value = text;
    dialog().showModal();
    inside(text ? "title" : "text").focus();
  };
  // of a text without a title: its beginning, up to a word's end
  const firstWords = (text) => {
    const line = text.trim().split("\n")[0].trim().replace(/\s+/g, " ");
    const cut = line.slice(0, 48);
    return line.length <= 48 ? line : `${cut.includes(" ") ? cut.slice(0, cut.lastIndexOf(" ")) : cut}\u2026`;
  };
  const read = () => {
    const text = inside("text").value;
    if (!text.trim()) { inside("text").focus(); return; }
    const title = inside("title").value.trim() || firstWords(text) || inside("title").placeholder;
    dialog().close();
    take(new File(["\ufeff", text], "pasted.txt", { type: "text/plain" }), { title });
  };
  // a paste that long, where nothing is typed, is a text to read
  const ENOUGH = 400;
  document.addEventListener("paste", (event) => {
    if (typing(event.target) || !document.body.dataset.connected) return;
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (event.clipboardData?.files.length) takeAll(event.clipboardData.files);
    else if (text.length >= ENOUGH) { event.preventDefault(); open(text); }
  });

  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest?.(selector);
    if (hit("[data-paste]")) open();
    else if (hit("[data-pasted-close]")) dialog().close();
    else if (hit("[data-pasted-read]")) { event.preventDefault(); read(); }
    else if (hit(".models :is([data-act='look-into'], [data-act='place-for'])")) comeInSight(".model-files");
    else if (hit("[data-act='said']")) {
      const { id, turn, version } = hit("[data-act='said']").dataset;
      goTo(`${id}:${turn}`, version);
    }
  });
})();
