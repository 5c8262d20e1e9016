# SPDX-License-Identifier: BSL-1.0
"""Checks conanfile.py without Conan: conan_recipe.py <the repository> <version>

Stand-ins replace the few names that the recipe imports. The options set by the recipe must match
the options of CMakeLists.txt.
"""

import fnmatch
import importlib.util
import os
import sys
import types

root, version = sys.argv[1:]
variables = {}
steps = []


def module(name, **names):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(names)


class Toolchain:
    def __init__(self, recipe):
        self.cache_variables = variables

    def generate(self):
        steps.append("toolchain")


class Deps:
    def __init__(self, recipe):
        pass

    def generate(self):
        steps.append("deps")


class Build:
    def __init__(self, recipe):
        pass

    def configure(self):
        steps.append("configure")

    def install(self):
        steps.append("install")


def copy(recipe, pattern, source, target):
    assert os.path.exists(os.path.join(source, pattern)), f"no {pattern} in {source}"
    steps.append(f"copy {pattern}")


def load(recipe, path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class InvalidConfiguration(Exception):
    pass


def check_min_cppstd(recipe, least):
    steps.append(f"C++{least}")
    if recipe.standard < least:
        raise InvalidConfiguration("the profile has C++17.")


module("conan", ConanFile=type("ConanFile", (), {}))
module("conan.tools")
module("conan.errors", ConanInvalidConfiguration=InvalidConfiguration)
module("conan.tools.build", check_min_cppstd=check_min_cppstd)
module("conan.tools.cmake", CMake=Build, CMakeDeps=Deps, CMakeToolchain=Toolchain,
       cmake_layout=lambda recipe: None)
module("conan.tools.files", copy=copy, load=load)

spec = importlib.util.spec_from_file_location("conanfile", os.path.join(root, "conanfile.py"))
conanfile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(conanfile)


class Anything:
    """An object that accepts every attribute access and every call."""

    def __getattr__(self, name):
        return Anything()

    def __call__(self, *arguments, **named):
        return None


# For each part, the CMake package name that disables it, and its requirements.
parts = {"cache": ("xxHash", "xxhash"), "gzip": ("ZLIB", "zlib"), "http": ("CURL", "libcurl pugixml openssl"),
         "jpeg": ("JPEG", "libjpeg-turbo"), "json_lines": ("simdjson", "simdjson"), "mds": ("nlohmann_json", "nlohmann_json openssl xxhash"),
         "png": ("PNG", "libpng"), "zstd": ("zstd", "zstd")}
for wanted in ({*parts, "lockfree"}, {"cache"}, {"gzip"}, {"http"}, {"jpeg"}, {"json_lines"}, {"lockfree"}, {"mds"}, {"png"}, {"zstd"}, set()):
    recipe = conanfile.PenstockRecipe()
    recipe.recipe_folder = recipe.source_folder = root
    recipe.package_folder = os.path.join(root, "none")
    recipe.options = types.SimpleNamespace(**{f"with_{part}": part in wanted for part in [*parts, "lockfree"]})
    recipe.standard = 20
    recipe.info = Anything()
    recipe.cpp_info = Anything()
    needed = []
    recipe.requires = lambda reference, **traits: needed.append(reference.split("/")[0])

    steps.clear()
    recipe.set_version()
    assert recipe.version == version, f"conanfile.py gives {recipe.version}, not {version}"
    recipe.requirements()
    expected = {"boost"} if "lockfree" in wanted else set()
    for part in parts:
        expected.update(parts[part][1].split() if part in wanted else [])
    assert sorted(needed) == sorted(expected), needed
    for step in ("validate", "layout", "generate", "build", "package", "package_id", "package_info"):
        getattr(recipe, step)()
    expected = ["C++20", "deps", "toolchain", "configure", "install", "copy LICENSE"]
    assert steps == expected, steps
    assert variables["PENSTOCK_LOCKFREE"] is ("lockfree" in wanted)
    kept = wanted | ({"cache"} if "mds" in wanted else set())  # mds uses the library of cache
    for part in parts:
        assert variables[f"CMAKE_DISABLE_FIND_PACKAGE_{parts[part][0]}"] is (part not in kept)

cmake = load(None, os.path.join(root, "CMakeLists.txt"))
for name in variables:
    assert not name.startswith("PENSTOCK_") or f"option({name} " in cmake, f"no option {name}"
assert conanfile.PenstockRecipe.name == "penstock"

# The default profile of a compiler may select C++17, so the command and the error name the setting.
command = "conan create . --build=missing -s compiler.cppstd=20"
assert command in conanfile.__doc__ and command in load(None, os.path.join(root, "docs/install.md"))
recipe.standard = 17
try:
    recipe.validate()
    raise AssertionError("C++17 is not rejected")
except InvalidConfiguration as error:
    assert str(error) == "the profile has C++17. Pass -s compiler.cppstd=20.", error

# Conan must export all files that a configuration without tests reads.
exported = conanfile.PenstockRecipe.exports_sources
for path in ("CMakeLists.txt", "LICENSE", "cmake/penstock_install.cmake", "docs/Doxyfile.in",
             "include/penstock/penstock.hpp", "cmake/penstock.cpp",
             "cmake/penstock_cuda.cpp"):
    assert os.path.exists(os.path.join(root, path)), path
    assert any(fnmatch.fnmatch(path, pattern) for pattern in exported), f"{path} is not exported"

print(f"-- conanfile.py, version {version}: fine")
