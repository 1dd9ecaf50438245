"""Log in with slixmpp alone and publish a reading: HOST PORT CA JID, password on standard input."""

import asyncio
import ssl
import sys

from slixmpp import ClientXMPP

host, port, ca, jid = sys.argv[1:]


async def main() -> None:
    context = ssl.create_default_context(cafile=ca)
    client = ClientXMPP(jid, sys.stdin.readline().rstrip("\n"), ssl_context=context)
    client.enable_direct_tls = False
    client.register_plugin("xep_0199")
    started = asyncio.Event()
    client.add_event_handler("session_start", lambda _event: started.set())
    client.connect(host, int(port))
    await asyncio.wait_for(started.wait(), 30)
    reading = "<json xmlns='urn:xmpp:json:0'>{\"temp\": 21.5}</json>"
    client.send_raw(f"<message to='{client.boundjid.domain}'>{reading}</message>")
    await client.plugin["xep_0199"].ping()  # answered after the message is stored
    await client.disconnect()


asyncio.run(main())
