"""The entry point of the image on Kubernetes: run a driver, an executor, or another command.

Spark on Kubernetes starts containers with the argument `driver` or `executor`, and describes what
to run in variables of the environment.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"

OPTIONS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""The options of an executor, and the variables with their values."""

JAVA_OPTION = "SPARK_JAVA_OPT_"
"""Start of the names of variables that have an option of the JVM each, in order of their number."""


def command(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return the command for the container's arguments `words`."""
    match words:
        case ["driver", *rest]:
            address = f"spark.driver.bindAddress={environ['SPARK_DRIVER_BIND_ADDRESS']}"
            submit = f"{environ['SPARK_HOME']}/bin/spark-submit"
            return [submit, "--conf", address, "--deploy-mode", "client", *rest]
        case ["executor"]:
            numbers = [int(name[len(JAVA_OPTION) :]) for name in environ if JAVA_OPTION in name]
            memory = environ["SPARK_EXECUTOR_MEMORY"]
            return [
                f"{environ['JAVA_HOME']}/bin/java",
                *(environ[f"{JAVA_OPTION}{number}"] for number in sorted(numbers)),
                *(f"-Xms{memory}", f"-Xmx{memory}"),
                *("-cp", "{0}/conf:{0}/jars/*".format(environ["SPARK_HOME"]), EXECUTOR),
                *(word for option, name in OPTIONS.items() for word in (option, environ[name])),
            ]
    return list(words)


if __name__ == "__main__":
    chosen = command(sys.argv[1:], os.environ)
    os.execvp(chosen[0], chosen)  # noqa: S606
