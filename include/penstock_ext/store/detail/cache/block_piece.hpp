// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/detail/cache/disk/block_file.hpp>
#include <penstock_ext/store/detail/cache/disk/block_folder.hpp>
#include <penstock_ext/store/detail/cache/memory_tier.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A block that a thread reads, for itself and for all that wait for it. Under the cache's mutex.
struct block_flight {
  shared_block bytes = nullptr;
  bool has_failed = false;
  const ::pid_t process = ::getpid();  ///< that of the thread
};

/// The part of a range that lies in one block.
struct block_piece {
  block_id id;
  block_key key;
  std::uint64_t number;      ///< of the block, as `block_number` has it
  std::size_t skipped;       ///< bytes of the block before the part
  std::span<std::byte> out;  ///< where the part goes
  bool is_counted = false;   ///< as a use of the block
  bool is_alone = false;     ///< its block is on the disk, and of no use in memory
  bool waits = true;         ///< for another thread that reads the block, unless one has failed
  /// What came of reading it from the disk by itself.
  std::optional<block_folder::found> tried = std::nullopt;
  shared_block bytes = nullptr;
  std::shared_ptr<block_flight> awaited = nullptr;
};

/// Whether the piece is where it goes, without its block.
[[nodiscard]] inline bool is_read_alone(const block_piece& one) noexcept {
  return one.tried == block_folder::found::whole;
}

/// Copies what `pieces` need of their blocks, which are there.
inline void copy_out(std::span<const block_piece> pieces) {
  for (const block_piece& one : pieces) {
    if (is_read_alone(one)) continue;
    std::memcpy(one.out.data(), one.bytes->all().data() + one.skipped, one.out.size());
  }
}

/// A block that this thread reads.
struct block_claim {
  const block_piece* of;
  std::shared_ptr<block_flight> flight;
  std::shared_ptr<block_bytes> bytes = nullptr;
  bool is_from_disk = false;
  bool may_be_written = true;  ///< to the disk: false where it may lie there already
  std::uint64_t next_use = 0;  ///< as known when it was published
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
