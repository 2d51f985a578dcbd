/* The page's end of the event stream: fills the regions. `triforce.follow()` begins, once the regions are on the page. */
(() => {
  const root = document.documentElement;
  const sizes = new WeakMap();                 // region -> how many nodes each of its blocks has
  const shelf = document.createElement("template");

  // a button drawn anew is the same button to whoever stands on it
  const focused = (region) => {
    const fold = region.contains(document.activeElement) && document.activeElement.matches("summary")
      && document.activeElement.parentElement.dataset.fold;
    if (fold) return `[data-fold="${fold}"] > summary`;
    const { act, id } = region.contains(document.activeElement) ? document.activeElement.dataset : {};
    return act && `[data-act="${act}"]${id ? `[data-id="${CSS.escape(id)}"]` : ""}`;
  };

  // what a person has folded of the panel stays so, also tomorrow
  const folded = (name) => window.triforce.recall(`fold.${name}`, "") === "1";
  document.addEventListener("toggle", ({ target }) => {
    if (target.matches?.("details[data-fold]")) window.triforce.keep(`fold.${target.dataset.fold}`, target.open ? "" : "1");
  }, true);

  // the blocks that stay are not touched: what is selected, focused or unfolded there remains so
  const show = (region, [stay, ...blocks]) => {
    const counts = (sizes.get(region) ?? []).slice(0, stay);
    const nodes = counts.reduce((sum, count) => sum + count, 0);
    const before = { focus: focused(region), unfolded: [...region.querySelectorAll("details")].map((part) => part.open) };
    while (region.childNodes.length > nodes) region.lastChild.remove();
    for (const html of blocks) {
      shelf.innerHTML = html;
      counts.push(shelf.content.childNodes.length);
      region.append(shelf.content);
    }
    sizes.set(region, counts);
    region.toggleAttribute("data-filled", counts.length > 0);
    if (before.focus && !region.contains(document.activeElement)) region.querySelector(before.focus)?.focus();
    region.querySelectorAll("details").forEach((part, at) => { part.open ||= Boolean(before.unfolded[at]); });
    for (const part of region.querySelectorAll("details[data-fold]")) part.open = !folded(part.dataset.fold);
  };

  // what is being typed outlives the page: one that loads itself anew, one reloaded by hand, one whose app has died
  const DRAFT = "triforce.draft";
  window.addEventListener("pagehide", () => {
    const box = document.querySelector("#question textarea");
    if (box) sessionStorage.setItem(DRAFT, box.value);
  });
  const draft = () => sessionStorage.getItem(DRAFT) ?? "";

  const connection = ({ lost, tabs, teller }) => {
    const { dataset } = document.body;
    if (lost !== undefined) { if (lost) dataset.lost = lost; else delete dataset.lost; }
    if (teller !== undefined) { if (teller) dataset.teller = "1"; else delete dataset.teller; }
    if (tabs !== undefined) { if (tabs > 1) dataset.tabs = tabs; else delete dataset.tabs; }
  };

  const follow = () => {
    const address = `/stream.js?${root.dataset.launch}`;
    const port = window.SharedWorker ? new SharedWorker(address).port : new Worker(address);
    port.onmessage = ({ data: { launch, regions, ...state } }) => {
      connection(state);
      if (!regions) return;
      if (launch !== root.dataset.launch) { window.triforce.renew(); window.location.reload(); return; }
      for (const [name, blocks] of Object.entries(regions)) {
        const region = document.querySelector(`[data-region="${name}"]`);
        if (region) show(region, blocks);
      }
    };
    const seen = () => port.postMessage({ hidden: document.hidden });
    port.postMessage("hello");
    seen();
    document.addEventListener("visibilitychange", seen);
    window.addEventListener("pagehide", () => port.postMessage("bye"));
    window.addEventListener("pageshow", (event) => { if (event.persisted) window.location.reload(); });
  };
  window.triforce = { follow, draft };
})();
