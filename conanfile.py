# SPDX-License-Identifier: BSL-1.0
"""The Conan 2 recipe, for the tree that it lies in:

    conan create . --build=missing -s compiler.cppstd=20
"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class PenstockRecipe(ConanFile):
    name = "penstock"
    description = "Feeds GPUs: dataset, sampler, workers, pinned slots, overlapped transfer"
    license = "BSL-1.0"
    topics = ("gpu", "cuda", "data-loader", "training", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {f"with_{part}": [True, False] for part in ("cache", "gzip", "http", "jpeg", "json_lines", "lockfree", "mds", "png", "zstd")}
    default_options = {
        "with_cache": True,
        "with_gzip": True,
        "with_http": True,
        "with_jpeg": True,
        "with_json_lines": True,
        "with_lockfree": False,
        "with_mds": True,  # and penstock::safetensors, penstock::search
        "with_png": True,
        "with_zstd": True,
        "boost/*:header_only": True,
    }
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "docs/*", "include/*"

    def set_version(self):
        # The headers say which version they are.
        header = load(self, os.path.join(self.recipe_folder, "include/penstock/core/version.hpp"))
        self.version = ".".join(
            re.search(rf"#define PENSTOCK_VERSION_{part} (\d+)", header).group(1)
            for part in ("MAJOR", "MINOR", "PATCH")
        )

    def requirements(self):
        if self.options.with_lockfree:
            self.requires("boost/[>=1.74 <2]", transitive_headers=True)
        if self.options.with_gzip:
            self.requires("zlib/[>=1.2.11 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.with_http:
            self.requires("libcurl/[>=7.85 <9]", transitive_headers=True, transitive_libs=True)
            self.requires("pugixml/[>=1.11 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.with_jpeg:
            self.requires("libjpeg-turbo/[>=2.1 <4]", transitive_headers=True, transitive_libs=True)
        if self.options.with_json_lines:
            self.requires("simdjson/[>=3 <5]", transitive_headers=True, transitive_libs=True)
        if self.options.with_mds:
            self.requires("nlohmann_json/[>=3.10 <4]", transitive_headers=True)
        if self.options.with_http or self.options.with_mds:
            self.requires("openssl/[>=3 <4]", transitive_headers=True, transitive_libs=True)
        if self.options.with_cache or self.options.with_mds:
            self.requires("xxhash/[>=0.8 <1]", transitive_headers=True, transitive_libs=True)
        if self.options.with_png:
            self.requires("libpng/[>=1.6.37 <2]", transitive_headers=True, transitive_libs=True)
        if self.options.with_zstd:
            self.requires("zstd/[>=1.4 <2]", transitive_headers=True, transitive_libs=True)

    def validate(self):
        try:
            check_min_cppstd(self, 20)
        except ConanInvalidConfiguration as reason:
            raise ConanInvalidConfiguration(f"{reason} Pass -s compiler.cppstd=20.") from None

    def layout(self):
        cmake_layout(self)

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        for part in (
            "BUILD_TESTS", "BUILD_BENCH", "BUILD_EXAMPLES", "NVIMGCODEC", "PARQUET", "TORCH"
        ):
            toolchain.cache_variables[f"PENSTOCK_{part}"] = False
        toolchain.cache_variables["CMAKE_DISABLE_FIND_PACKAGE_HDF5"] = True
        toolchain.cache_variables["CMAKE_DISABLE_FIND_PACKAGE_SndFile"] = True
        toolchain.cache_variables["CMAKE_DISABLE_FIND_PACKAGE_WebP"] = True
        toolchain.cache_variables["PENSTOCK_LOCKFREE"] = bool(self.options.with_lockfree)
        for package, wanted in (
            ("ZLIB", self.options.with_gzip),
            ("CURL", self.options.with_http),
            ("JPEG", self.options.with_jpeg),
            ("simdjson", self.options.with_json_lines),
            ("nlohmann_json", self.options.with_mds),
            ("PNG", self.options.with_png),
            ("xxHash", self.options.with_cache or self.options.with_mds),
            ("zstd", self.options.with_zstd),
        ):
            toolchain.cache_variables[f"CMAKE_DISABLE_FIND_PACKAGE_{package}"] = not wanted
        toolchain.generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_id(self):
        # Headers only: of all that a profile says, the options alone change what is packaged.
        self.info.settings.clear()
        self.info.requires.clear()

    def package_info(self):
        # Our own CMake package knows the components (cache, gzip, http, jpeg, json_lines, lockfree, mds, png, safetensors, search, zstd, cuda, compiled_cuda), so CMakeDeps writes none.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "penstock")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.system_libs = ["pthread"]
