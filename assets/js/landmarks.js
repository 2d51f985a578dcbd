/* What Gradio's boxes are to a screen reader: the page's landmarks, each with a name, the panel's two sides, the
   settings. */
(() => {
  const set = (id, given) => {
    const part = document.getElementById(id);
    for (const [name, value] of Object.entries(given)) part?.setAttribute(name, value);
  };
  window.triforce.name = () => {
    // Gradio's one <main> holds all of the page; ours are its parts (skip.html)
    document.querySelector("main.contain")?.setAttribute("role", "none");
    for (const { dataset: { part, role }, textContent } of document.querySelectorAll("[data-part]"))
      set(part, { role, "aria-label": textContent });
    for (const side of ["live", "reader"])     // scrollable, so the keyboard must reach them
      set(`pane-${side}`, { role: "tabpanel", "aria-labelledby": `tab-${side}`, tabindex: "0" });
    set("settings", { role: "dialog", "aria-labelledby": "settings-title" });
    const question = document.querySelector("#question textarea");
    question?.setAttribute("aria-label", question.placeholder);
  };
})();
