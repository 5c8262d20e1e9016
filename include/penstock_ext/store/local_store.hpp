// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/detail/local/open_files.hpp>
#include <penstock_ext/store/detail/local/piece_reader.hpp>
#include <penstock_ext/store/detail/local/read_threads.hpp>
#include <penstock_ext/store/detail/local/ring_calls.hpp>
#include <penstock_ext/store/detail/local/root_folder.hpp>
#include <penstock_ext/store/detail/require_inside.hpp>
#include <penstock_ext/store/local_store_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// The files below a folder as a `batching_store`: objects are named by their paths from there.
///
///     local_store disk{"/data/train", {.engine = read_engine::best}};
///     disk.read_many(ranges);          // all under way at once
///
/// No name leads to a file outside of the folder, by `..` or by a link: `object_name_error`. What
/// the system holds in memory is copied from there; the rest is read by io_uring, where the system
/// has it, else by threads. `engine()` says which, and `stats()` what each has read.
///
/// A file is as it was when the store first opened it: one that was written to since, or replaced
/// and opened again, gives `file_changed`. Takes 150 bytes and the name for each file that was ever
/// read. Movable, not copyable. Reading is thread-safe; in a child made by `fork()` too, if no
/// other thread was reading then.
///
/// `Calls`: how the system is asked for io_uring, for tests.
template <class Calls = detail::ring_calls>
class basic_local_store {
 public:
  /// Over the folder `root`. Throws `file_unreadable`, and `option_error` for options that mean
  /// nothing, and where `engine` is `uring` and the system refuses it.
  explicit basic_local_store(std::string root, const local_store_options& options = {},
                             Calls calls = {})
      : state_(std::make_unique<state>(std::move(root), checked(options), std::move(calls))) {}

  /// How many bytes the file `object` has. Throws `object_name_error`, `file_unreadable`,
  /// `file_changed`.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return state_->files.open(object)->size();
  }

  /// That and when it was last written to, in nanoseconds: see `versioned_store`.
  [[nodiscard]] object_state state_of(std::string_view object) const {
    const detail::file_stamp stamp = state_->files.open(object)->stamp;
    return {stamp.size, std::to_string(stamp.seconds) + '.' + std::to_string(stamp.nanoseconds)};
  }

  /// Reads a range on the calling thread. Throws as `read_many`.
  void read(const byte_range& range) const { state_->read({&range, 1}, true); }

  /// Reads all of `ranges`, side by side. Throws `object_name_error`, `file_unreadable`,
  /// `file_truncated` for a range that reaches beyond the end of its file, and `file_changed`: for
  /// the first range of which that is so. Nothing is written to any more then.
  void read_many(std::span<const byte_range> ranges) const {
    // Of so many at a time, so that no more files are open.
    const std::size_t most = state_->options.most_open;
    for (; !ranges.empty(); ranges = ranges.subspan((std::min)(most, ranges.size()))) {
      state_->read(ranges.first((std::min)(most, ranges.size())), false);
    }
  }

  /// The folder, as it was given.
  [[nodiscard]] const std::string& root() const noexcept { return state_->files.root().path(); }
  /// How `read_many` reads what is not in memory: never `best`.
  [[nodiscard]] read_engine engine() const noexcept { return state_->engine; }
  /// Why `best` became `threads`, in the system's words; "" where it did not.
  [[nodiscard]] const std::string& engine_problem() const noexcept { return state_->problem; }
  /// What was read so far. From any thread.
  [[nodiscard]] local_store_stats stats() const noexcept { return state_->stats(); }

 private:
  using reader = detail::piece_reader<Calls>;

  static const local_store_options& checked(const local_store_options& options) {
    const auto require = [](std::string_view name, std::size_t value, std::size_t most) {
      if (value < 1 || value > most) {
        throw option_error(name,
                           std::to_string(value) + " is not from 1 to " + std::to_string(most));
      }
    };
    require("most_open", options.most_open, std::size_t{1} << 30);
    require("depth", options.depth, 4096);
    require("threads", options.threads, 1024);
    return options;
  }

  struct state {
    state(std::string root, const local_store_options& wishes, Calls with)
        : options(wishes),
          calls(std::move(with)),
          files(detail::root_folder{std::move(root)}, options.most_open, options.direct),
          threads(options.threads) {
      const bool may_use_ring =
          options.engine == read_engine::best || options.engine == read_engine::uring;
      engine = may_use_ring ? read_engine::uring : options.engine;
      if (!may_use_ring) return;
      auto first = make();
      if (first->ring_problem() == 0) {
        give_back(std::move(first));
        return;
      }
      problem = "io_uring is refused: " + std::system_category().message(first->ring_problem());
      if (options.engine == read_engine::uring) {
        throw option_error("engine", problem + ": take read_engine::best");
      }
      engine = read_engine::threads;
    }

    [[nodiscard]] std::unique_ptr<reader> make() {
      return std::make_unique<reader>(engine, static_cast<unsigned>(options.depth), calls,
                                      engine == read_engine::pread ? nullptr : &threads);
    }
    [[nodiscard]] std::unique_ptr<reader> take() {
      {
        const std::lock_guard lock{mutex};
        if (!readers.empty()) {
          auto one = std::move(readers.back());
          readers.pop_back();
          return one;
        }
      }
      return make();
    }
    void give_back(std::unique_ptr<reader> one) {
      const std::lock_guard lock{mutex};
      readers.push_back(std::move(one));
    }

    void read(std::span<const byte_range> ranges, bool is_alone) {
      std::vector<detail::open_files::file> opened;
      std::vector<detail::local_piece> pieces;
      std::vector<std::size_t> range_of;
      std::uint64_t bytes = 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const byte_range& range = ranges[i];
        const bool is_same = i > 0 && range.object == ranges[i - 1].object;
        opened.push_back(is_same ? opened.back() : files.open(range.object));
        detail::require_inside(range, opened.back()->size(),
                               [&] { return files.root().path_of(range.object); });
        cut(range, *opened.back(), pieces);
        range_of.resize(pieces.size(), i);
        bytes += range.out.size();
      }
      auto with = take();
      add(with->read(pieces, is_alone), bytes);
      give_back(std::move(with));
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        if (!pieces[i].read.is_whole()) fail(ranges[range_of[i]].object, pieces[i]);
      }
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        const bool is_same = i > 0 && opened[i] == opened[i - 1];
        if (!is_same) files.require_unchanged(ranges[i].object, *opened[i]);
      }
    }

    // At multiples of a size in the file, so that direct reads don't overlap.
    static void cut(const byte_range& range, const detail::open_file_pair& file,
                    std::vector<detail::local_piece>& pieces) {
      constexpr std::uint64_t most = std::uint64_t{1} << 20;
      std::span<std::byte> left = range.out;
      for (std::uint64_t at = range.offset; !left.empty();) {
        const auto size =
            static_cast<std::size_t>(std::min<std::uint64_t>(most - at % most, left.size()));
        pieces.push_back({&file, {file.cached.get(), at, left.data(), size, size}});
        left = left.subspan(size);
        at += size;
      }
    }

    [[noreturn]] void fail(std::string_view object, const detail::local_piece& piece) const {
      const std::uint64_t at = piece.read.offset + piece.read.done;
      const std::string path = files.root().path_of(object);
      if (piece.read.error != 0) {
        throw file_unreadable(path, at, "a readable file",
                              std::system_category().message(piece.read.error));
      }
      throw file_changed(path, at,
                         "a file of " + std::to_string(piece.from->size()) +
                             " bytes, as when the store first opened it",
                         "one that ends here: make a new store when all files are whole");
    }

    void add(const detail::piece_counts& counts, std::uint64_t more) noexcept {
      const std::lock_guard lock{mutex};
      bytes_read += more;
      sum.from_page_cache += counts.from_page_cache;
      sum.by_uring += counts.by_uring;
      sum.by_threads += counts.by_threads;
      sum.by_pread += counts.by_pread;
    }
    [[nodiscard]] local_store_stats stats() noexcept {
      const std::lock_guard lock{mutex};
      return {bytes_read,   sum.from_page_cache, sum.by_uring,          sum.by_threads,
              sum.by_pread, files.opened(),      files.direct_refused()};
    }

    const local_store_options options;
    const Calls calls;
    detail::open_files files;
    detail::read_threads threads;
    read_engine engine = read_engine::pread;
    std::string problem;
    std::mutex mutex;  // guards what follows; held for no call of the system
    std::vector<std::unique_ptr<reader>> readers;  // that nobody uses
    std::uint64_t bytes_read = 0;
    detail::piece_counts sum;
  };

  std::unique_ptr<state> state_;
};

/// The store of files below a folder, see `basic_local_store`.
using local_store = basic_local_store<>;

static_assert(batching_store<local_store>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
