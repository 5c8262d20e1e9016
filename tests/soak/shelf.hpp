// SPDX-License-Identifier: BSL-1.0
#pragma once

// The storage for the tokens of random runs: blobs in the objects of an unreliable store, behind a
// cache.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/store/cache/cached_store.hpp>

#include "support/temp_dir.hpp"

namespace soak {

/// Returns the number of tokens of a sample. The tokens count up from `first_token(index)`.
inline std::size_t tokens_of(std::uint64_t index) { return index * 7 % 11; }
inline std::uint16_t first_token(std::uint64_t index) {
  return static_cast<std::uint16_t>(index * 100);
}

/// A store in which each object holds the tokens of sixteen samples. If `fails_in` is not 0, one in
/// `fails_in` calls throws, except on a thread that reads a sample. A sample can therefore always
/// be read, even after another thread has failed to prefetch it.
class token_store {
 public:
  static constexpr std::uint64_t samples_each = 16;

  token_store(std::uint64_t samples, std::uint64_t fails_in) : fails_in_(fails_in) {
    for (std::uint64_t index = 0; index < samples; ++index) {
      if (index % samples_each == 0) objects_.emplace_back();
      std::vector<std::uint16_t>& to = objects_.back();
      blobs_.push_back({"o" + std::to_string(objects_.size() - 1), 2 * to.size(),
                        2 * tokens_of(index), static_cast<std::int64_t>(index)});
      for (std::size_t i = 0; i < tokens_of(index); ++i) {
        to.push_back(static_cast<std::uint16_t>(first_token(index) + i));
      }
    }
  }

  /// Returns the location of each sample.
  [[nodiscard]] const std::vector<penstock::stored_blob>& blobs() const { return blobs_; }

  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return 2 * tokens(object).size();
  }
  void read(const penstock::byte_range& range) const { read_many({&range, 1}); }
  void read_many(std::span<const penstock::byte_range> ranges) const {
    const bool fails = fails_in_ != 0 && calls_++ % fails_in_ == 0;
    std::this_thread::yield();
    if (fails && !reads_a_sample()) {
      throw penstock::file_unreadable(std::string{ranges[0].object}, ranges[0].offset, "bytes",
                                      "a failure that was asked for");
    }
    for (const auto& range : ranges) {
      const auto all = std::as_bytes(std::span{tokens(range.object)});
      if (range.offset + range.out.size() > all.size()) throw std::logic_error("beyond an object");
      if (range.out.empty()) continue;
      std::memcpy(range.out.data(), all.data() + range.offset, range.out.size());
    }
  }

  /// True while the calling thread reads a sample.
  [[nodiscard]] static bool& reads_a_sample() {
    thread_local bool reads = false;
    return reads;
  }

 private:
  [[nodiscard]] const std::vector<std::uint16_t>& tokens(std::string_view object) const {
    return objects_.at(static_cast<std::size_t>(std::stoul(std::string{object.substr(1)})));
  }

  std::uint64_t fails_in_;
  mutable std::atomic<std::uint64_t> calls_{0};
  std::vector<std::vector<std::uint16_t>> objects_;
  std::vector<penstock::stored_blob> blobs_;
};

/// Random options of a shelf.
struct shelf_config {
  std::uint64_t fails_in = 0;
  bool has_folder = false;
  penstock::cached_store_options cache;
  penstock::stored_blobs_options blobs;
};

/// The store and the cache in front of it. A shelf outlives several loaders.
class shelf {
 public:
  using cache_type = penstock::cached_store<penstock::detail::store_member<const token_store&>>;
  using blobs_type = penstock::stored_blobs<penstock::detail::store_member<const cache_type&>>;

  shelf(std::uint64_t samples, const shelf_config& how) : below_(samples, how.fails_in) {
    auto options = how.cache;
    if (how.has_folder) options.folder = folder_.emplace().path("blocks");
    cache_ = std::make_unique<cache_type>(below_, options);
  }

  [[nodiscard]] const cache_type& cache() const { return *cache_; }
  [[nodiscard]] const token_store& below() const { return below_; }
  /// Returns a view of the store's blobs for one loader.
  [[nodiscard]] std::unique_ptr<const blobs_type> open(const shelf_config& how) const {
    return std::make_unique<const blobs_type>(*cache_, below_.blobs(), how.blobs);
  }

 private:
  std::optional<test::temp_dir> folder_;
  token_store below_;
  std::unique_ptr<const cache_type> cache_;
};

/// Reads the tokens of a sample into `out`. Returns false if the number of tokens differs from the
/// size of `out`.
inline bool read_tokens(const shelf::blobs_type& from, std::uint64_t index,
                        std::span<std::uint16_t> out) {
  struct reading {
    reading() { token_store::reads_a_sample() = true; }
    ~reading() { token_store::reads_a_sample() = false; }
  } const scope;
  thread_local penstock::blob_buffer buffer;  // may refer to a block of a destroyed cache
  const auto bytes = from.bytes(index, buffer);
  if (bytes.size() != 2 * out.size()) return false;
  if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return true;
}

}  // namespace soak
