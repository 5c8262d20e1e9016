# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libdeflate if libdeflate is found. Installed next to
# penstock-config.cmake, so that this project and its users search in the same way.
penstock_find_c_library(libdeflate libdeflate libdeflate::libdeflate_shared libdeflate.h deflate)
