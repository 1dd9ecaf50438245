// A device on xmpp.js that executes the commands on its standard input, line by line.
//
// It speaks the lines of tests/helpers/clients.py. xmpp.js has SCRAM-SHA-1 and PLAIN, and no
// EXTERNAL. Where the gateway offers SASL2 (XEP-0388), it uses that, and Bind 2 (XEP-0386) with it:
// then `jid`'s resource is only the tag, and `sasl2` is written before `online`. It trusts the
// certificate in $NODE_EXTRA_CA_CERTS. Usage:
//
//     client.js HOST PORT JID CAFILE starttls|direct MECHANISM [sasl1|defaults]
//
// With `sasl1` it does not use SASL2. With `defaults` xmpp.js uses its defaults: it chooses the
// mechanism, and names itself by an id that is new in each process.

import dns from "node:dns";
import { createInterface } from "node:readline";
import { client, jid, xml } from "@xmpp/client";

const QOS = "urn:xmpp:qos";
const LOG = "urn:xmpp:eventlog";
const SM = "urn:xmpp:sm:3";
const PUBSUB = "http://jabber.org/protocol/pubsub";
const QUEUEING = "urn:xmpp:pubsub:queueing:0";
const RECONNECT_MS = 50;
const ANSWER_MS = 20_000; // the default of 2 s is too short on a busy machine
const AGENT_ID = "d4565fa7-4d72-4749-b3d3-740edbf87770"; // stable, as XEP-0388 2.2 wants it

const [host, port, address, , transport, preferred, profile] = process.argv.slice(2);
const mechanism = profile === "defaults" ? "default" : preferred;
const me = jid(address);
const domain = me.domain;
let online = false;
let ending = false;

function emit(...words) {
  process.stdout.write(words.join(" ") + "\n");
}

async function credentials(authenticate, mechanisms, fast, entity, userAgent) {
  if (!mechanisms.includes(mechanism)) throw new Error(`no ${mechanism} offered`);
  const agent = userAgent ?? xml("user-agent", { id: AGENT_ID }, xml("software", {}, "xmpp.js"));
  await authenticate({ username: me.local, password: process.env.CLIENT_PASSWORD }, mechanism, agent);
}

// By direct TLS xmpp.js verifies the certificate for the host that it connects to, not for the
// JID's domain. So it connects to the domain, which is looked up here and in no network.
const lookup = dns.lookup;
dns.lookup = (name, options, done) => lookup(name === domain ? host : name, options, done);

const xmpp = client({
  service: transport === "direct" ? `xmpps://${domain}:${port}` : `xmpp://${host}:${port}`,
  domain,
  resource: me.resource,
  ...(profile === "defaults"
    ? { username: me.local, password: process.env.CLIENT_PASSWORD }
    : { credentials }),
});
xmpp.reconnect.delay = RECONNECT_MS;
xmpp.timeout = ANSWER_MS;
if (profile === "sasl1") hideSasl2();

// xmpp.js has no option for it: the feature SASL2 is removed before the features are read.
function hideSasl2() {
  xmpp.middleware.use(({ stanza }, next) => next());
  xmpp.prependListener("element", (element) => {
    if (element.name !== "stream:features") return;
    const offer = element.getChild("authentication", "urn:xmpp:sasl:2");
    if (offer) element.children = element.children.filter((child) => child !== offer);
  });
}

function log(name, text) {
  return xml("log", { xmlns: LOG, id: name }, xml("message", {}, text));
}

async function request(type, payload, to) {
  return xmpp.iqCaller.request(xml("iq", to ? { type, to } : { type }, payload));
}

async function exchange(verb, msgId, ...content) {
  const answer = await request("set", xml(verb, { xmlns: QOS, msgId }, ...content), domain);
  emit("answered", verb, msgId, ...answer.getChildElements().map((child) => child.name));
}

async function query(namespace, child, attribute) {
  const answer = await request("get", xml("query", { xmlns: namespace }), domain);
  const found = answer.getChild("query").getChildren(child);
  return found.map((element) => element.attrs[attribute]).sort();
}

function form(purpose, options) {
  const fields = Object.entries({ FORM_TYPE: `${PUBSUB}#${purpose}`, ...options });
  const written = fields.map(([name, value]) => xml("field", { var: name }, xml("value", {}, value)));
  return xml("x", { xmlns: "jabber:x:data", type: "submit" }, ...written);
}

async function pubsub(verb, node, ...content) {
  await request("set", xml("pubsub", { xmlns: PUBSUB }, ...content), `pubsub.${domain}`);
  emit("done", verb, node);
}

// What a notification tells of items: each that came, went, or was unlocked, a line.
function tellItems(stanza) {
  const items = stanza.getChild("event", `${PUBSUB}#event`)?.getChild("items");
  for (const item of items?.getChildElements() ?? []) {
    const text = item.getChildElements()[0]?.text() ?? "";
    emit({ item: "item", retract: "retracted", unlock: "unlocked" }[item.name], item.attrs.id, text);
  }
  return items !== undefined;
}

const commands = {
  async create(node) {
    const options = form("node_config", { "pubsub#queueing": "true" });
    await pubsub("create", node, xml("create", { node }), xml("configure", {}, options));
  },
  async work(node, requests) {
    const at = { node, jid: me.bare().toString() };
    const options = form("subscribe_options", { "pubsub#queue_requests": requests });
    await pubsub("work", node, xml("subscribe", at), xml("options", at, options));
  },
  async publish(node, id, ...text) {
    const payload = xml("work", { xmlns: "urn:example" }, text.join(" "));
    await pubsub("publish", node, xml("publish", { node }, xml("item", { id }, payload)));
  },
  async retract(node, id) {
    await pubsub("retract", node, xml("retract", { node }, xml("item", { id })));
  },
  async unlock(node, id) {
    await pubsub("unlock", node, xml("unlock", { xmlns: QUEUEING, node }, xml("item", { id })));
  },
  async ping() {
    await request("get", xml("ping", { xmlns: "urn:xmpp:ping" }), domain);
    emit("pong");
  },
  async info() {
    emit("features", ...(await query("http://jabber.org/protocol/disco#info", "feature", "var")));
  },
  async items() {
    emit("items", ...(await query("http://jabber.org/protocol/disco#items", "item", "jid")));
  },
  async roster() {
    const answer = await request("get", xml("query", { xmlns: "jabber:iq:roster" }));
    const items = answer.getChild("query").getChildren("item");
    emit("roster", ...items.map(({ attrs }) => `${attrs.jid}:${attrs.subscription}`).sort());
  },
  async presence(to, type) {
    await xmpp.send(xml("presence", { ...(to && { to }), ...(type && { type }) }));
  },
  async message(to, ...text) {
    await xmpp.send(xml("message", { to, type: "chat" }, xml("body", {}, text.join(" "))));
    emit("sent", to);
  },
  async log(name, ...text) {
    await xmpp.send(xml("message", { to: domain, type: "normal" }, log(name, text.join(" "))));
  },
  async assured(msgId, name, ...text) {
    const message = xml("message", { xmlns: "jabber:client" }, log(name, text.join(" ")));
    await exchange("assured", msgId, message);
  },
  async deliver(msgId) {
    await exchange("deliver", msgId);
  },
  async quit() {
    ending = true;
    await xmpp.stop();
  },
};

xmpp.on("nonza", (element) => {
  const success = element.is("success", "urn:xmpp:sasl:2");
  if (success) emit("sasl2");
  const bound = success ? element.getChild("bound", "urn:xmpp:bind:0") : null;
  const enabled = element.is("enabled", SM) ? element : bound?.getChild("enabled", SM);
  if (enabled) emit("managed", enabled.attrs.id ? "resumable" : "not-resumable");
});
xmpp.on("online", (bound) => {
  online = true;
  emit("online", bound, mechanism);
});
xmpp.streamManagement.on("resumed", () => emit("resumed", xmpp.jid));
xmpp.on("disconnect", () => {
  if (online && !ending) emit("cut");
});
xmpp.on("error", (error) => {
  if (online && !error.condition) return; // of the socket that was cut; it connects again
  emit("failed", error.name, error.condition ?? error.code ?? "", error.message);
  ending = true;
  xmpp.reconnect.stop();
  xmpp.disconnect().catch(() => {}).then(() => process.exit(1));
});
xmpp.on("offline", () => process.exit(0));
xmpp.on("stanza", (stanza) => {
  const { from, type } = stanza.attrs;
  if (stanza.is("message") && tellItems(stanza)) return;
  if (stanza.is("message")) emit("message", from, stanza.getChildText("body") ?? "");
  if (stanza.is("presence")) emit("presence", from, type ?? "available");
});

const lines = createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const [verb, ...words] = line.trim().split(/\s+/);
  try {
    await commands[verb](...words);
  } catch (error) {
    emit("refused", verb, error.condition ?? error.message);
  }
});
lines.on("close", () => process.exit(1));
xmpp.start().catch(() => {}); // the `error` event reports it
