// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <penstock/penstock.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>

namespace bench {

/// A dataset of blobs with `Each` bytes, read as `decode_images` reads them. `Blobs` is a
/// `stored_blobs` or a reference to one.
template <class Blobs, std::size_t Each>
struct blob_samples {
  using record_type = penstock::record<penstock::field<"bytes", std::byte, Each>>;

  [[nodiscard]] std::uint64_t size() const { return blobs.size(); }
  void read_chunk(std::span<const std::uint64_t> indices,
                  penstock::batch_view<record_type> out) const {
    thread_local penstock::blob_buffer buffer;
    blobs.prefetch(indices.subspan(1));
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const auto bytes = blobs.bytes(indices[i], buffer);
      std::memcpy(penstock::get<"bytes">(out[i]).data(), bytes.data(), bytes.size());
    }
  }
  void prefetch_hint(std::span<const std::uint64_t> indices) const { blobs.prefetch(indices); }
  [[nodiscard]] std::uint64_t storage_size(std::uint64_t index) const {
    return blobs.storage_size(index);
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const { return blobs.prefetch_capacity(); }

  Blobs blobs;
};

}  // namespace bench
