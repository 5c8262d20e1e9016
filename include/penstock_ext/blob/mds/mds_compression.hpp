// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock_ext/files/file_source.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A way to compress whole files: `zstd` of `penstock_ext/files/zstd/zstd.hpp`. `codec(path)` opens a file
/// as a `byte_source` of its content, `packed(bytes)` are bytes compressed. `family()` is what
/// Mosaic calls it and what such files end in, `name()` that with a level: "zstd", "zstd:7".
/// All of them from any thread.
template <class C>
concept file_codec =
    requires(const C& codec, const std::string& path, std::span<const std::byte> bytes) {
      { codec(path) } -> byte_source;
      { codec.packed(bytes) } -> std::same_as<std::vector<std::byte>>;
      { codec.family() } -> std::convertible_to<std::string>;
      { codec.name() } -> std::convertible_to<std::string>;
    };

/// How shards are compressed: any `file_codec`, or none. An option of `mds_shards` and
/// `mds_writer`, which so need no library themselves. Copies share the codec.
class mds_compression {
 public:
  /// Fills its argument with the next bytes of a file's content, less only at the end.
  using reader = std::function<std::size_t(std::span<std::byte>)>;

  /// None.
  mds_compression() = default;
  /// That of `codec`.
  template <class Codec>
    requires(!std::same_as<Codec, mds_compression> && file_codec<Codec>)
  mds_compression(const Codec& codec)
      : family_(codec.family()),
        name_(codec.name()),
        packed_([codec](std::span<const std::byte> bytes) { return codec.packed(bytes); }),
        open_([codec](const std::string& path) {
          using source = std::remove_cvref_t<decltype(codec(path))>;
          // A lambda is copied, and a source that is open is not.
          const std::shared_ptr<source> opened{new source(codec(path))};
          return reader{[opened](std::span<std::byte> out) { return opened->read(out); }};
        }) {}

  /// Whether there is one.
  explicit operator bool() const noexcept { return static_cast<bool>(packed_); }
  /// Its name without a level; "" for none.
  [[nodiscard]] const std::string& family() const noexcept { return family_; }
  /// Its name as index.json has it; "" for none.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// `bytes` compressed. There must be one.
  [[nodiscard]] std::vector<std::byte> packed(std::span<const std::byte> bytes) const {
    return packed_(bytes);
  }
  /// Opens a compressed file. There must be one. Throws what the codec's source throws.
  [[nodiscard]] reader open(const std::string& path) const { return open_(path); }

 private:
  std::string family_;
  std::string name_;
  std::function<std::vector<std::byte>(std::span<const std::byte>)> packed_;
  std::function<reader(const std::string&)> open_;
};

}  // namespace PENSTOCK_ABI
}  // namespace penstock
