/* The page's own behaviour: themes, drop zones, keys, tabs. Actions go to /act, what the app shows comes by
   the event stream (regions.js). The book is read by reader.js. */
(() => {
  const root = document.documentElement;
  const night = window.matchMedia("(prefers-color-scheme: dark)");
  const WRITING = "#live-text[data-filled]";   // there while an answer is made
  const recall = (key, other) => {
    try { return localStorage.getItem(`triforce.${key}`) ?? other; } catch { return other; }
  };
  const keep = (key, value) => {
    try { localStorage.setItem(`triforce.${key}`, value); } catch { /* private window */ }
  };
  let connected = false;                       // whether Gradio's own part of the page is there
  // what is done reaches the app one after another, in the order in which it was done
  let sending = 0, sent = Promise.resolve();
  const send = (data) => {
    sending += 1;
    const go = () => fetch("/act", { method: "POST", body: JSON.stringify(data) });
    sent = sent.then(go).catch(() => {}).finally(() => { sending -= 1; });
  };
  Object.assign(window.triforce, { send, recall, keep, take: (...file) => take(...file),
    takeAll: (files) => takeAll(files) });

  // gives the box what was being typed
  window.triforce.connect = () => {
    connected = true;
    document.body.dataset.connected = "1";
    begin();
    return window.triforce.draft();
  };

  // the page's parts stand there at once, empty, until what the app shows has come: both it and Gradio take
  // seconds
  const frame = () => {
    if (!document.body || document.getElementById("frame")) return;
    const parts = document.createElement("div");
    parts.id = "frame";
    parts.ariaHidden = "true";
    parts.innerHTML = FRAME;
    document.body.append(parts);
    early.disconnect();
  };
  const early = new MutationObserver(frame);
  early.observe(root, { childList: true });
  frame();

  // --- colours: Gradio reads a class on <body>
  const paint = () => {
    const choice = recall("theme", root.dataset.choice || "system");
    const dark = choice === "dark" || (choice === "system" && night.matches);
    document.body?.classList.toggle("dark", dark);
    root.style.colorScheme = dark ? "dark" : "light";
    root.dataset.theme = dark ? "dark" : "light";
    for (const button of document.querySelectorAll("[data-theme-choice]")) {
      button.setAttribute("aria-pressed", String(button.dataset.themeChoice === choice));
    }
  };
  night.addEventListener("change", paint);

  // --- files
  let dropped = null;                          // a model file, until the person says what to do with it
  const takeModel = async () => {
    if (!dropped) { send({ act: "done-choosing" }); return; }
    const file = dropped;
    dropped = null;
    await fetch(`/take-model?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file })
      .catch(() => {});
  };
  // a file's way into the app: what comes, how long it takes yet, and a way out. Fails with what the server
  // says
  const bring = (file) => new Promise((arrived, failed) => {
    const request = new XMLHttpRequest(), form = new FormData(), began = Date.now();
    const here = document.getElementById("bringing"),
      [title, left, bar] = here.querySelectorAll("b, span, i");
    const show = (share) => {
      const seconds = (Date.now() - began) / 1000 * (1 - share) / share;
      left.textContent = share && seconds >= 1
        ? left.dataset.words.replace("{time}", `${Math.round(seconds)}\u00a0s`) : "";
      bar.style.width = `${share * 100}%`;
    };
    title.textContent = title.dataset.words.replace("{name}", file.name);
    show(0);
    const soon = setTimeout(() => { here.hidden = false; }, 500);
    request.upload.onprogress = ({ loaded, total }) => show(total ? loaded / total : 0);
    request.onload = () => request.status === 200 ? arrived(JSON.parse(request.responseText)[0])
      : failed(request.status);
    request.onabort = () => arrived("");
    request.onerror = () => failed(0);
    request.onloadend = () => { clearTimeout(soon); here.hidden = true; };
    here.querySelector("button").onclick = () => request.abort();
    form.append("files", file);
    request.open("POST", "/gradio_api/upload");
    request.send(form);
  });
  const take = async (file, { title, several } = {}) => {
    if (!file) return;
    if (file.name.toLowerCase().endsWith(".gguf")) {
      dropped = file;
      send({ act: "dropped-model", name: file.name, text: String(file.size) });
      window.triforce.comeInSight(".model-files");
      return;
    }
    if (file.size > Number(root.dataset.maxMb) * 1024 * 1024) {
      send({ act: "refused", name: file.name, limit: root.dataset.maxMb });
      return;
    }
    try {
      const path = await bring(file);
      if (!path) return;                       // the person gave it up
      send({ act: file.name.toLowerCase().endsWith(".json") ? "bring-in" : "upload", path, name: file.name,
        ...(title && { title }), ...(several && { several: "1" }) });
    } catch {
      send({ act: "refused", name: file.name });
    }
  };
  const takeAll = async (files) => {
    const several = files.length > 1;
    for (const file of [...files]) await take(file, { several });
  };
  const BOOKS = ".pdf,.epub,.fb2,.txt,.md,.html,.htm,.mhtml,.docx,.odt,.rtf,.zip,.json";
  const choose = (accepted = BOOKS) => {
    const input = document.createElement("input");
    input.type = "file";
    input.accept = accepted;
    input.multiple = accepted === BOOKS;
    input.addEventListener("change", () => takeAll(input.files));
    input.click();
  };
  const hasFiles = (event) => Array.from(event.dataTransfer?.types || []).includes("Files");
  let depth = 0;
  document.addEventListener("dragenter", (event) => {
    if (hasFiles(event)) { depth += 1; document.body.dataset.dragging = "1"; }
  });
  document.addEventListener("dragleave", () => {
    depth = Math.max(0, depth - 1); if (!depth) delete document.body.dataset.dragging;
  });
  document.addEventListener("dragover", (event) => { if (hasFiles(event)) event.preventDefault(); });
  document.addEventListener("drop", (event) => {
    depth = 0;
    delete document.body.dataset.dragging;
    if (!hasFiles(event)) return;
    event.preventDefault();
    event.stopPropagation();
    takeAll(event.dataTransfer.files);
  }, true);

  // --- tabs, drawer, switches
  const showTab = (name) => {
    document.body.dataset.tab = name;
    keep("tab", name);
    for (const tab of document.querySelectorAll("[role='tab']"))
      tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
  };
  // what can be folded over the page: settings always, shelf and panel where there is no room beside the
  // middle
  const DRAWERS = { settings: "#settings", shelf: "#left", panel: "#right" };
  const isDrawer = (name) => getComputedStyle(document.querySelector(DRAWERS[name])).position === "fixed";
  const toggleDrawer = (name, open, { focus = true } = {}) => {
    if (name === "settings" && open) send({ act: "look-kept" });
    for (const other of Object.keys(DRAWERS)) {
      const on = open && other === name;
      if (on) document.body.dataset[other] = "1"; else delete document.body.dataset[other];
      for (const button of document.querySelectorAll(`[data-toggle='${other}']`))
        button.setAttribute("aria-expanded", String(on));
    }
    if (!focus) return;
    const inside = `${DRAWERS[name]} :is(input, button, select):not([tabindex="-1"])`;
    const places = document.querySelectorAll(open ? inside : `.topbar-tools [data-toggle='${name}']`);
    [...places].find((one) => one.offsetParent)?.focus();  // some are not shown at every width
  };
  // beside the middle the panel is there or not, also tomorrow; over it, it is folded away as a drawer is
  const hidePanel = (on, { focus = true } = {}) => {
    if (on && isDrawer("panel")) { toggleDrawer("panel", false); return; }
    if (on) document.body.dataset.nopanel = "1"; else delete document.body.dataset.nopanel;
    keep("nopanel", on ? "1" : "");
    if (focus)
      document.querySelector(on ? ".topbar-tools [data-toggle='panel']" : "[data-hide-panel]")?.focus();
  };
  const openDrawer = () => Object.keys(DRAWERS).find((name) => document.body.dataset[name]);
  const ask = () => {                          // where one types next
    const box = document.querySelector("#question textarea");
    (box?.offsetParent ? box : document.querySelector(".drop-hero"))?.focus();
  };
  const typed = () => document.querySelector("#question textarea").value;
  const type = (text) => {                     // puts it into the box as a person would
    const box = document.querySelector("#question textarea");
    Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, "value").set.call(box, text);
    box.dispatchEvent(new Event("input", { bubbles: true }));
    box.focus();
  };
  window.triforce.type = (text) => {           // over the middle the panel would hide the box
    if (document.body.dataset.panel) toggleDrawer("panel", false, { focus: false });
    type(text);
  };
  const marked = (item) => {                   // a browser draws what stands before an item: it is no text
    const list = item.parentElement;
    const at = [...list.children].indexOf(item);
    const mark = document.createElement("span");
    mark.textContent = list.tagName === "OL" ? `${list.start + at}. ` : "- ";
    item.prepend(mark);
    return mark;
  };
  const copyText = async (button) => {
    const text = button.closest(".turn").querySelector(".text");
    text.classList.add("copying");             // without the marks that are not the answer's own words
    const marks = [...text.querySelectorAll("li")].map(marked);
    const words = text.innerText;
    for (const mark of marks) mark.remove();
    text.classList.remove("copying");
    await navigator.clipboard.writeText(words);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1200);
  };
  const quit = (button) => {
    const { confirm: question, confirmWorking } = button.dataset;
    if (!confirm(document.querySelector(`.engine-busy, ${WRITING}`) ? confirmWorking : question)) return;
    window.triforce.renew();
    fetch("/quit", { method: "POST" }).finally(() => window.location.replace("/goodbye"));
  };

  // while nobody answers, nothing is sent, and what is typed stays where it is
  const hold = (event) => {
    const asks = event.type === "click" ? "#send, #unlock, :is(button, a)[data-act]"
      : "#question textarea, #password input";
    if (!document.body.dataset.lost || (event.key ?? "Enter") !== "Enter"
      || !event.target.closest?.(asks)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  document.addEventListener("click", hold, true);
  document.addEventListener("keydown", hold, true);
  document.addEventListener("keypress", hold, true);

  // a question is asked with what was chosen before it: it waits until that has arrived
  const wait = (event) => {
    const asks = event.type === "click" ? "#send" : "#question textarea";
    if (!sending || (event.key ?? "Enter") !== "Enter" || event.shiftKey
      || !event.target.closest?.(asks)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    sent.then(() => document.querySelector("#send").click());
  };
  document.addEventListener("click", wait, true);
  document.addEventListener("keypress", wait, true);

  // a button or a fold that is drawn anew between press and release gets no click of its own
  let pressed = null;
  const named = ({ dataset, parentElement }) => [dataset.act, dataset.id, "tell" in dataset,
    parentElement?.dataset.fold].join();
  const button = (element) =>
    element?.closest?.(":is(button, a)[data-act], [data-tell], [data-fold] > summary");
  document.addEventListener("pointerdown", (event) => { pressed = button(event.target); }, true);
  document.addEventListener("pointerup", (event) => {
    const now = button(document.elementFromPoint(event.clientX, event.clientY));
    if (now && pressed && !pressed.isConnected && named(now) === named(pressed)) now.click();
  }, true);
  // as a plain link, a file that cannot be made would leave a failed download beside what the page says of it
  const save = async (link) => {
    const answer = await fetch(link.href);
    if (answer.status !== 200) return;
    const file = document.createElement("a");
    file.href = URL.createObjectURL(await answer.blob());
    file.download = decodeURIComponent(answer.headers.get("Content-Disposition").split("''")[1]);
    file.click();
    setTimeout(() => URL.revokeObjectURL(file.href), 60000);
  };
  document.addEventListener("click", (event) => {
    const hit = (selector) => event.target.closest?.(selector);
    let found;
    const menu = !hit(".export > summary") && document.querySelector(".export[open]");
    if (menu?.contains?.(document.activeElement)) menu.querySelector("summary").focus();
    if (menu) menu.open = false;
    if (hit("[data-drop]")) choose();
    else if (hit("[data-bring-in]")) choose(".json");
    else if ((found = hit("[data-quit]"))) quit(found);
    else if ((found = hit("[data-theme-choice]"))) { keep("theme", found.dataset.themeChoice); paint(); }
    else if (hit("[data-hide-panel]")) hidePanel(true);
    else if (hit("[data-toggle='panel']") && document.body.dataset.nopanel
      && !isDrawer("panel")) hidePanel(false);
    else if ((found = hit("[data-toggle]")))
      toggleDrawer(found.dataset.toggle, !document.body.dataset[found.dataset.toggle]);
    else if (hit("[data-skip]")) { event.preventDefault(); ask(); }
    else if ((found = hit("[role='tab']"))) showTab(found.dataset.tab);
    else if ((found = hit("[data-copy]"))) copyText(found);
    else if ((found = hit("a[download][href^='/export']"))) { event.preventDefault(); save(found); }
    else if ((found = hit(":is(button, a)[data-act]"))) {
      if (found.tagName === "A") event.preventDefault();   // a quotation leads to its place by what is sent
      const { act, confirm: question, prompt: wanted, ...rest } = found.dataset;
      if (question && !confirm(question)) return;
      if (wanted) {
        rest.text = prompt(wanted, rest.text);
        if (rest.text === null) return;
      }
      if (act === "copy-dropped") { takeModel(); return; }
      if (act === "ask-otherwise" || act === "not-now") type(rest.text);
      if (act === "drop-queued" && rest.text) type([rest.text, typed()].filter(Boolean).join("\n"));
      if (act === "move-data") toggleDrawer("settings", false, { focus: false });
      if (act === "cite" || act === "place") {
        showTab("reader");
        if (document.body.dataset.nopanel) hidePanel(false, { focus: false });
        if (isDrawer("panel") && !document.body.dataset.panel) toggleDrawer("panel", true);
      }
      const leads = ["book", "talk", "said", "sample", "open-found", "look-into", "place-for", "fetch-model",
        "use-model"];
      if (document.body.dataset.shelf && leads.includes(act)) toggleDrawer("shelf", false);
      send({ act, ...rest });
    } else if (openDrawer() && hit("#middle")) toggleDrawer(openDrawer(), false, { focus: false });
  });
  // the shelf is one stop of the Tab key: up and down go from book to book, left and right to what can be
  // done with one
  const walk = (event) => {
    const list = event.target.closest?.(".shelf");
    const steps = { ArrowDown: [1, "main"], ArrowUp: [-1, "main"], ArrowRight: [1, "all"],
      ArrowLeft: [-1, "all"] }[event.key];
    if (!list || !steps) return;
    const buttons = [...list.querySelectorAll("button, summary")]
      .filter((button) => button.checkVisibility());
    const main = (button) => button.matches("[data-act='book'], [data-act='talk'], summary");
    let at = buttons.indexOf(event.target.closest("button, summary"));
    do at += steps[0]; while (buttons[at] && steps[1] === "main" && !main(buttons[at]));
    if (!buttons[at]) return;
    event.preventDefault();
    buttons[at].focus();
  };
  document.addEventListener("change", (event) => {
    const target = event.target;
    if (target.matches?.("[data-levels]")) { keep("levels", target.checked ? "1" : ""); applyLevels(); }
    if (target.matches?.("select[data-act], input[data-act], textarea[data-act]")) {
      const { act, id } = target.dataset;
      send({ act, ...(id && { id }), value: target.value });
    }
  });
  const applyLevels = () => {
    const on = recall("levels", "") === "1";
    document.body.classList.toggle("show-levels", on);
    const box = document.querySelector("[data-levels]");
    if (box) box.checked = on;
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      const unfolded = document.querySelector(".own[open], .export[open]");
      if (unfolded) { unfolded.querySelector("summary").focus(); unfolded.open = false; }
      else if (openDrawer()) toggleDrawer(openDrawer(), false);
      else if (document.querySelector(".locked")) send({ act: "cancel-opening" });
      else if (document.querySelector(WRITING)) send({ act: "stop" });
    }
    if (event.key === "/" && window.triforce.reading(event, "#middle, #right")) {
      event.preventDefault(); ask();
    }
    walk(event);
    if ((event.key === "ArrowLeft" || event.key === "ArrowRight") && event.target.matches?.("[role='tab']")) {
      const other = document.body.dataset.tab === "reader" ? "live" : "reader";
      showTab(other);
      document.getElementById(`tab-${other}`)?.focus();
    }
  });

  // --- what follows the page's changes
  const follow = (scroller) => {
    let pinned = true;
    // as it was drawn last: what has come since was not scrolled past
    let height = 0;
    // an answer was asked for or seen being written: its end still counts
    let until = 0;
    // what stands above folds away at the first question: no scrolling of the person's
    let settled = 0;
    const asked = () => { pinned = true; until = Date.now() + 10000; settled = Date.now() + 1500; };
    scroller.addEventListener("scroll", () => {
      const end = Math.min(height, scroller.scrollHeight) - scroller.clientHeight;
      if (Date.now() > settled) pinned = end - scroller.scrollTop < 120;
    }, { passive: true });
    // of the newest question its last lines, below them the beginning of its answer
    const beginning = () => {
      const question = [...scroller.querySelectorAll("#turns .asked")].at(-1);
      const end = scroller.scrollHeight - scroller.clientHeight;
      if (!question) return end;
      return question.getBoundingClientRect().bottom
        - scroller.getBoundingClientRect().top + scroller.scrollTop - 96;
    };
    // an answer is followed as long as its beginning stays in view, and to its end by whoever went there
    const follows = () => {
      const begins = beginning(), end = scroller.scrollHeight - scroller.clientHeight;
      scroller.scrollTop = scroller.scrollTop > begins + 120 ? end : Math.min(begins, end);
    };
    // a talk that is opened is in sight at once, at its last question: what is chosen above it, and what was
    // said before, would fill the screen; so is a question that a press has just asked, wherever the press was
    let open = "", last = "", pressed = 0;
    document.addEventListener("click", () => { pressed = Date.now(); });
    const opened = () => {
      const question = [...scroller.querySelectorAll("#turns .asked")].at(-1)?.dataset.turn ?? "";
      const talk = question.split(":")[0];
      if (talk === open && question !== last && Date.now() < pressed + 3000) asked();
      last = question;
      if (talk === open) return;
      open = talk;
      if (!talk || scroller.querySelector(".turn-sought")) return;
      pinned = true;
      until = Math.max(until, Date.now() + 1500);
    };
    const sizes = new ResizeObserver(() => {
      opened();
      if (document.querySelector(WRITING)) until = Math.max(until, Date.now() + 2000);
      if (pinned && Date.now() < until) follows();
      height = scroller.scrollHeight;
    });
    sizes.observe(scroller);                   // what comes below it takes of its height
    const parts = () => {
      for (const part of scroller.querySelectorAll("#live, #turns, #progress")) sizes.observe(part);
    };
    // they may be mounted anew
    new MutationObserver(parts).observe(scroller, { childList: true, subtree: true });
    parts();
    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target.closest?.("#question")) asked();
    });
    document.addEventListener("click", (event) => {
      if (event.target.closest?.("#send, [data-act='summarize'], [data-act='regenerate'], [data-act='suggest']"))
        asked();
    });
  };
  const begin = () => {                        // once all parts of the page are there
    const scroller = document.getElementById("scroller");
    if (!connected || !scroller || !document.querySelector("[data-theme-choice]")
      || !document.querySelector("[data-region=spoken]")) return;
    ready.disconnect();
    root.lang = root.dataset.language;         // Gradio names the browser's instead, where it has that one
    paint();
    applyLevels();
    showTab(recall("tab", "live"));
    if (recall("nopanel", "")) document.body.dataset.nopanel = "1";
    follow(scroller);
    window.triforce.follow();
    new MutationObserver(paint).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    window.triforce.watch();
    window.triforce.read();
    window.triforce.listen();
    window.triforce.name();
    window.triforce.reopen(() => toggleDrawer("settings", true));
  };
  const ready = new MutationObserver(begin);
  ready.observe(root, { childList: true, subtree: true });
  if (document.body) paint(); else document.addEventListener("DOMContentLoaded", paint);
})();
