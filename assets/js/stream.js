/* The worker that holds the one event stream of all tabs, since a browser opens no more than six connections
   to a server. It keeps the newest state, so that a tab that comes later sees it at once. */
// when the server answered, but refused: after a new start, until its address is opened
const RETRY_MS = 5000;
const GRACE_MS = 2500;                         // a stream that breaks and is joined again at once is no news
const LANGUAGE = location.search.slice(1).split(".")[0];   // of the tabs: others have a worker of their own
const ports = new Map();                       // -> whether its tab is hidden
let source = null;
let launch = "";
// why nothing comes: "gone" (nobody answers) | "locked" (refused)
let lost = "";
let missing = 0;                               // the timer that will say so
const regions = {};                            // name -> HTML of its blocks

const tell = (message) => { for (const port of ports.keys()) port.postMessage(message); };
// one tab tells the system that a reading is done, and only when none is looked at
const nameTeller = () => {
  const hidden = [...ports.values()].every(Boolean);
  let first = true;
  for (const port of ports.keys()) { port.postMessage({ teller: hidden && first }); first = false; }
};
const become = (now) => {
  clearTimeout(missing);
  missing = 0;
  if (now !== lost) { lost = now; tell({ lost }); }
};

const take = ({ data }) => {
  const message = JSON.parse(data);
  const changed = {};
  launch = message.launch;
  for (const [name, [stay, ...blocks]] of Object.entries(message.regions)) {
    const old = regions[name] ?? [];
    const all = [...old.slice(0, stay), ...blocks];
    let same = 0;                              // after a reconnect everything comes, and most of it is known
    while (same < all.length && all[same] === old[same]) same += 1;
    if (same < all.length || same < old.length) changed[name] = [same, ...all.slice(same)];
    regions[name] = all;
  }
  tell({ launch, regions: changed });
};

const listen = () => {
  source = new EventSource(`/events?language=${LANGUAGE}`);
  source.onmessage = take;
  source.onopen = () => become("");
  source.onerror = () => {                     // a lost connection is made again by the browser itself
    const refused = source?.readyState === EventSource.CLOSED;
    if (refused) setTimeout(() => { if (ports.size) listen(); }, RETRY_MS);
    if (refused || lost === "locked") become(refused ? "locked" : "gone");
    else if (!lost && !missing) missing = setTimeout(() => become("gone"), GRACE_MS);
  };
};

const join = (port) => {
  port.onmessage = ({ data }) => {
    if (data === "hello") {
      ports.set(port, false);
      const whole = Object.entries(regions).map(([name, blocks]) => [name, [0, ...blocks]]);
      if (whole.length) port.postMessage({ launch, regions: Object.fromEntries(whole) });
      port.postMessage({ lost });
      tell({ tabs: ports.size });
      if (!source) listen();
    } else if (data.hidden !== undefined) {
      if (ports.has(port)) ports.set(port, data.hidden);
      nameTeller();
    } else {
      ports.delete(port);
      tell({ tabs: ports.size });
      nameTeller();
      if (!ports.size) { source.close(); source = null; }
    }
  };
};

if ("onconnect" in self) self.onconnect = ({ ports: [port] }) => join(port);
else join(self);                               // a browser without shared workers: one stream a tab
