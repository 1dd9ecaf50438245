// Send an event to the gateway's log exactly once, with xmpp.js as it comes:
//
//     npm install
//     export NODE_EXTRA_CA_CERTS=ca.pem
//     node send.js HOST PORT DOMAIN DEVICE FOLDER MSGID TEXT < password.txt
//
// If it fails, call it again with the same words, as often as you like. MSGID is new for each
// message. FOLDER remembers, in a file for each, that the gateway holds the message (it must not be
// offered again) and that it is delivered.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { client, xml } from "@xmpp/client";

const [host, port, domain, username, folder, msgId, text] = process.argv.slice(2);
const password = readFileSync(0, "utf8").split("\n")[0];

const xmpp = client({ service: `xmpp://${host}:${port}`, domain, resource: "fw", username, password });
xmpp.on("error", (error) => console.error(error.message));

const isDone = (step) => existsSync(`${folder}/${msgId}.${step}`);
const remember = (step) => writeFileSync(`${folder}/${msgId}.${step}`, "", { flush: true });

// Resolves when the gateway has answered; rejects if it answers with an error, or not in 30 s.
const request = (name, ...children) =>
  xmpp.iqCaller.request(
    xml("iq", { type: "set", to: domain }, xml(name, { xmlns: "urn:xmpp:qos", msgId }, ...children)),
  );

const log = xml("log", { xmlns: "urn:xmpp:eventlog", id: "Note" }, xml("message", {}, text));

if (!isDone("delivered")) {
  await xmpp.start();
  if (!isDone("released")) {
    await request("assured", xml("message", { xmlns: "jabber:client" }, log));
    remember("released");
  }
  await request("deliver");
  remember("delivered");
  await xmpp.stop();
}
console.log("delivered");
