/* For whoever looks elsewhere: the tab's title, one notification when a long reading is done, and what
   closing the tab means. */
(() => {
  const NAME = "TriForce Chat";
  const LONG_MS = 20000;                       // who waited less is still looking
  const WORKING = "#live-text[data-filled], #prefill-box, [data-stage=opening]";
  let since = 0;

  // --- one notification, where the person said yes, and no tab is looked at
  const mayAsk = () => document.body.toggleAttribute("data-may-tell",
    window.Notification?.permission === "default");
  const tell = () => {
    if (!document.body.dataset.teller || window.Notification?.permission !== "granted") return;
    const words = document.querySelector("[data-done]").dataset.done;
    const told = new Notification(NAME, { body: words, tag: "triforce-done" });
    told.onclick = () => { window.focus(); told.close(); };
  };
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-tell]")) Notification.requestPermission().then(mayAsk);
  });

  // --- the title says how far a reading is, and that it is done to whoever looks elsewhere
  const entitle = () => {
    const now = document.querySelector(WORKING);
    const share = now && document.querySelector("#prefill-box [role='progressbar']")?.ariaValueNow;
    if (now) document.title = share ? `${share} % · ${NAME}` : `… · ${NAME}`;
    else if (since || !document.hidden) document.title = since && document.hidden ? `✓ · ${NAME}` : NAME;
    if (!now && since && Date.now() - since > LONG_MS) tell();
    since = now ? since || Date.now() : 0;
  };
  document.addEventListener("visibilitychange", entitle);

  // --- closing the last tab is asked about once. A browser lets no page word that question: its own comes
  // first
  const dialog = () => document.getElementById("leaving-question");
  const show = () => { if (dialog() && !dialog().open) dialog().showModal(); };
  let anew = 0;                                // until when a page that goes is only loaded again
  let asked = false;
  const renew = () => { anew = Date.now() + 3000; };
  document.addEventListener("keydown", (event) => {
    if (event.key === "F5" || ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "r")) renew();
  }, true);
  window.addEventListener("beforeunload", (event) => {
    const { tabs, lost } = document.body.dataset;
    if (!dialog() || asked || tabs || lost || Date.now() < anew) return;
    asked = true;
    event.preventDefault();
    setTimeout(show, 200);                     // for whoever stays
  });
  window.triforce.renew = renew;
  window.triforce.watch = () => {
    mayAsk();
    entitle();
    new MutationObserver(() => { entitle(); if (dialog()?.matches("[data-now]")) show(); })
      .observe(document.body, { childList: true, subtree: true });
  };
})();
