// Work on the jobs of a share with MQTT.js:
//
//     npm install
//     node worker.js HOST PORT CA USER FOLDER < password.txt
//
// Each job goes to one worker, and to another one if that dies. A job is JSON with an id, and its
// result is a file of that name: a job may come again if the acknowledgement was lost, and then
// writes the same file. QoS 1 and not 2: at QoS 2 a job that was sent waits for the worker that
// died, and MQTT.js, which has its store in memory, does not know it any more.

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import mqtt from "mqtt";

const SHARE = "$share/workers/jobs/#";

const [host, port, ca, username, folder] = process.argv.slice(2);

const client = mqtt.connect({
  protocol: "mqtts",
  host,
  port: Number(port),
  ca: readFileSync(ca),
  protocolVersion: 5,
  username,
  password: readFileSync(0, "utf8").split("\n")[0],
  clientId: "worker",
  clean: false,
  properties: { sessionExpiryInterval: 24 * 3600 },
});
client.on("error", (error) => console.error(error.message));

client.on("connect", async ({ sessionPresent }) => {
  try {
    // The gateway keeps the subscription, and the jobs, with the session.
    if (!sessionPresent) await client.subscribeAsync(SHARE, { qos: 1 });
    console.log("subscribed");
  } catch (error) {
    console.error(`${SHARE}: ${error.message}`); // "Not authorized": see [[access]]
    process.exit(1);
  }
});

function jobOf(payload) {
  try {
    const { id } = JSON.parse(payload);
    return Number.isSafeInteger(id) ? id : undefined;
  } catch {
    return undefined;
  }
}

// MQTT.js acknowledges a message when `done` is called: a worker that dies before gets it again.
client.handleMessage = ({ payload }, done) => {
  const job = jobOf(payload);
  if (job === undefined) {
    console.error(`not a job: ${payload}`); // it would be the same next time
  } else {
    writeFileSync(`${folder}/${job}.new`, payload, { flush: true });
    renameSync(`${folder}/${job}.new`, `${folder}/${job}`);
    console.log(`stored ${job}`);
  }
  done();
};
