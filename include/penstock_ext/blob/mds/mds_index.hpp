// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <penstock_ext/blob/support/blob_file.hpp>
#include <penstock_ext/files/crypto/digest.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/json/parsed_json.hpp>
#include <penstock_ext/files/support/checksums.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A column of MDS shards. Each sample has one value in each column.
struct mds_column {
  /// Name of the column.
  std::string name = {};
  /// Encoding of the values, as named by Mosaic's MDSWriter: "bytes", "str", "jpeg", "png", "int",
  /// "uint8" to "float64", "str_int", "ndarray:float32:3,4" and similar.
  std::string encoding = {};
  /// Size of each value in bytes, or 0 if the size varies between samples.
  std::uint64_t size = 0;

  friend bool operator==(const mds_column&, const mds_column&) = default;
};

namespace detail {

/// Properties of an MDS column encoding.
struct mds_encoding {
  enum class kind : std::uint8_t {
    bytes,    ///< Raw bytes: bytes, str, images, JSON, arrays.
    integer,  ///< A little-endian integer of `size` bytes.
    digits,   ///< A decimal integer in text form.
    real,     ///< A floating-point number of `size` bytes.
    pickle,   ///< A Python pickle, which can execute arbitrary code when it is unpickled.
    unknown   ///< An encoding that only the program that reads the values can decode.
  };
  kind is = kind::unknown;
  bool is_signed = false;
  std::uint64_t size = 0;  ///< Size of each value in bytes, or 0 if the size varies.
};

/// Returns the element size in bytes of the NumPy type `name`, or 0 if MDS does not support the
/// type.
[[nodiscard]] inline std::uint64_t mds_number_bytes(std::string_view name) noexcept {
  for (const std::string_view stem : {"uint", "int", "float"}) {
    if (!name.starts_with(stem)) continue;
    const std::string_view bits = name.substr(stem.size());
    if (bits == "8" && stem != "float") return 1;
    return bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : 0;
  }
  return 0;
}

/// Returns the size in bytes of an array described as "type:3,224,224". Returns 0 if `text` has no
/// shape, because then the size varies between samples. Returns nothing if `text` is invalid or the
/// array exceeds 2^32 bytes.
[[nodiscard]] inline std::optional<std::uint64_t> mds_array_bytes(std::string_view text) noexcept {
  const std::size_t colon = text.find(':');
  std::uint64_t bytes = mds_number_bytes(text.substr(0, colon));
  if (bytes == 0) return std::nullopt;
  if (colon == text.npos) return 0;
  const char* at = text.data() + colon + 1;
  const char* const end = text.data() + text.size();
  while (true) {
    std::uint64_t extent = 0;
    const auto [next, problem] = std::from_chars(at, end, extent);
    constexpr std::uint64_t max = std::uint64_t{1} << 32U;
    if (problem != std::errc{} || extent == 0 || extent > max / bytes) return std::nullopt;
    bytes *= extent;
    if (next == end) return bytes;
    if (*next != ',') return std::nullopt;
    at = next + 1;
  }
}

/// Returns the properties of the encoding `name`.
[[nodiscard]] inline mds_encoding mds_encoding_of(std::string_view name) noexcept {
  using kind = mds_encoding::kind;
  constexpr std::array<std::string_view, 8> as_they_are{
      "bytes", "str", "jpeg", "png", "pil", "str_float", "str_decimal", "json"};
  if (std::find(as_they_are.begin(), as_they_are.end(), name) != as_they_are.end() ||
      name.starts_with("jpeg:") || name == "ndarray") {
    return {kind::bytes, false, 0};
  }
  if (name == "int") return {kind::integer, true, 8};
  if (name == "str_int") return {kind::digits, true, 0};
  if (name == "pkl") return {kind::pickle, false, 0};
  if (const std::uint64_t bytes = mds_number_bytes(name); bytes != 0) {
    return {name.starts_with("float") ? kind::real : kind::integer, name.starts_with("int"), bytes};
  }
  if (name.starts_with("ndarray:")) {
    const auto bytes = mds_array_bytes(name.substr(8));
    if (bytes) return {kind::bytes, false, *bytes};
  }
  return {};
}

/// Decodes `bytes` as an integer. Returns nothing if the encoding is not an integer encoding or the
/// value does not fit into 64 bits.
[[nodiscard]] inline std::optional<std::int64_t> mds_number(
    const mds_encoding& encoding, std::span<const std::byte> bytes) noexcept {
  if (encoding.is == mds_encoding::kind::digits) {
    return whole_number<std::int64_t>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  if (encoding.is != mds_encoding::kind::integer || bytes.size() != encoding.size) {
    return std::nullopt;
  }
  const std::uint64_t value = little_endian(bytes);
  const std::uint64_t sign = std::uint64_t{1} << (8 * encoding.size - 1);
  if (encoding.is_signed) return std::bit_cast<std::int64_t>((value ^ sign) - sign);
  if (encoding.size == 8 && value >= sign) return std::nullopt;
  return std::bit_cast<std::int64_t>(value);
}

/// A byte range in a file.
struct mds_place {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

/// Returns the size in bytes of the size table at the start of each sample. The table has 4 bytes
/// for each variable-size column.
[[nodiscard]] inline std::uint64_t mds_head_bytes(std::span<const mds_column> columns) noexcept {
  return 4 *
         static_cast<std::uint64_t>(std::count_if(
             columns.begin(), columns.end(), [](const mds_column& one) { return one.size == 0; }));
}

/// Returns the location of column `which` in a sample of `size` bytes. `head` contains the first
/// `mds_head_bytes` bytes of the sample. A sample has this layout:
///
///     u32 sizes of the variable-size columns; the values, column by column
///
/// `begin` and `path` are the sample's position and file, used in messages. Throws `file_corrupt`
/// unless the columns fill the sample exactly.
[[nodiscard]] inline mds_place mds_value(std::span<const mds_column> columns, std::size_t which,
                                         std::span<const std::byte> head, std::uint64_t size,
                                         std::uint64_t begin, const std::string& path) {
  mds_place found;
  std::uint64_t end = head.size();
  std::size_t next = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::uint64_t bytes = columns[i].size;
    if (bytes == 0) {
      bytes = little_endian<4>(head.data() + next);
      next += 4;
    }
    if (bytes > size || end > size - bytes) {
      throw file_corrupt(path, begin, "a sample of " + std::to_string(size) + " bytes",
                         "column '" + columns[i].name + "', from byte " + std::to_string(end) +
                             " to " + std::to_string(end + bytes) + " of it");
    }
    if (i == which) found = {end, bytes};
    end += bytes;
  }
  if (end != size) {
    throw file_corrupt(path, begin,
                       "columns of " + std::to_string(size) + " bytes, the size of the sample",
                       std::to_string(end));
  }
  return found;
}

/// A file checksum from index.json: the algorithm name and the hexadecimal digits.
struct mds_checksum {
  std::string name = {};
  std::string digits = {};

  friend bool operator==(const mds_checksum&, const mds_checksum&) = default;
};

/// The supported checksum algorithms, fastest first, as named by Mosaic.
inline constexpr std::array<std::string_view, 3> known_mds_sums{"xxh64", "sha1", "sha256"};

/// Computes a checksum incrementally.
class mds_hasher {
 public:
  /// Returns an object that computes the checksum `name`, or nothing if the algorithm is unknown.
  [[nodiscard]] static std::optional<mds_hasher> of(std::string_view name) {
    if (name == known_mds_sums[0]) {
      xxh64_state state{::XXH64_createState()};
      if (!state) throw std::bad_alloc();
      ::XXH64_reset(state.get(), 0);
      return mds_hasher{std::move(state)};
    }
    if (name == known_mds_sums[1]) return mds_hasher{digest::sha1()};
    if (name == known_mds_sums[2]) return mds_hasher{digest::sha256()};
    return std::nullopt;
  }

  /// Updates the checksum with `bytes`.
  void add(std::span<const std::byte> bytes) {
    if (auto* const state = std::get_if<xxh64_state>(&hash_)) {
      ::XXH64_update(state->get(), bytes.data(), bytes.size());
    } else {
      std::get<digest>(hash_).add(bytes);
    }
  }

  /// Finishes the checksum and returns its hexadecimal digits. Do not call `add` afterwards.
  [[nodiscard]] std::string digits() {
    if (const auto* const state = std::get_if<xxh64_state>(&hash_)) {
      ::XXH64_canonical_t checksum;
      ::XXH64_canonicalFromHash(&checksum, ::XXH64_digest(state->get()));
      return hex_digits(checksum.digest);
    }
    return hex_digits(std::get<digest>(hash_).bytes());
  }

 private:
  struct free_state {
    void operator()(::XXH64_state_t* state) const noexcept { ::XXH64_freeState(state); }
  };
  using xxh64_state = std::unique_ptr<::XXH64_state_t, free_state>;
  using checksums = std::variant<xxh64_state, digest>;

  explicit mds_hasher(checksums checksum) : hash_(std::move(checksum)) {}

  checksums hash_;
};

/// Returns the fastest supported checksum in `checksums`, or null if none is supported.
[[nodiscard]] inline const mds_checksum* supported_checksum(
    std::span<const mds_checksum> checksums) noexcept {
  for (const std::string_view name : known_mds_sums) {
    const auto found = std::find_if(checksums.begin(), checksums.end(),
                                    [&](const mds_checksum& one) { return one.name == name; });
    if (found != checksums.end()) return &*found;
  }
  return nullptr;
}

/// Verifies the file against the fastest supported checksum in `checksums`. Throws `file_corrupt`
/// after a mismatch, `file_format_error` if no checksum is supported, and errors from reading the
/// file.
inline void require_checksum(const shard_file& file, std::span<const mds_checksum> checksums,
                             const std::string& remedy) {
  const mds_checksum* const expected = supported_checksum(checksums);
  if (expected == nullptr) {
    std::string names;
    for (const mds_checksum& one : checksums) names += (names.empty() ? "" : ", ") + one.name;
    throw file_format_error(file.path(), 0,
                            "an xxh64, sha1 or sha256 checksum in index.json, as verify requires",
                            names.empty() ? "none" : names);
  }
  mds_hasher summer = *mds_hasher::of(expected->name);
  constexpr std::size_t max = std::size_t{1} << 18U;
  const std::unique_ptr<std::byte[]> memory{new std::byte[max]};
  for (std::uint64_t at = 0; at < file.size();) {
    const auto piece = static_cast<std::size_t>((std::min)(file.size() - at, std::uint64_t{max}));
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

/// An entry for a shard in index.json.
struct mds_shard_entry {
  std::string name = {};         ///< File name, relative to the folder of the index.
  std::string zipped = {};       ///< Name of the compressed file, or "".
  std::string compression = {};  ///< Compression algorithm, or "".
  std::uint64_t bytes = 0;       ///< Size of the uncompressed file in bytes.
  std::uint64_t zipped_bytes = 0;
  std::uint64_t samples = 0;
  std::uint64_t at = 0;                             ///< Byte offset of the entry in index.json.
  std::vector<mds_checksum> checksums = {};         ///< Checksums of the uncompressed file.
  std::vector<mds_checksum> zipped_checksums = {};  ///< Checksums of the compressed file.
};

/// Maximum number of columns, far above the number in real data sets.
inline constexpr std::size_t max_mds_columns = 1000;

/// The content of an MDS index.json, version 2. All shards have the same columns.
struct mds_index {
  std::vector<mds_column> columns = {};
  std::vector<mds_shard_entry> shards = {};
};

/// Parses an index.json. Unknown members are skipped without allocating memory. Single-use.
class mds_index_reader {
 public:
  /// Prepares to parse `text`, the content of the file `path`.
  mds_index_reader(std::string_view text, std::string path) : text_(text), path_(std::move(path)) {}

  /// Returns the index. Throws `file_format_error` with the position of the invalid JSON or the
  /// invalid shard entry.
  [[nodiscard]] mds_index read() {
    const auto reject_at = [this](std::size_t offset, const std::string& expected,
                                  const std::string& found) {
      at_ = offset;
      reject(expected, found);
    };
    const json all = parsed_json(
        text_, reject_at,
        [this](const json& value, std::size_t begin, const auto& around) {
          if (around.size() != 2 || around[0].key != "shards") return true;
          at_ = begin;
          read_shard(value);
          return false;  // frees the memory of the shard
        },
        is_read);
    at_ = 0;
    const json& rest = member(all, "shards");
    if (!rest.is_array() || !rest.empty()) reject("an array of objects as \"shards\"", shown(rest));
    require_version(all);
    return std::move(index_);
  }

 private:
  using json = nlohmann::json;

  [[noreturn]] void reject(const std::string& expected, const std::string& found) const {
    throw file_format_error(path_, at_, expected, found);
  }

  // Returns true if the parser must store the next value. Stores only enough of a list with too
  // many columns to detect the error.
  [[nodiscard]] static bool is_read(const std::vector<open_json>& around) {
    const std::string& key = around.back().key;
    const std::size_t before = around.back().value.size();
    switch (around.size()) {
      case 1:  // a member of the top-level object, or an element of a top-level array
        return key == "shards" || key == "version";
      case 2:  // a shard; of an invalid value, only the first element, for the message
        return before == 0;
      case 3: {
        static constexpr std::array<std::string_view, 9> known{
            "column_encodings", "column_names", "column_sizes", "compression", "format",
            "raw_data",         "samples",      "version",      "zip_data"};
        return std::find(known.begin(), known.end(), key) != known.end();
      }
      case 4:  // an element of a column list, or a member of a file
        return before <= max_mds_columns;
      default:  // a file checksum
        return around.size() == 5 && around[3].key == "hashes" && before <= max_mds_columns;
    }
  }

  // Formats `value` for messages.
  [[nodiscard]] static std::string shown(const json& value) {
    return value.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40);
  }

  [[nodiscard]] const json& member(const json& of, const std::string& key) const {
    const auto found = of.find(key);
    if (found == of.end()) reject("a member \"" + key + "\" in this object", "none");
    return *found;
  }
  [[nodiscard]] std::string text(const json& value, const std::string& what) const {
    if (!value.is_string()) reject("a string as " + what, shown(value));
    return value.get<std::string>();
  }
  [[nodiscard]] std::uint64_t number(const json& value, const std::string& what) const {
    if (!value.is_number_unsigned()) reject("an integer below 2^64 as " + what, shown(value));
    return value.get<std::uint64_t>();
  }
  [[nodiscard]] const json& list(const json& of, const std::string& key) const {
    const json& all = member(of, key);
    if (!all.is_array()) reject("an array as " + key, shown(all));
    return all;
  }
  // Returns the member `key`, or a null pointer if it is missing or JSON null.
  [[nodiscard]] static const json* optional(const json& of, const std::string& key) {
    const auto found = of.find(key);
    return found == of.end() || found->is_null() ? nullptr : &*found;
  }

  void require_version(const json& of) const {
    const std::uint64_t version = number(member(of, "version"), "version");
    if (version != 2) reject("version 2", std::to_string(version));
  }

  void read_shard(const json& from) {
    std::vector<mds_column> columns = read_columns(from);
    if (index_.shards.empty()) {
      index_.columns = std::move(columns);
    } else if (columns != index_.columns) {
      reject("a shard with the columns of the first shard", "different columns");
    }
    mds_shard_entry& shard = index_.shards.emplace_back();
    shard.at = at_;
    if (const json* const by = optional(from, "compression")) {
      shard.compression = text(*by, "compression");
    }
    const std::string format = text(member(from, "format"), "format");
    if (format != "mds") reject("\"mds\", the only supported format", '\'' + format + '\'');
    read_file(member(from, "raw_data"), shard.name, shard.bytes, shard.checksums);
    shard.samples = number(member(from, "samples"), "samples");
    if (shard.samples > 0xffff'ffffU) reject("less than 2^32 samples", "more");
    require_version(from);
    if (const json* const zipped = optional(from, "zip_data")) {
      read_file(*zipped, shard.zipped, shard.zipped_bytes, shard.zipped_checksums);
    }
  }

  void read_file(const json& from, std::string& name, std::uint64_t& bytes,
                 std::vector<mds_checksum>& checksums) const {
    name = text(member(from, "basename"), "basename");
    if (!lies_below(name)) {
      reject("the name of a file in the folder, or below it", '\'' + name + '\'');
    }
    bytes = number(member(from, "bytes"), "bytes");
    const json* const hashes = optional(from, "hashes");
    if (hashes == nullptr) return;
    if (!hashes->is_object()) reject("an object as hashes", shown(*hashes));
    for (const auto& [checksum, digits] : hashes->items())
      checksums.push_back({checksum, text(digits, checksum)});
  }

  // Returns true if the relative path `path` stays below its base folder.
  [[nodiscard]] static bool lies_below(std::string_view path) noexcept {
    if (path.find('\0') != path.npos) return false;
    while (true) {
      const std::size_t slash = path.find('/');
      const std::string_view part = path.substr(0, slash);
      if (part.empty() || part == "." || part == "..") return false;
      if (slash == path.npos) return true;
      path.remove_prefix(slash + 1);
    }
  }

  [[nodiscard]] std::vector<mds_column> read_columns(const json& from) const {
    const json& encodings = list(from, "column_encodings");
    const json& names = list(from, "column_names");
    const json& sizes = list(from, "column_sizes");
    const std::size_t count = names.size();
    const bool fits = encodings.size() == count && sizes.size() == count;
    if (count == 0 || count > max_mds_columns || !fits) {
      reject("as many column_encodings and column_sizes as column_names, 1 to 1000",
             std::to_string(encodings.size()) + ", " + std::to_string(sizes.size()) + " and " +
                 std::to_string(count));
    }
    std::vector<mds_column> columns;
    for (std::size_t i = 0; i < count; ++i) {
      mds_column one{text(names[i], "a name of a column"), text(encodings[i], "an encoding"),
                     sizes[i].is_null() ? 0 : number(sizes[i], "a size")};
      const mds_encoding encoding = mds_encoding_of(one.encoding);
      if (encoding.is != mds_encoding::kind::unknown && encoding.size != one.size) {
        reject("values of " + std::to_string(encoding.size) + " bytes (0: any) in column '" +
                   one.name + "', which is " + one.encoding,
               std::to_string(one.size));
      }
      for (const mds_column& other : columns) {
        if (other.name == one.name) reject("each column once", one.name + " twice");
      }
      columns.push_back(std::move(one));
    }
    return columns;
  }

  std::string_view text_;
  std::string path_;
  std::size_t at_ = 0;  // start of the current value
  mds_index index_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
