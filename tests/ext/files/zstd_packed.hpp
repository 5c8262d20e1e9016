// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <zstd.h>

#include <cstddef>
#include <new>
#include <string>
#include <string_view>

namespace test {

/// Compresses `bytes` with libzstd into a single frame with a checksum.
inline std::string zstd_packed(std::string_view bytes, int level = 1) {
  ::ZSTD_CCtx* const packer = ::ZSTD_createCCtx();
  if (packer == nullptr) throw std::bad_alloc();
  ::ZSTD_CCtx_setParameter(packer, ZSTD_c_compressionLevel, level);
  ::ZSTD_CCtx_setParameter(packer, ZSTD_c_checksumFlag, 1);
  std::string packed(::ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ::ZSTD_compress2(packer, packed.data(), packed.size(), bytes.data(), bytes.size());
  ::ZSTD_freeCCtx(packer);
  if (::ZSTD_isError(size) != 0U) throw std::bad_alloc();
  packed.resize(size);
  return packed;
}

}  // namespace test
