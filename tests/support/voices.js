/* A computer's voices, as a script: what is said is kept in `window.said`, and `window.finish()` ends a sentence. */
(() => {
  const voice = (name, lang, localService = true) => ({ name, lang, localService, voiceURI: `urn:${name}` });
  const known = [voice("Cloud", "en-US", false), voice("Ada", "en-GB"), voice("Bela", "en_US"), voice("Cora", "de-DE")];
  const heard = new EventTarget();
  let voices = [], now = null;
  window.said = [];
  window.SpeechSynthesisUtterance = class { constructor(text) { this.text = text; } };
  heard.getVoices = () => voices;
  heard.cancel = () => { const before = now; now = null; before?.onend?.(); };
  heard.speak = (one) => { now = one; window.said.push([one.text, one.voice.name, one.rate]); };
  Object.defineProperty(window, "speechSynthesis", { value: heard });
  window.finish = () => { const before = now; now = null; before.onend(); };
  window.fail = () => { const before = now; now = null; before.onerror(); };
  window.install = (...names) => {               // as browsers do it: some time after the page is there
    voices = known.filter((one) => names.includes(one.name));
    heard.dispatchEvent(new Event("voiceschanged"));
  };
})();
