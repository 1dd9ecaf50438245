// Publish readings exactly once with MQTT.js:
//
//     npm install
//     node sensor.js HOST PORT CA USER TOPIC < password.txt
//
// HOST is the gateway's domain, or another name in `[gateway] names`: the certificate must be for it.
// A message arrives exactly once across lost connections and restarts of the gateway. MQTT.js keeps it
// in memory, unless it is given another store: what is not published when this program dies has to
// be published again.

import { readFileSync } from "node:fs";
import mqtt from "mqtt";

const [host, port, ca, username, topic] = process.argv.slice(2);

const client = mqtt.connect({
  protocol: "mqtts",
  host,
  port: Number(port),
  ca: readFileSync(ca),
  protocolVersion: 5,
  username,
  password: readFileSync(0, "utf8").split("\n")[0],
  // They stay the same, so that each message is finished later.
  clientId: "sensor",
  clean: false,
  properties: { sessionExpiryInterval: 24 * 3600 },
});
// "Bad User Name or Password" does not go away, nor does a certificate that is not valid for HOST or
// not issued by CA. All others do: MQTT.js connects again by itself.
client.on("error", (error) => console.error(error.message));

// One after the other: MQTT.js does not respect the gateway's Receive Maximum (32), and is
// disconnected and starts again if more messages are in flight.
for (const temperature of [21.5, 21.7, 21.6]) {
  try {
    // Waits until it is published, however long the gateway is unreachable.
    await client.publishAsync(topic, JSON.stringify({ temperature }), { qos: 2 });
    console.log("published");
  } catch (error) {
    // 0x87, Not authorized: the topic is not allowed. 0x97, Quota exceeded: try again later.
    console.log(`0x${error.code?.toString(16)} ${error.message}`);
  }
}
await client.endAsync();
