"""A part of the Kubernetes API, as much as Spark's driver uses, that runs pods as processes.

A pod's only container is started by the image's entry point (`deploy/spark/entrypoint.py`), with
the arguments and the environment of the pod's specification.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.helpers.spark_package import DEPLOY

ADDRESS: Final = "127.0.0.1"
"""The address of all pods."""

LIMIT_S: Final = 60.0

VERBS: Final = {
    ("POST", False): "create",
    ("GET", False): "list",
    ("GET", True): "get",
    ("PATCH", True): "patch",
    ("DELETE", False): "deletecollection",
    ("DELETE", True): "delete",
}
"""The verb of a request, by its method and whether it names one object."""

Json = dict[str, Any]


class KubernetesApi(ThreadingHTTPServer):
    """Keeps objects by their path, and a process for each pod that was created.

    `secrets` are the values of all secrets by key, `image` the image's environment. `calls` are
    the verbs and resources of all requests, as a role names them, and `pods` all pods that were
    started.
    """

    daemon_threads = True

    def __init__(self, folder: Path, secrets: Mapping[str, str], image: Mapping[str, str]) -> None:
        super().__init__((ADDRESS, 0), _Handler)
        self.url = f"http://{ADDRESS}:{self.server_port}"
        self.objects: dict[str, Json] = {}
        self.calls: set[tuple[str, str]] = set()
        self.pods: list[Json] = []
        self.lock = threading.Lock()
        self._folder = folder
        self._secrets = secrets
        self._image = image
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[KubernetesApi]:
        """Serve within the block; end all pods at its end."""
        thread = threading.Thread(target=self.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join(LIMIT_S)
            self.server_close()
            for path in list(self._processes):
                self.end(path)

    def start(self, path: str, pod: Json) -> None:
        """Run a pod."""
        [container] = pod["spec"]["containers"]
        folder = self._folder / pod["metadata"]["name"]
        folder.mkdir(parents=True)
        pod["status"] = {"phase": "Running", "podIP": ADDRESS}
        self.pods.append(pod)
        with (folder / "log").open("wb") as log:
            self._processes[path] = subprocess.Popen(
                [sys.executable, DEPLOY / "entrypoint.py", *container["args"]],
                stdout=log,
                stderr=log,
                cwd=folder,
                env={**self._image, **self._environment(pod, container, folder)},
            )

    def end(self, path: str) -> None:
        """End a pod's process, if it has one."""
        if process := self._processes.pop(path, None):
            process.kill()
            process.wait(LIMIT_S)

    def _environment(self, pod: Json, container: Json, folder: Path) -> dict[str, str]:
        fields = {"status.podIP": ADDRESS, "metadata.name": pod["metadata"]["name"]}
        found = {}
        for each in container["env"]:
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                found[each["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                found[each["name"]] = self._secrets[source["secretKeyRef"]["key"]]
            else:
                found[each["name"]] = each.get("value", "")
        return found | {"SPARK_LOCAL_DIRS": str(folder / "scratch")}  # a volume of the pod


class _Handler(BaseHTTPRequestHandler):
    server: KubernetesApi

    def handle_request(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            status, answer = self._answer(url.path, parse_qs(url.query), body)
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_request

    def _answer(
        self, path: str, query: Mapping[str, list[str]], body: bytes
    ) -> tuple[HTTPStatus, Json]:
        objects = self.server.objects
        _, resource, *names = path.removeprefix("/api/v1/namespaces/").split("/")
        self.server.calls.add((VERBS[self.command, bool(names)], resource))
        if self.command == "POST":
            made: Json = json.loads(body)
            path = f"{path}/{made['metadata']['name']}"
            objects[path] = made
            if made["kind"] == "Pod":
                self.server.start(path, made)
            return HTTPStatus.CREATED, made
        if names and path not in objects:
            return HTTPStatus.NOT_FOUND, {"kind": "Status", "apiVersion": "v1", "code": 404}
        if self.command == "PATCH":
            objects[path]["metadata"] |= json.loads(body)["metadata"]
        if names and self.command != "DELETE":
            return HTTPStatus.OK, objects[path]
        terms = ",".join(query.get("labelSelector", [])).split(",")
        wanted = dict(each.split("=") for each in terms if each and "!" not in each)
        chosen = [path] if names else [each for each in objects if self._has(each, path, wanted)]
        if self.command == "GET":
            items = [objects[each] for each in chosen]
            return HTTPStatus.OK, {"kind": "List", "apiVersion": "v1", "items": items}
        for each in chosen:
            del objects[each]
            self.server.end(each)
        return HTTPStatus.OK, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _has(self, path: str, folder: str, labels: Mapping[str, str]) -> bool:
        """Return whether the object at `path` is in a folder, and has these labels."""
        found = self.server.objects[path]["metadata"].get("labels", {})
        return path.rpartition("/")[0] == folder and found.items() >= labels.items()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
