"""Build hook of the compiled wheel: mypyc compiles the modules that pyproject.toml lists.

It runs only if HATCH_BUILD_HOOK_ENABLE_CUSTOM is set; otherwise the wheel is pure Python. It writes
nothing to the source folder.
"""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from mypyc.build import mypycify
from setuptools import Distribution  # type: ignore[import-untyped]

LIBRARY: Final = Path("fieldpost", "lib")
"""The folder of `edge` and `sync` in the wheel, and of mypyc's library: a top-level module too."""


class CompiledModules(BuildHookInterface[Any]):
    """Compiles the modules of the option `modules`, which are patterns of paths."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the results to the wheel beside their sources."""
        self._folder = TemporaryDirectory()
        if version == "editable":
            return
        root, folder = Path(self.root), Path(self._folder.name)
        patterns = self.config["modules"]
        found = {path.relative_to(root) for pattern in patterns for path in root.glob(pattern)}
        with chdir(root):  # mypyc derives the modules' names from relative paths
            _compile([str(path) for path in sorted(found)], folder)
        for path in (folder / "lib").rglob("*.so"):
            build_data["force_include"][str(path)] = str(LIBRARY / path.relative_to(folder / "lib"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the results, which are in the wheel."""
        self._folder.cleanup()


def _compile(files: list[str], folder: Path) -> None:
    # The types of other packages are not needed, and the build environment may not have them.
    options = ["--config-file=", "--ignore-missing-imports", f"--cache-dir={os.devnull}"]
    level = os.environ.get("MYPYC_OPT_LEVEL", "3")  # of the C compiler
    extensions = mypycify(
        [*options, *files],
        opt_level=level,
        debug_level="0",
        target_dir=str(folder / "c"),
        group_name="fieldpost",
    )
    for extension in extensions:
        # Nobody reads the warnings, and without optimization they take most of the compiler's time.
        extension.extra_compile_args.append("-Wno-all")
        # Two builds give the same bytes: no path of a temporary folder, no debug information.
        extension.extra_compile_args.append(f"-ffile-prefix-map={folder}=.")
        extension.extra_link_args.append("-Wl,--strip-all")
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
    command.ensure_finalized()
    command.run()
