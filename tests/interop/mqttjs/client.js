// MQTT.js as a program; tests/helpers/mqtt_clients.py describes its commands.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import mqtt from "mqtt";

const [host, port, jid, ca, transport, , version, will] = process.argv.slice(2);
const [username, clientId] = jid.split("/");
const write = (...words) => console.log(words.join(" "));

const client = mqtt.connect({
  protocol: transport === "wss" ? "wss" : "mqtts",
  path: "/mqtt", // of WebSocket
  host,
  port: Number(port),
  ca: readFileSync(ca),
  username,
  password: process.env.CLIENT_PASSWORD,
  clientId,
  clean: false,
  ...(version === "5"
    ? { protocolVersion: 5, properties: { sessionExpiryInterval: 3600 } }
    : { protocolVersion: 4 }),
  ...(will ? { will: { topic: will, payload: "gone", qos: 1 } } : {}),
});
client.on("connect", () => write("online"));
client.on("close", () => write("lost"));
client.on("error", (error) => console.error(error.message));
client.on("message", (topic, payload, packet) =>
  write("message", topic, packet.qos, Number(packet.retain), payload),
);

const commands = {
  async subscribe(filter, qos) {
    const [granted] = await client.subscribeAsync(filter, { qos: Number(qos) });
    write("subscribed", filter, granted.qos);
  },
  async publish(topic, qos, text) {
    await client.publishAsync(topic, text, { qos: Number(qos) });
    write("published", topic);
  },
  async retain(topic, text) {
    await client.publishAsync(topic, text, { qos: 1, retain: true });
    write("published", topic);
  },
  async count(topic, number) {
    const texts = Array.from({ length: Number(number) }, (_, text) => String(text));
    await Promise.all(texts.map((text) => client.publishAsync(topic, text, { qos: 2 })));
    write("published", topic);
  },
  async quit() {
    await client.endAsync();
    process.exit(0);
  },
};
createInterface({ input: process.stdin }).on("line", (line) => {
  const [name, ...words] = line.split(" ");
  commands[name](...words);
});
