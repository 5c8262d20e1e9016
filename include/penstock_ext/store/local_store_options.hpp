// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// How a `local_store` reads what the system does not hold in memory.
enum class read_engine {
  best,     ///< `uring`, and `threads` where the system refuses it
  uring,    ///< io_uring: many reads under way for the calling thread, which no thread waits for
  threads,  ///< by threads of the store, each of which waits for its read
  pread,    ///< one after the other on the calling thread
};

/// How a `local_store` reads its files.
struct local_store_options {
  /// How `read_many` reads what is not in memory. `read` always reads on the calling thread.
  read_engine engine = read_engine::best;
  /// Reads past the page cache (O_DIRECT), by way of aligned memory of the store where the caller's
  /// is not aligned to 4,096 bytes. For files that are larger than the memory and read once an
  /// epoch. A file system that has no such reads is read as ever: `stats().direct_refused`.
  bool direct = false;
  /// How many files stay open; with `direct` each takes two descriptors. From 1 on.
  std::size_t most_open = 256;
  /// With io_uring: how many reads one call has under way at a time. From 1 to 4,096.
  std::size_t depth = 64;
  /// With threads: how many there are, besides the calling one. From 1 to 1,024. They start with
  /// the first read that needs them; where the system refuses some, there are fewer.
  std::size_t threads = 15;
};

/// What a `local_store` has read so far. Reads count in pieces of at most 1 MiB, which do not pass
/// a multiple of 1 MiB in their file.
struct local_store_stats {
  std::uint64_t bytes = 0;            ///< bytes delivered
  std::uint64_t from_page_cache = 0;  ///< pieces that the system held in memory
  std::uint64_t by_uring = 0;         ///< pieces by io_uring
  std::uint64_t by_threads = 0;       ///< pieces by threads of the store
  std::uint64_t by_pread = 0;  ///< pieces by the calling thread, with all that the others left
  std::uint64_t opened = 0;    ///< how often a file was opened
  std::uint64_t direct_refused = 0;  ///< how often a file was opened that has no direct reads
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
