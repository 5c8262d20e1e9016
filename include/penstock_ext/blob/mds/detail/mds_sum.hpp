// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <penstock_ext/blob/support/shard_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/hex_digits.hpp>
#include <penstock_ext/files/support/sha1.hpp>
#include <penstock_ext/files/support/sha256.hpp>
#include <penstock_ext/files/support/xxh64.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A sum of a file as index.json has it: what it is called, and its hexadecimal digits.
struct mds_sum {
  std::string name = {};
  std::string digits = {};

  friend bool operator==(const mds_sum&, const mds_sum&) = default;
};

/// The sums that are known, the quickest first, as Mosaic calls them.
inline constexpr std::array<std::string_view, 3> known_mds_sums{"xxh64", "sha1", "sha256"};

/// Takes a sum of one of these names over bytes that come piece by piece.
class mds_summer {
 public:
  /// A summer of this name; nothing for one that is not known.
  [[nodiscard]] static std::optional<mds_summer> of(std::string_view name) {
    if (name == known_mds_sums[0]) return mds_summer{xxh64{}};
    if (name == known_mds_sums[1]) return mds_summer{sha1{}};
    if (name == known_mds_sums[2]) return mds_summer{sha256{}};
    return std::nullopt;
  }

  /// Adds `bytes` at the end.
  void add(std::span<const std::byte> bytes) {
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    std::visit([&](auto& sum) { sum.add(text); }, sum_);
  }

  /// The digits of the sum; nothing is to be added after it.
  [[nodiscard]] std::string digits() {
    if (xxh64* const quick = std::get_if<xxh64>(&sum_)) {
      std::array<std::uint8_t, 8> bytes{};
      for (unsigned i = 0; i < 8; ++i) {
        bytes[i] = static_cast<std::uint8_t>(quick->sum() >> (56 - 8 * i) & 0xffU);
      }
      return hex_digits(bytes);
    }
    if (sha1* const sum = std::get_if<sha1>(&sum_)) return hex_digits(sum->sum());
    return hex_digits(std::get<sha256>(sum_).sum());
  }

 private:
  using sums = std::variant<xxh64, sha1, sha256>;
  explicit mds_summer(const sums& sum) : sum_(sum) {}

  sums sum_;
};

/// The sums of `bytes` by these names, which must be known.
[[nodiscard]] inline std::vector<mds_sum> mds_sums_of(std::string_view bytes,
                                                      std::span<const std::string> names) {
  std::vector<mds_sum> sums;
  for (const std::string& name : names) {
    mds_summer summer = *mds_summer::of(name);
    summer.add(std::as_bytes(std::span{bytes}));
    sums.push_back({name, summer.digits()});
  }
  return sums;
}

/// That one of `sums` that is compared: the quickest of those that are known; null for none.
[[nodiscard]] inline const mds_sum* comparable_sum(std::span<const mds_sum> sums) noexcept {
  for (const std::string_view name : known_mds_sums) {
    const auto found = std::find_if(sums.begin(), sums.end(),
                                    [&](const mds_sum& one) { return one.name == name; });
    if (found != sums.end()) return &*found;
  }
  return nullptr;
}

/// Compares the file with that one of `sums` that is known. Throws `file_corrupt` for another sum,
/// `file_format_error` where none is known, and what reading throws.
inline void require_sum(const shard_file& file, std::span<const mds_sum> sums,
                        const std::string& remedy) {
  const mds_sum* const expected = comparable_sum(sums);
  if (expected == nullptr) {
    std::string names;
    for (const mds_sum& one : sums) names += (names.empty() ? "" : ", ") + one.name;
    throw file_format_error(file.path(), 0,
                            "a sum by xxh64, sha1 or sha256 in index.json, as verify wants it",
                            names.empty() ? "none" : names);
  }
  mds_summer summer = *mds_summer::of(expected->name);
  constexpr std::size_t most = std::size_t{1} << 18U;
  const std::unique_ptr<std::byte[]> memory{new std::byte[most]};
  for (std::uint64_t at = 0; at < file.size();) {
    const auto piece = static_cast<std::size_t>((std::min)(file.size() - at, std::uint64_t{most}));
    const std::span<std::byte> bytes{memory.get(), piece};
    file.read_unchanged(at, bytes);
    summer.add(bytes);
    at += piece;
  }
  if (const std::string found = summer.digits(); found != expected->digits) {
    throw file_corrupt(file.path(), 0, expected->name + ' ' + expected->digits + ", as index.json",
                       found + remedy);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
