# SPDX-License-Identifier: BSL-1.0
# Defines the target penstock::libwebp if libwebp is found. Installed next to penstock-config.cmake, so
# that this project and its users search in the same way.
penstock_find_c_library(libwebp WebP WebP::webp webp/decode.h webp)
