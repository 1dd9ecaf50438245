"""Work on the items of a queue: HOST PORT CA JID QUEUE FILE SECONDS, password on standard input.

If this worker dies, another one gets its items: work may be repeated. A result is stored once for
each item, in the transaction that records that the queue has deleted the item.
"""

import asyncio
import contextlib
import sqlite3
import sys

from firmware_sim.device import Job, Worker

host, port, ca, jid, queue, file, seconds = sys.argv[1:]
TABLE = "CREATE TABLE results (item TEXT PRIMARY KEY, payload TEXT NOT NULL) STRICT"


async def work(job: Job) -> None:
    print("begun", job.item, "earlier deliveries:", job.times, flush=True)
    await asyncio.sleep(float(seconds))  # the work; raise CannotDo to leave it to another worker


def store_result(job: Job, db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO results (item, payload) VALUES (?, ?)", (job.item, job.payload))
    print("storing", job.item, flush=True)  # stored, if it is not killed before this returns


async def main() -> None:
    async with Worker(
        jid,  # with a resource that never changes; each worker has its own, and its own file
        sys.stdin.readline().rstrip("\n"),
        node=queue,
        path=file,
        schema=TABLE,
        work=work,
        commit=store_result,
        ca_file=ca,
        host=host,
        port=int(port),
    ) as worker:
        while worker.failure is None:
            await worker.changed()
            print("online" if worker.online else worker.last_error, file=sys.stderr)
        sys.exit(f"the worker stopped: {worker.failure}")


with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C returns the items to the queue at once
    asyncio.run(main())
