"""Print one item of a shared subscription: HOST PORT CA JID FOLDER, password on standard input."""

import asyncio
import sys

from firmware_sim.device import Device, ReceiveOptions

host, port, ca, jid, folder = sys.argv[1:]


async def main() -> None:
    receive = ReceiveOptions(f"{folder}/inbox.db", subscriptions=["$share:readers:plant/#"])
    async with Device(
        jid,
        sys.stdin.readline().rstrip("\n"),
        outbox_path=f"{folder}/outbox.db",
        ca_file=ca,
        host=host,
        port=int(port),
        resume=True,
        receive=receive,
    ) as device:
        await device.subscribed()
        print("subscribed", flush=True)
        async for message in device.messages():
            for event in message.items():
                print(event.node, event.item, event.publisher, flush=True)
                return


asyncio.run(main())
