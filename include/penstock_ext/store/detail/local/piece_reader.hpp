// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/detail/local/file_read.hpp>
#include <penstock_ext/store/detail/local/open_files.hpp>
#include <penstock_ext/store/detail/local/read_ring.hpp>
#include <penstock_ext/store/detail/local/read_threads.hpp>
#include <penstock_ext/store/local_store_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A part of a range that is read by itself, of 1 MiB at most.
struct local_piece {
  const open_file_pair* from;
  file_read read;  ///< by way of the page cache
};

/// How many pieces came from where.
struct piece_counts {
  std::uint64_t from_page_cache = 0;
  std::uint64_t by_uring = 0;
  std::uint64_t by_threads = 0;
  std::uint64_t by_pread = 0;
};

/// Reads pieces of files: what is in memory at once, and the rest by an engine. What that leaves,
/// for whatever reason, the calling thread reads by pread, which has the last word on what is
/// wrong. One thread at a time.
template <class Calls>
class piece_reader {
 public:
  /// `engine` is none but `pread` where `threads` is null and the ring is refused.
  piece_reader(read_engine engine, unsigned depth, Calls calls, read_threads* threads)
      : depth_(depth), calls_(std::move(calls)), threads_(threads) {
    if (engine == read_engine::uring) ring_.emplace(depth_, calls_);
  }

  /// Why the system refuses a ring: its number; 0 where it does not, or was not asked.
  [[nodiscard]] int ring_problem() const noexcept { return ring_ ? ring_->problem() : 0; }

  /// Reads `pieces`, and returns when none is under way any more. Those that are not whole then
  /// have ended too early, or have an error. `is_alone`: on the calling thread and nothing else.
  [[nodiscard]] piece_counts read(std::span<local_piece> pieces, bool is_alone) {
    piece_counts counts;
    while (!pieces.empty()) pieces = pieces.subspan(read_some(pieces, is_alone, counts));
    return counts;
  }

 private:
  // What devices with blocks of up to 4 KiB ask for.
  static constexpr std::size_t alignment = 4096;
  // How much is read past the page cache at a time by way of memory of our own.
  static constexpr std::size_t most_room = std::size_t{8} << 20;

  struct cold_piece {
    std::size_t piece;
    std::size_t skipped;  // bytes of the wider, aligned read that come before the piece
    std::size_t room;     // where in our memory they lie
    bool is_direct;
    bool has_room;  // else they are read straight to their place
  };

  // How many pieces it has read.
  std::size_t read_some(std::span<local_piece> pieces, bool is_alone, piece_counts& counts) {
    cold_.clear();
    reads_.clear();
    std::size_t room = 0;
    std::size_t at = 0;
    for (; at < pieces.size(); ++at) {
      local_piece& piece = pieces[at];
      if (piece.from->direct.get() >= 0) {
        if (room > 0 && room + wide(piece.read).size > most_room) break;
        add_direct(piece, at, room);
        continue;
      }
      read_cached(piece.read);
      if (piece.read.is_whole()) {
        ++counts.from_page_cache;
        continue;
      }
      cold_.push_back({at, 0, 0, false, false});
      reads_.push_back(piece.read);
    }
    take_room(room);
    read_cold(is_alone, counts);
    for (std::size_t i = 0; i < cold_.size(); ++i) finish(pieces[cold_[i].piece], i, counts);
    return at;
  }

  // The read that begins and ends at multiples of the alignment.
  static file_read wide(const file_read& read) noexcept {
    const std::size_t skipped = read.offset % alignment;
    const std::size_t size = (skipped + read.size + alignment - 1) / alignment * alignment;
    return {read.file, read.offset - skipped, nullptr, size, skipped + read.size};
  }

  void add_direct(const local_piece& piece, std::size_t at, std::size_t& room) {
    file_read read = wide(piece.read);
    read.file = piece.from->direct.get();
    const bool is_aligned = read.offset == piece.read.offset && read.size == piece.read.size &&
                            reinterpret_cast<std::uintptr_t>(piece.read.out) % alignment == 0;
    if (is_aligned) read.out = piece.read.out;
    const auto skipped = static_cast<std::size_t>(piece.read.offset - read.offset);
    cold_.push_back({at, skipped, room, true, !is_aligned});
    reads_.push_back(read);
    if (!is_aligned) room += read.size;
  }

  void take_room(std::size_t bytes) {
    if (bytes > room_bytes_) {
      room_.reset();
      room_bytes_ = 0;
      room_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{alignment})));
      room_bytes_ = bytes;
    }
    for (std::size_t i = 0; i < cold_.size(); ++i) {
      if (cold_[i].has_room) reads_[i].out = room_.get() + cold_[i].room;
    }
  }

  void read_cold(bool is_alone, piece_counts& counts) {
    // A single read has nothing to overlap with.
    const bool is_single = is_alone || reads_.size() < 2;
    if (!is_single && ring_) {
      if (!ring_->is_ours()) ring_.emplace(depth_, calls_);
      if (ring_->problem() == 0) {
        ring_->read(reads_);
        counts.by_uring += whole();
        return;
      }
    }
    if (!is_single && threads_ != nullptr) {
      threads_->read(reads_);
      counts.by_threads += whole();
    }
  }

  // How many of the pieces have been read.
  [[nodiscard]] std::uint64_t whole() const noexcept {
    std::uint64_t count = 0;
    for (const file_read& read : reads_) count += read.is_whole() ? 1U : 0U;
    return count;
  }

  // Takes what was read of a piece to its place, and reads what is left.
  void finish(local_piece& piece, std::size_t i, piece_counts& counts) {
    const cold_piece& cold = cold_[i];
    file_read& read = reads_[i];
    const bool had_all = read.is_whole();
    if (!had_all && cold.is_direct) read_rest(read);
    const std::size_t got = read.done - (std::min)(read.done, cold.skipped);
    piece.read.done = (std::min)(got, piece.read.size);
    if (cold.has_room && piece.read.done > 0) {
      std::memcpy(piece.read.out, read.out + cold.skipped, piece.read.done);
    }
    if (had_all) return;
    ++counts.by_pread;
    // By way of the page cache, which reads what direct reads have no alignment for.
    read_rest(piece.read);
  }

  struct aligned_delete {
    void operator()(std::byte* bytes) const noexcept {
      ::operator delete (bytes, std::align_val_t{alignment});
    }
  };

  unsigned depth_;
  Calls calls_;
  read_threads* threads_;
  std::optional<read_ring<Calls>> ring_;
  std::vector<cold_piece> cold_;
  std::vector<file_read> reads_;  // one for each of `cold_`
  std::unique_ptr<std::byte, aligned_delete> room_;
  std::size_t room_bytes_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
