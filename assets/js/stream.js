/* The worker that holds the one event stream of all tabs, since a browser opens no more than six connections to a server. It keeps
   the newest state, so that a tab that comes later sees it at once. */
const RETRY_MS = 5000;                         // when the server answered, but refused: after a new start, until its address is opened
const ports = new Set();
let source = null;
let launch = "";
const regions = {};                            // name -> HTML of its blocks

const tell = (changed) => { for (const port of ports) port.postMessage({ launch, regions: changed }); };

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
  tell(changed);
};

const listen = () => {
  source = new EventSource("/events");
  source.onmessage = take;
  source.onerror = () => {                     // a lost connection is made again by the browser itself
    if (source?.readyState === EventSource.CLOSED) setTimeout(() => { if (ports.size) listen(); }, RETRY_MS);
  };
};

const join = (port) => {
  port.onmessage = ({ data }) => {
    if (data === "hello") {
      ports.add(port);
      const whole = Object.entries(regions).map(([name, blocks]) => [name, [0, ...blocks]]);
      if (whole.length) port.postMessage({ launch, regions: Object.fromEntries(whole) });
      if (!source) listen();
    } else {
      ports.delete(port);
      if (!ports.size) { source.close(); source = null; }
    }
  };
};

if ("onconnect" in self) self.onconnect = ({ ports: [port] }) => join(port);
else join(self);                               // a browser without shared workers: one stream a tab
