// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include <penstock_ext/bulk/bulk_file.hpp>

namespace test {

/// The size of a piece in bytes.
inline constexpr std::size_t page = 4096;
inline const penstock::cpu_device device;

/// Writes `text` to a file.
inline void put(const std::string& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

/// Returns the bytes of an upload.
inline std::string load(penstock::bulk_file_source source) {
  std::string text(source.size(), '\0');
  penstock::upload(device, device.inline_stream(), std::as_writable_bytes(std::span{text}),
                   std::move(source), {.workers = 3, .piece_bytes = page})
      .wait();
  return text;
}

}  // namespace test
