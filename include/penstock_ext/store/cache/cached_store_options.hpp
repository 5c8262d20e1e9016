// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How much a `cached_store` keeps, and where.
struct cached_store_options {
  /// What is read, kept and evicted as a whole: the bytes of an object from a multiple of this on.
  /// From 1 to 2^30. A read of less has the store below read all of its block.
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  /// How many bytes of blocks are kept in memory; 0: none. Each call that is under way holds up to
  /// 16 MiB besides, or a block if that is more, and each blob that is lent its block.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20;
  /// The folder for blocks on the disk, which is made if it is not there; "": none. Processes of
  /// one host may share it, and it is of use to the next run.
  std::string folder = {};
  /// How many bytes the files in `folder` may have. Each process looks how many there are after it
  /// has written a sixteenth of this: with n of them there may be n sixteenths more for a while.
  std::uint64_t disk_bytes = std::uint64_t{16} << 30;
  /// Which store is below: blocks of other names in `folder` are others' blocks. "": what the
  /// store's `root()` says, a folder as it was given or a URL; a store without one is not told from
  /// others. Another name where objects of a store that is no `versioned_store` have changed and
  /// kept their sizes.
  std::string store_name = {};
};

/// What a `cached_store` has done so far, and holds now. A block counts each time that a range
/// needs it.
struct cached_store_stats {
  std::uint64_t from_memory = 0;   ///< blocks that were in memory
  std::uint64_t from_others = 0;   ///< blocks that another range or thread was reading
  std::uint64_t from_disk = 0;     ///< blocks that were on the disk
  std::uint64_t from_store = 0;    ///< blocks that the store below had to read
  std::uint64_t memory_bytes = 0;  ///< of blocks in memory, now
  std::uint64_t disk_bytes = 0;    ///< of files on the disk, now, as far as is known
  std::uint64_t planned_uses = 0;  ///< blocks' uses to come, told or foreseen, now
  std::uint64_t written = 0;       ///< blocks written to the disk
  std::uint64_t damaged = 0;       ///< files on the disk that were removed: damaged, or out of date
  std::uint64_t disk_failures = 0;  ///< blocks that could not be written or read
  std::string disk_problem = {};    ///< the reason of the last of those, in the system's words
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
