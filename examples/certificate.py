"""Log in by certificate over direct TLS: HOST PORT CA JID CERTIFICATE KEY OUTBOX."""

import asyncio
import sys

from firmware_sim.device import Device

host, port, ca, jid, certificate, key, outbox = sys.argv[1:]


async def main() -> None:
    async with Device(
        jid,
        certificate=certificate,
        key=key,
        outbox_path=outbox,
        ca_file=ca,
        host=host,
        port=int(port),
        direct_tls=True,
    ) as device:
        await device.send_reading("temp", 21.5, unit="Cel")
        await device.flush(30)
        print("delivered:", len(list(device.delivered())))


asyncio.run(main())
