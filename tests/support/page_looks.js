/* What is wrong with the page as it is now, as sentences: see looking.py. */
([always, wanted]) => {
  const found = [];
  const tell = (what, one) => found.push(`${what}: ${one.outerHTML.replace(/\\s+/g, " ").slice(0, 150)}`);
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");

  const layer = (one) => one.closest("dialog, #settings, #right, #left, .own-boxes, .export > div, .selected, #choices");
  const unseen = (one) => one && (getComputedStyle(one).clipPath !== "none"
    || (one.offsetWidth <= 1 && getComputedStyle(one).display !== "contents") || unseen(one.parentElement));
  const hidden = (one) => one.closest("#skip, [hidden]") || unseen(one)
    || !one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const open = document.querySelector("dialog[open]");
  // what is left of a box inside everything that scrolls or cuts it
  const shown = (one, box) => {
    const edge = { left: 0, top: 0, right: innerWidth, bottom: innerHeight };
    for (let up = one; up && up !== document.documentElement; up = up.parentElement) {
      const { overflowX, overflowY, position } = getComputedStyle(up);
      const frame = up.getBoundingClientRect();
      if (up !== one && overflowX !== "visible") { edge.left = Math.max(edge.left, frame.left); edge.right = Math.min(edge.right, frame.right); }
      if (up !== one && overflowY !== "visible") { edge.top = Math.max(edge.top, frame.top); edge.bottom = Math.min(edge.bottom, frame.bottom); }
      if (position === "fixed") break;
    }
    const left = Math.max(box.left, edge.left), right = Math.min(box.right, edge.right);
    const top = Math.max(box.top, edge.top), bottom = Math.min(box.bottom, edge.bottom);
    return right - left > 1 && bottom - top > 1 ? { left, right, top, bottom, width: right - left, height: bottom - top } : null;
  };
  const over = (box) => document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
  const related = (one, other) => other && (one.contains(other) || other.contains(one) || one.closest("label")?.contains(other));

  // what is pressed: large enough, and nothing lies over it
  for (const one of document.querySelectorAll("button, a[href], select, input, textarea, summary")) {
    const target = (one.type === "checkbox" && one.closest("label")) || one;
    if (hidden(one) || (open && !open.contains(one))) continue;
    const box = target.getClientRects()[0];          // of words that go over two lines the first
    if (!box) continue;
    const seen = shown(target, box);
    if (!seen) continue;
    const inText = getComputedStyle(one).display.startsWith("inline") && one.closest(".text, p, blockquote");
    if (!inText && (box.width < 23.5 || box.height < 23.5)) tell(`${box.width.toFixed()} x ${box.height.toFixed()} pixels are too small to press`, one);
    if (box.left < -1 || box.right > innerWidth + 1) tell("beyond the window", one);
    if (seen.height < box.height * .7) continue;   // half scrolled away
    const top = over(seen);
    if (!related(target, top) && layer(top ?? one) === layer(one)) tell(`covered by ${top?.outerHTML.slice(0, 60)}`, one);
  }

  // what must be in sight: whole, and nothing lies over it but what is folded over the page
  for (const selector of [...always, ...wanted]) {
    const all = [...document.querySelectorAll(selector)].filter((one) => !hidden(one) && one.getBoundingClientRect().width);
    const seen = ([one, box]) => {
      const top = over(box);
      return box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight
        && (related(one, top) || layer(top ?? one) !== layer(one));
    };
    if (open || (!all.length && always.includes(selector))) continue;
    if (!all.map((one) => [one, one.getBoundingClientRect()]).some(seen)) found.push(`out of sight: ${selector}`);
  }

  // what is chosen or offered has the width of its words
  const boxes = (selector) => [...document.querySelectorAll(selector)].filter((one) => !hidden(one) && one.clientWidth > 2);
  const pen = document.createElement("canvas").getContext("2d");
  const narrow = (one, words, beside = 0) => {
    const style = getComputedStyle(one);
    pen.font = style.font;
    const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - beside;
    if (pen.measureText(words).width > room + 1) tell(`narrower than “${words}”`, one);
  };
  for (const one of boxes("input[placeholder]")) narrow(one, one.placeholder);
  for (const one of boxes(".choices select")) narrow(one, one.selectedOptions[0].text, 19);   // the arrow
  for (const one of boxes(".choices label")) {
    const words = document.createRange();
    words.selectNodeContents(one.firstChild);
    if (words.getBoundingClientRect().width > one.getBoundingClientRect().width + .01) tell("narrower than its words", one);
  }
  for (const one of boxes(".own:not(.own-some) > summary")) {
    const box = one.closest("#instructions"), now = one.getBoundingClientRect().width;
    box.style.flex = "none";
    if (one.getBoundingClientRect().width > now + .01) tell("narrower than its words", one);
    box.style.flex = "";
  }
  for (const one of boxes("button, label, summary, .tag, h2, h3, dt, dd, small")) {
    const { overflowX, overflowY, display } = getComputedStyle(one);
    if (overflowX === "visible" && display !== "inline" && one.scrollWidth > one.clientWidth + 1) tell("wider than its box", one);
    if (overflowY === "visible" && one.matches("button") && one.scrollHeight > one.clientHeight + 1) tell("higher than its box", one);
  }
  for (const one of boxes(".answer .text")) {
    if (one.clientWidth < Math.min(340, innerWidth - 50)) tell(`only ${one.clientWidth} pixels wide`, one);
  }

  // words: neither cut off nor written over others
  const lines = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || one.closest("script, style, option, .plot svg, .cover, textarea") || hidden(one)) continue;
    if (open && !open.contains(one)) continue;
    const range = document.createRange();
    range.selectNodeContents(walk.currentNode);
    for (const box of range.getClientRects()) {
      if (box.width < 2) continue;
      if (box.left < -1 || box.right > innerWidth + 1) {
        const cut = one.closest("summary, button, span, b, small, p, h2");
        if (!cut || getComputedStyle(cut).textOverflow !== "ellipsis") tell("words beyond the window", one);
      }
      const seen = shown(one, box);
      if (seen) lines.push({ one, ...seen, layer: layer(one) });
    }
    const style = getComputedStyle(one);
    const ends = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
    if (style.overflowX === "hidden" && !ends && one.scrollWidth > one.clientWidth + 1) tell("words are cut off", one);
  }
  lines.sort((a, b) => a.top - b.top);
  for (let i = 0; i < lines.length; i += 1) {
    for (let j = i + 1; j < lines.length && lines[j].top < lines[i].bottom - 3; j += 1) {
      const [a, b] = [lines[i], lines[j]];
      if (a.layer !== b.layer || a.one.contains(b.one) || b.one.contains(a.one)) continue;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 3 && down > Math.min(a.bottom - a.top, b.bottom - b.top) * .4) {
        const top = over({ left: Math.max(a.left, b.left), right: Math.min(a.right, b.right), top: Math.max(a.top, b.top), bottom: Math.min(a.bottom, b.bottom) });
        if (top && layer(top) !== a.layer) continue;   // what folds over the page lies there
        if (top?.closest("#composer, #around, #notice, .reader-head, .drawer-head") !== a.one.closest("#composer, #around, #notice, .reader-head, .drawer-head")) continue;
        tell(`written over “${b.one.textContent.trim().slice(0, 40)}”`, a.one);
      }
    }
  }
  for (const column of document.querySelectorAll("#left, #middle, #right, #scroller, #settings, #pane-live, #pane-reader, .reader-text")) {
    if (!hidden(column) && column.clientWidth && column.scrollWidth > column.clientWidth + 1) found.push(`#${column.id || column.className} scrolls sideways`);
  }
  return [...new Set(found)];
}
