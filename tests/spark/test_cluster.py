"""Commands by `spark-submit`, on a standalone cluster and on Kubernetes.

Driver and executors share a bucket alone. A worker of the standalone cluster is killed with its
executor while that writes a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
import yaml  # type: ignore[import-untyped]

from sync.ingest.ingest import HERE_BYTES, ingest_waiting
from sync.storage.locations import FleetStorage, StorageOptions, open_storage
from sync.tables.java import find_java
from tests.helpers.faulty_landing import FaultyLanding
from tests.helpers.fleet_command import Command
from tests.helpers.fleet_tables import fleet_folder
from tests.helpers.jvm import FAST_JVM
from tests.helpers.kubernetes_api import ADDRESS, KubernetesApi
from tests.helpers.local_ingest import check, no_spark
from tests.helpers.object_store import BUCKET, FaultyProxy, download, environment, upload
from tests.helpers.spark_cluster import HOME, Cluster, Worker, spark_cluster
from tests.helpers.spark_package import DEPLOY, spark_package

pytestmark = pytest.mark.spark

LIMIT_S = 600

PADDING = 400_000
"""Bytes of text of an event: a few segments are more than the driver decodes itself."""

LANDING, TABLES = f"s3://{BUCKET}/landing", f"s3://{BUCKET}/tables"

URIS = ("--landing", LANDING, "--tables", TABLES)


@pytest.fixture
def places(s3: str) -> FleetStorage:
    return StorageOptions(None, LANDING, TABLES).open()


class Deadly:
    """Kills the worker whose executor has made a request, given by its port, once."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self.killed: list[Worker] = []

    def __call__(self, port: int) -> None:
        self.killed += [worker for worker in self._workers if worker.has_port(port)]
        for worker in self.killed:
            worker.kill()


@contextmanager
def dying_worker(
    server: str, cluster: Cluster, seed: int, folder: str = ""
) -> Iterator[FaultyProxy]:
    """Run a proxy for executors, which kills a worker when its executor writes the first file.

    With `folder`, it is the first file in that folder of the bucket. The store has the file, but
    nobody gets its answer.
    """
    with FaultyProxy(server, Random(seed)).running() as proxy:
        deadly = Deadly(cluster.workers)
        proxy.share, proxy.count, proxy.kinds = 1, 1, ("lost",)
        proxy.only = f"PUT /{BUCKET}/{folder}"
        proxy.on_fault = deadly
        yield proxy
        assert len(deadly.killed) == 1
        [killed] = deadly.killed
        assert killed.process.wait(LIMIT_S) == -9


def submit(
    cluster: Cluster,
    store: str,
    folder: Path,
    *words: str | Path,
    script: Path = DEPLOY / "fleet.py",
) -> subprocess.CompletedProcess[str]:
    """Run `fieldpost-fleet` on the cluster, with executors that reach the bucket at `store`."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": folder / "driver",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
        **{f"spark.executorEnv.{name}": value for name, value in environment(store).items()},
    }
    return subprocess.run(
        [
            *(HOME / "bin" / "spark-submit", "--master", cluster.master),
            *(word for each in settings.items() for word in ("--conf", "{}={}".format(*each))),
            *("--py-files", spark_package(folder / "dist"), script, *words),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env=cluster.environment,
        cwd=folder,
    )


def land(places: FleetStorage, folder: Path, seed: int) -> FaultyLanding:
    """Upload so many segments that the driver does not decode them itself."""
    arriving = fleet_folder(folder)
    landing = FaultyLanding(arriving, Random(seed), PADDING)
    while sum(path.stat().st_size for path in arriving.landing.rglob("*.seg")) <= HERE_BYTES:
        landing.fill()
    landing.fill(all_of_it=True)
    upload(arriving, places.segments)
    return landing


def test_an_ingest_whose_worker_is_killed_equals_the_truth(
    s3: str, places: FleetStorage, tmp_path: Path, seed: int
) -> None:
    landing = land(places, tmp_path / "arriving", seed)
    with (
        spark_cluster(2, tmp_path / "cluster", options=FAST_JVM) as cluster,
        dying_worker(s3, cluster, seed) as proxy,
    ):
        done = submit(cluster, proxy.url, tmp_path, "ingest", *URIS)
        assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("ingested ")
    check(download(places.segments, tmp_path / "copy"), landing)


LARGE = """
import sync.cli.gather
from sync.cli.main import main

sync.cli.gather.FEW_EVENTS, sync.cli.gather.LARGE_FLEET = 0, 1
main()
"""
"""A script for `spark-submit` by which the executors draw the pages of two gateways or more."""


@pytest.mark.long
def test_a_report_whose_worker_is_killed_equals_that_of_one_machine(
    s3: str, places: FleetStorage, tmp_path: Path, seed: int, command_in_process: Command
) -> None:
    """The worker is killed while its executor writes the page of a gateway."""
    arriving = fleet_folder(tmp_path / "arriving")
    FaultyLanding(arriving, Random(seed)).fill(all_of_it=True)
    upload(arriving, places.segments)
    ingest_waiting(no_spark, places)
    copy = download(places.segments, tmp_path / "copy")
    moment, out, uri = datetime.now(UTC).isoformat(), tmp_path / "out", f"s3://{BUCKET}/out"
    script = tmp_path / "large.py"
    script.write_text(LARGE, "utf-8")
    with (
        spark_cluster(2, tmp_path / "cluster", options=FAST_JVM) as cluster,
        dying_worker(s3, cluster, seed, "out/gateways/") as proxy,
    ):
        words = ("report", *URIS, "--out", uri, "--as-of", moment)
        done = submit(cluster, proxy.url, tmp_path, *words, script=script)
        assert done.returncode == 0, done.stderr[-3000:]
    here = command_in_process("report", "--dir", copy.root, "--out", out, "--as-of", moment)
    assert done.stdout == here.stdout.replace(str(out), uri)
    report = open_storage(uri)
    written = {file.path: report.read(file.path) for file in report.files()}
    paths = [path for path in out.rglob("*") if path.is_file()]
    assert written == {str(path.relative_to(out)): path.read_bytes() for path in paths}


@pytest.mark.long
def test_the_example_for_kubernetes_ingests_by_executors_in_pods(
    s3: str, places: FleetStorage, tmp_path: Path, seed: int
) -> None:
    landing = land(places, tmp_path / "arriving", seed)
    example = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
    parts = {part["kind"]: part for part in example}
    (tmp_path / "conf").mkdir()
    for name, text in parts["ConfigMap"]["data"].items():
        (tmp_path / "conf" / name).write_text(text, "utf-8")
    image = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
        "JAVA_HOME": str(find_java(os.environ, tmp_path / "java")),
        "SPARK_HOME": str(HOME),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "PATH": f"{HOME / 'bin'}:{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "JDK_JAVA_OPTIONS": FAST_JVM,
    }
    with KubernetesApi(tmp_path / "pods", environment(s3), image).running() as api:
        driver = {"kind": "Pod", "metadata": {"name": "driver", "uid": "1", "labels": {}}}
        api.objects["/api/v1/namespaces/default/pods/driver"] = driver
        settings = {
            "spark.master": f"k8s://{api.url}",
            "spark.kubernetes.executor.enableApiWatcher": "false",
            "spark.executor.instances": "1",
            "spark.executorEnv.AWS_ENDPOINT_URL": s3,
            "spark.executorEnv.AWS_ALLOW_HTTP": "true",
        }
        pod = parts["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        [container] = pod["containers"]
        [submit, *words] = container["args"]
        for before, here in (
            ("$(POD_IP)", ADDRESS),
            ("$(POD_NAME)", "driver"),
            ("BUCKET/fleet", BUCKET),
            ("/opt/fieldpost-spark/", f"{DEPLOY}/"),
        ):
            words = [word.replace(before, here) for word in words]
        confs = ("--conf={}={}".format(*each) for each in settings.items())
        done = subprocess.run(
            [sys.executable, DEPLOY / "entrypoint.py", submit, *confs, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env=image | environment(s3),
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert len(api.pods) == 1
        assert [*api.objects.values()] == [driver]
        [rule] = parts["Role"]["rules"]
        allowed = {(verb, each) for verb in rule["verbs"] for each in rule["resources"]}
        assert api.calls <= allowed
        assert api.pods[0]["spec"]["containers"][0]["image"] == container["image"]
    check(download(places.segments, tmp_path / "copy"), landing)
