"""The image and the example for Spark on Kubernetes."""

from __future__ import annotations

import runpy
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.helpers.spark_package import DEPLOY

command = runpy.run_path(str(DEPLOY / "entrypoint.py"))["command"]

EXECUTOR = {
    "JAVA_HOME": "/java",
    "SPARK_HOME": "/opt/spark",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_9": "-Dname=two words",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_DRIVER_URL": "spark://driver",
    "SPARK_EXECUTOR_ID": "EXECID",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "app",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "pod",
}


def test_an_executor_gets_the_options_of_its_environment_in_order() -> None:
    *java, name = command(["executor"], EXECUTOR)[:8]
    assert java == [
        *("/java/bin/java", "-Dname=two words", "-Dlast=1", "-Xms1024m", "-Xmx1024m"),
        *("-cp", "/opt/spark/conf:/opt/spark/jars/*"),
    ]
    assert name == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    words = command(["executor"], EXECUTOR)[8:]
    options = dict(zip(words[::2], words[1::2], strict=True))
    assert options["--driver-url"] == "spark://driver"
    assert (options["--podName"], options["--hostname"]) == ("pod", "10.0.0.9")


def test_a_driver_is_submitted_and_another_command_runs_as_it_is() -> None:
    environ = {"SPARK_HOME": "/opt/spark", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"}
    assert command(["driver", "--class", "X", "fleet.py"], environ) == [
        *("/opt/spark/bin/spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.1"),
        *("--deploy-mode", "client", "--class", "X", "fleet.py"),
    ]
    assert command(["fieldpost-fleet", "--help"], {}) == ["fieldpost-fleet", "--help"]


def test_the_example_names_what_the_image_has() -> None:
    image = (DEPLOY / "Containerfile").read_text("utf-8")
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text("utf-8"))
    parts: dict[str, Any] = {part["kind"]: part for part in documents}
    pod = parts["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    script = next(word for word in container["args"] if word.endswith(".py"))
    assert script == "/opt/fieldpost-spark/fleet.py"
    assert "deploy/spark/fleet.py /opt/fieldpost-spark/\n" in image
    user = container["securityContext"]["runAsUser"]
    assert f"--uid {user} " in image
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted == {"conf": "/opt/spark/conf", "scratch": "/tmp"}  # noqa: S108
    assert {each["name"] for each in pod["volumes"]} == mounted.keys()
    assert pod["serviceAccountName"] == parts["ServiceAccount"]["metadata"]["name"]
    assert parts["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"
    defaults = dict(map(str.split, parts["ConfigMap"]["data"]["spark-defaults.conf"].splitlines()))
    assert defaults["spark.kubernetes.container.image"] == container["image"]
