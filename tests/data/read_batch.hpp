// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock/data/reader.hpp>

namespace test {

namespace ps = penstock;

/// A batch that owns its memory. The memory is initialized with 0xcd, to reveal elements that a
/// dataset does not write.
template <class Record>
class batch_memory {
 public:
  batch_memory(const ps::record_extents<Record>& lengths, std::size_t size)
      : layout_(std::make_unique<ps::batch_layout<Record>>(lengths, size)),
        bytes_(layout_->bytes() + 256, std::byte{0xcd}) {}

  ps::batch_view<Record> view() {
    void* begin = bytes_.data();
    std::size_t space = bytes_.size();
    auto* slab = static_cast<std::byte*>(std::align(256, layout_->bytes(), begin, space));
    return {slab, *layout_, 0, layout_->batch_size()};
  }

  template <ps::name Name>
  auto get() {
    return view().template get<Name>();
  }

 private:
  // Allocated on the heap, because views still refer to the layout after a move.
  std::unique_ptr<ps::batch_layout<Record>> layout_;
  std::vector<std::byte> bytes_;
};

/// Reads the samples `indices` of `data` as a single run.
template <ps::dataset D>
batch_memory<typename D::record_type> read_batch(const D& data,
                                                 const std::vector<std::uint64_t>& indices,
                                                 const ps::random_key& key = {}) {
  batch_memory<typename D::record_type> memory{ps::extents_of(data), indices.size()};
  ps::reader<D> reader{data};
  reader.read(indices, memory.view(), key);
  return memory;
}

/// Returns all elements of a field in memory order.
template <ps::name Name, class Memory>
auto values(Memory&& memory) {
  const auto flat = memory.template get<Name>().flat();
  return std::vector(flat.begin(), flat.end());
}

}  // namespace test
