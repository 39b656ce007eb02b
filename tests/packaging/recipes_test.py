#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recipes of packaging/ and CITATION.cff agree with CMakeLists.txt: the version, and each option that they pass.

usage: recipes_test.py PROJECT CMAKE

The recipes are run, with substitutes for the functions of Spack and vcpkg.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # noqa: E402  # pylint: disable=wrong-import-position

PROJECT, CMAKE = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
SOURCES = [PROJECT / "CMakeLists.txt", *sorted((PROJECT / "cmake").glob("*.cmake"))]
TEXT = "\n".join(path.read_text() for path in SOURCES)
VERSION = re.search(r"^project\([^)]*VERSION\s+(\d+\.\d+\.\d+)", TEXT, re.M)[1]
OPTIONS = set(re.findall(r"^option\((GLOBALQ_\w+)", TEXT, re.M)) | set(re.findall(r"^set\((GLOBALQ_\w+)\n(?:[^()]|\([^()]*\))*?CACHE ", TEXT, re.M))
# What an installation never has: all must be switched off, whatever the default.
OFF = {"GLOBALQ_BUILD_TESTS", "GLOBALQ_BUILD_BENCH", "GLOBALQ_BUILD_EXAMPLES", "GLOBALQ_BUILD_DOCS", "GLOBALQ_BUILD_ADVISE"}
# What an installation may have: a recipe decides each, since CMake would take what it finds.
DECIDED = {"GLOBALQ_BUILD_COMPILED", "GLOBALQ_BUILD_C", "GLOBALQ_ENABLE_MPI", "GLOBALQ_ENABLE_NCCL", "GLOBALQ_ENABLE_EIGEN"}


def expect_equal(have, want, what: str) -> None:
    if have != want:
        raise runner.Failed(f"{what}: {have} instead of {want}")


def check(given: dict, enabled: set) -> None:
    """The options of one configuration: all exist, all of OFF are off, all of DECIDED are there, and on are those of @p enabled."""
    if unknown := set(given) - OPTIONS:
        raise runner.Failed(f"CMakeLists.txt has no option {', '.join(sorted(unknown))}")
    expect_equal({name for name in OFF if given.get(name) == "OFF"}, OFF, "switched off")
    if missing := DECIDED - set(given):
        raise runner.Failed(f"left to what CMake finds: {', '.join(sorted(missing))}")
    expect_equal({name for name in DECIDED if given[name] == "ON"}, enabled, "switched on")


def spack_recipe() -> tuple:
    """The class of package.py, its versions and its variants."""
    versions, variants = [], {}

    class CMakePackage:
        """As much of Spack's as the recipe uses."""

        def __init__(self, chosen: set):
            self.chosen = chosen

        @staticmethod
        def define(name: str, value: bool) -> str:
            return f"-D{name}:BOOL={'ON' if value else 'OFF'}"

        def define_from_variant(self, name: str, variant: str) -> str:
            if variant not in variants:
                raise runner.Failed(f"there is no variant {variant}")
            return self.define(name, variant in self.chosen)

    module = types.ModuleType("spack.package")
    module.version = lambda number, **_: versions.append(number)
    module.variant = lambda name, default, description: variants.setdefault(name, (default, description))
    module.when = lambda _: contextlib.nullcontext()
    for directive in ("license", "depends_on", "conflicts"):
        setattr(module, directive, lambda *_, **__: None)
    systems = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    systems.CMakePackage = CMakePackage
    names = ["spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"]
    stand_ins = {**{name: types.ModuleType(name) for name in names}, module.__name__: module, systems.__name__: systems}
    sys.modules.update(stand_ins)
    try:
        namespace = {}
        path = PROJECT / "packaging/spack/package.py"
        exec(compile(path.read_text(), str(path), "exec"), namespace)  # pylint: disable=exec-used
    finally:
        for name in stand_ins:
            del sys.modules[name]
    return namespace["Globalq"], versions, variants


def spack() -> None:
    recipe, versions, variants = spack_recipe()
    expect_equal(versions, [VERSION], "version")
    option_of = {"compiled": "GLOBALQ_BUILD_COMPILED", "c": "GLOBALQ_BUILD_C", "mpi": "GLOBALQ_ENABLE_MPI", "nccl": "GLOBALQ_ENABLE_NCCL",
                 "eigen": "GLOBALQ_ENABLE_EIGEN"}
    expect_equal(set(variants), set(option_of), "variants")
    for chosen in [set(), *({name} for name in variants), set(variants)]:
        given = dict(re.fullmatch(r"-D(\w+):BOOL=(ON|OFF)", argument).groups() for argument in recipe(chosen).cmake_args())
        check(given, {option_of[name] for name in chosen})


def portfile_options(features: list) -> dict:
    """Runs portfile.cmake; returns the options that it configures with."""
    script = f"""
      cmake_minimum_required(VERSION 3.25)
      set(FEATURES "{';'.join(features)}")
      set(CURRENT_PACKAGES_DIR nowhere)
      set(PORT globalq)
      function(vcpkg_check_features)
        cmake_parse_arguments(GIVEN "" "OUT_FEATURE_OPTIONS" "FEATURES" ${{ARGN}})
        if(GIVEN_UNPARSED_ARGUMENTS)
          message(FATAL_ERROR "vcpkg_check_features: ${{GIVEN_UNPARSED_ARGUMENTS}}")
        endif()
        set(options "")
        while(GIVEN_FEATURES)
          list(POP_FRONT GIVEN_FEATURES feature option)
          if(feature IN_LIST FEATURES)
            list(APPEND options -D${{option}}=ON)
          else()
            list(APPEND options -D${{option}}=OFF)
          endif()
        endwhile()
        set(${{GIVEN_OUT_FEATURE_OPTIONS}} ${{options}} PARENT_SCOPE)
      endfunction()
      function(vcpkg_cmake_configure)
        cmake_parse_arguments(GIVEN "" "SOURCE_PATH" "OPTIONS" ${{ARGN}})
        message(STATUS "source ${{GIVEN_SOURCE_PATH}}")
        foreach(option IN LISTS GIVEN_OPTIONS)
          message(STATUS "option ${{option}}")
        endforeach()
      endfunction()
      function(vcpkg_cmake_install)
        message(STATUS "installed")
      endfunction()
      function(vcpkg_cmake_config_fixup)
        message(STATUS "config ${{ARGN}}")
      endfunction()
      function(vcpkg_install_copyright)
        cmake_parse_arguments(GIVEN "" "" "FILE_LIST" ${{ARGN}})
        message(STATUS "copyright ${{GIVEN_FILE_LIST}}")
      endfunction()
      macro(file) # nothing is written
        message(STATUS "file ${{ARGV}}")
      endmacro()
      include("{PROJECT}/packaging/vcpkg/portfile.cmake")
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.cmake"
        path.write_text(script)
        ran = subprocess.run([CMAKE, "-P", path], capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != 0:
        raise runner.Failed(f"portfile.cmake failed: {ran.stdout}{ran.stderr}")
    lines = ran.stdout.replace("-- ", "").splitlines()
    expect_equal([line for line in lines if line.startswith(("source ", "copyright ", "config "))],
                 [f"source {PROJECT}", "config CONFIG_PATH;lib/cmake/globalq", f"copyright {PROJECT}/LICENSE"], "what it does")
    return dict(re.fullmatch(r"option -D(\w+)=(ON|OFF)", line).groups() for line in lines if line.startswith("option "))


def vcpkg() -> None:
    manifest = json.loads((PROJECT / "packaging/vcpkg/vcpkg.json").read_text())
    expect_equal(manifest["version-semver"], VERSION, "version")
    expect_equal(manifest["license"], "Apache-2.0", "license")
    option_of = {"c": "GLOBALQ_BUILD_C", "eigen": "GLOBALQ_ENABLE_EIGEN", "mpi": "GLOBALQ_ENABLE_MPI"}
    expect_equal(set(manifest["features"]), set(option_of), "features")
    for chosen in [[], *([name] for name in option_of), list(option_of)]:
        check(portfile_options(["core", *chosen]), {"GLOBALQ_BUILD_COMPILED", *(option_of[name] for name in chosen)})


def targets_in_usage_exist() -> None:
    text = (PROJECT / "packaging/vcpkg/usage").read_text()
    exported = set(re.findall(r"EXPORT_NAME (\w+)", TEXT)) | {"globalq"}
    for name in re.findall(r"globalq::(\w+)", text):
        if name not in exported:
            raise runner.Failed(f"usage names globalq::{name}, which is not installed")


def citation() -> None:
    text = (PROJECT / "CITATION.cff").read_text()
    expect_equal(re.search(r"^version: (\S+)$", text, re.M)[1], VERSION, "version")
    expect_equal(re.search(r"^license: (\S+)$", text, re.M)[1], "Apache-2.0", "license")


sys.exit(runner.run("packaging_recipes", [(case.__name__, case) for case in (spack, vcpkg, targets_in_usage_exist, citation)]))
