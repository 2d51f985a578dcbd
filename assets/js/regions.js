/* The page's end of the event stream: fills the regions. `triforce.follow()` begins, once the regions are on
   the page. */
(() => {
  const root = document.documentElement;
  const sizes = new WeakMap();                 // region -> how many nodes each of its blocks has
  const shelf = document.createElement("template");

  // a button or a box drawn anew is the same one to whoever stands on it
  const named = (one) => {
    const { fold } = one.matches("summary") ? one.parentElement.dataset : {};
    if (fold) return `[data-fold="${fold}"] > summary`;
    const { act, id, note } = one.dataset;
    if (note) return `[data-note="${CSS.escape(note)}"]`;
    return act && `[data-act="${act}"]${id ? `[data-id="${CSS.escape(id)}"]` : ""}`;
  };
  const focused = (region) => {
    const one = document.activeElement;
    const name = region.contains(one) && named(one);
    if (!name) return () => {};
    const typed = one.matches("input[type=text], textarea")
      && [one.value, one.selectionStart, one.selectionEnd];
    return () => {
      const again = region.querySelector(name);
      if (!again || region.contains(document.activeElement)) return;
      again.focus();
      if (!typed) return;
      again.value = typed[0];
      again.setSelectionRange(typed[1], typed[2]);
    };
  };

  // what a person has folded of the panel stays so, also tomorrow
  const folded = (name) => window.triforce.recall(`fold.${name}`, "") === "1";
  // kept with the click: before its toggle event comes, the panel may be drawn anew or the page be gone
  document.addEventListener("click", ({ target }) => {
    const part = target.closest?.("details[data-fold] > summary")?.parentElement;
    if (part) window.triforce.keep(`fold.${part.dataset.fold}`, part.open ? "1" : "");
  }, true);

  // what a person unfolded stays so where the same kind of part stands in its place
  const kind = (part) => part.classList[0] ?? "";
  // the blocks that stay are not touched: what is selected, focused or unfolded there remains so
  const show = (region, [stay, ...blocks]) => {
    const counts = (sizes.get(region) ?? []).slice(0, stay);
    const nodes = counts.reduce((sum, count) => sum + count, 0);
    const asked = region.querySelector("[role=alertdialog]"),
      within = asked?.contains(document.activeElement);
    const refocus = focused(region), unfolded = [...region.querySelectorAll("details")]
      .map((part) => part.open && kind(part));
    while (region.childNodes.length > nodes) region.lastChild.remove();
    for (const html of blocks) {
      shelf.innerHTML = html;
      counts.push(shelf.content.childNodes.length);
      region.append(shelf.content);
    }
    sizes.set(region, counts);
    region.toggleAttribute("data-filled", counts.length > 0);
    region.querySelectorAll("details").forEach((part, at) => { part.open ||= unfolded[at] === kind(part); });
    for (const part of region.querySelectorAll("details[data-fold]")) part.open = !folded(part.dataset.fold);
    refocus();
    const asks = region.querySelector("[role=alertdialog]");
    // itself, not its first button: nobody has read it yet
    if (asks && (!asked || within) && !asks.contains(document.activeElement)) asks.focus();
    if (within && !asks) document.querySelector("#question textarea")?.focus();
  };

  // what is being typed outlives the page: one that loads itself anew, one reloaded by hand, one whose app
  // has died
  const DRAFT = "triforce.draft";
  window.addEventListener("pagehide", () => {
    const box = document.querySelector("#question textarea");
    if (box) sessionStorage.setItem(DRAFT, box.value);
  });
  const draft = () => sessionStorage.getItem(DRAFT) ?? "";

  // the settings that another language was chosen in lie afterwards as they lay: open, with the same groups of
  // them, at the same place, and who stood on one stands on it
  const SETTINGS = "triforce.settings";
  const drawer = () => document.getElementById("settings");
  const groups = () => [...drawer().querySelectorAll("details")];
  const reload = () => {
    if (document.body.dataset.settings) {
      const lies = { open: groups().map((one) => one.open), top: drawer().scrollTop,
        on: named(document.activeElement) };
      sessionStorage.setItem(SETTINGS, JSON.stringify(lies));
    }
    window.triforce.renew();
    window.location.reload();
  };
  let lay = null;                              // until they are drawn
  const reopen = (show) => {
    const lies = JSON.parse(sessionStorage.getItem(SETTINGS) ?? "null");
    sessionStorage.removeItem(SETTINGS);
    lay = lies && (() => {
      if (!groups().length) return;
      lay = null;
      groups().forEach((one, at) => { one.open = lies.open[at] ?? false; });
      show();
      drawer().scrollTop = lies.top;
      if (lies.on) drawer().querySelector(lies.on)?.focus({ preventScroll: true });
    });
  };

  const connection = ({ lost, tabs, teller }) => {
    const { dataset } = document.body;
    if (lost !== undefined) { if (lost) dataset.lost = lost; else delete dataset.lost; }
    if (teller !== undefined) { if (teller) dataset.teller = "1"; else delete dataset.teller; }
    if (tabs !== undefined) { if (tabs > 1) dataset.tabs = tabs; else delete dataset.tabs; }
  };

  const follow = () => {
    const address = `/stream.js?${root.dataset.language}.${root.dataset.launch}`;
    const port = window.SharedWorker ? new SharedWorker(address).port : new Worker(address);
    port.onmessage = ({ data: { launch, regions, ...state } }) => {
      connection(state);
      if (regions || state.lost) document.getElementById("frame")?.remove();
      if (!regions) return;
      if (launch !== root.dataset.launch) { reload(); return; }
      for (const [name, blocks] of Object.entries(regions)) {
        const region = document.querySelector(`[data-region="${name}"]`);
        if (region) show(region, blocks);
      }
      lay?.();
    };
    const seen = () => port.postMessage({ hidden: document.hidden });
    port.postMessage("hello");
    seen();
    document.addEventListener("visibilitychange", seen);
    window.addEventListener("pagehide", () => port.postMessage("bye"));
    window.addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); });
  };
  window.triforce = { follow, draft, reopen };
})();
