"""Send at each level and print what arrives: HOST PORT CA JID FOLDER, password on stdin."""

import asyncio
import sys

from firmware_sim.device import Device, ReceiveOptions

host, port, ca, jid, folder = sys.argv[1:]


async def main() -> None:
    async with Device(
        jid,  # with a resource that never changes: pump1@gw.example/fw
        sys.stdin.readline().rstrip("\n"),
        outbox_path=f"{folder}/outbox.db",  # messages that are not delivered yet
        ca_file=ca,
        host=host,
        port=int(port),
        resume=True,
        receive=ReceiveOptions(f"{folder}/inbox.db"),
    ) as device:
        await device.send_reading("litres", 1450, qos=2)  # exactly once
        await device.send_log("Started", "The pump runs.", qos=1)  # at least once
        await device.flush()  # waits for the gateway, however long it is unreachable
        await device.send_reading("rpm", 2900, qos=0)  # now or never
        async for message in device.messages():
            print(message.qos, message.sender, message.body, flush=True)


asyncio.run(main())
