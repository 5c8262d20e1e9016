// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <penstock/core/version.hpp>
#include <penstock_ext/bulk/bulk_file.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/json/parsed_json.hpp>
#include <penstock_ext/files/support/system_file.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A tensor in a safetensors file. All elements are little-endian, have a single type, and are
/// stored in C order.
struct safetensor {
  std::string name = {};                  ///< unique in the file
  std::string dtype = {};                 ///< "F32", "BF16", "I64" and so on
  std::vector<std::uint64_t> shape = {};  ///< empty for a single element
  /// position of the first byte, relative to the first byte of all tensors
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< number of bytes
};

namespace detail {

/// Returns the number of bits in an element of this type, or 0 if the type is unknown.
[[nodiscard]] inline std::uint64_t safetensors_bits(std::string_view dtype) noexcept {
  struct known {
    std::string_view name;
    std::uint64_t bits;
  };
  static constexpr std::array<known, 22> all{
      {{"F32", 32},        {"F16", 16},       {"BF16", 16},   {"F64", 64},    {"I64", 64},
       {"I32", 32},        {"I16", 16},       {"I8", 8},      {"U64", 64},    {"U32", 32},
       {"U16", 16},        {"U8", 8},         {"BOOL", 8},    {"F8_E4M3", 8}, {"F8_E5M2", 8},
       {"F8_E8M0", 8},     {"C64", 64},       {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
       {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}}};
  const auto* const found = std::ranges::find(all, dtype, &known::name);
  return found != all.end() ? found->bits : 0;
}

/// Returns the size in bytes of a tensor of this type and shape. Returns `std::nullopt` if the size
/// does not fit in 64 bits or is not a whole number. The type must be known.
[[nodiscard]] inline std::optional<std::uint64_t> safetensors_bytes(
    std::string_view dtype, std::span<const std::uint64_t> shape) noexcept {
  // Multiplies in the order of the shape, like the safetensors library. [0, n, n] has no elements
  // for any n, but [n, n, 0] is rejected if n * n overflows.
  std::uint64_t bits = 1;
  for (const std::uint64_t length : shape) {
    if (__builtin_mul_overflow(bits, length, &bits)) return {};
  }
  if (__builtin_mul_overflow(bits, safetensors_bits(dtype), &bits) || bits % 8 != 0) return {};
  return bits / 8;
}

/// The header of a safetensors file:
///
///     u64 n, little-endian; n bytes of JSON; the bytes of the tensors
///
/// The member "__metadata__" of the JSON is an object of strings, or null. Each other member is a
/// tensor with "dtype", "shape" and "data_offsets". The offsets are the positions of the first byte
/// and the end of the tensor, relative to the end of the JSON. The tensors cover all bytes without
/// gaps.
struct safetensors_header {
  std::vector<safetensor> tensors;  ///< sorted by `offset`
  std::map<std::string, std::string> metadata;
};

/// The beginning of a header that contains a checksum of the file, up to the checksum digits. A
/// program that saves the file again, with this metadata but other tensors, does not write the
/// space after the brace.
inline constexpr std::string_view safetensors_sum_begin =
    "{ \"__metadata__\":{\"penstock.crc64nvme\":\"";
inline constexpr std::size_t safetensors_sum_digits = 16;
/// The maximum size of a header in bytes, as specified by the format.
inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

/// Parses the JSON `text` of the file `path`, whose tensors have `data` bytes in total.
class safetensors_parser {
 public:
  safetensors_parser(std::string_view text, std::string path, std::uint64_t data)
      : text_(text), path_(std::move(path)), data_(data) {}

  /// Throws `file_format_error` or a derived type, and `file_truncated` if tensors extend beyond
  /// the end of the file.
  [[nodiscard]] safetensors_header read() {
    const std::size_t first = (std::min)(text_.find_first_not_of(" \t\n\r"), text_.size());
    if (first == text_.size() || text_[first] != '{') {
      reject(first, "{, the first byte of the JSON", "another byte");
    }
    static_cast<void>(parsed_json(
        text_,
        [this](std::size_t at, const std::string& expected, const std::string& found) {
          reject(at, expected, found);
        },
        [this](const json& value, std::size_t begin, const std::vector<open_json>& around) {
          if (around.size() != 1) return true;
          const std::string& name = around.front().key;
          const bool is_metadata = name == "__metadata__";
          if (!value.is_object() && !(is_metadata && value.is_null())) {
            reject(begin, "an object for each tensor", "another value for \"" + name + '"');
          }
          if (is_metadata) {
            read_metadata(value, begin);
          } else {
            read_tensor(name, value, begin);
          }
          return false;  // not stored
        },
        [](const std::vector<open_json>& around) {
          if (around.size() < 2) return true;
          if (around.size() > 2) return around.size() == 3 && around[2].value.is_array();
          const std::string& member = around[1].key;
          return around[1].value.is_object() &&
                 (around[0].key == "__metadata__" || member == "dtype" || member == "shape" ||
                  member == "data_offsets");
        }));
    require_no_holes();
    for (auto& one : found_) header_.tensors.push_back(std::move(one.tensor));
    return std::move(header_);
  }

 private:
  using json = nlohmann::json;
  struct found_tensor {
    safetensor tensor;
    std::size_t at;
  };

  [[noreturn]] void reject(std::size_t at, const std::string& expected,
                           const std::string& found) const {
    throw file_format_error(path_, 8 + at, expected, found);
  }

  void read_metadata(const json& value, std::size_t at) {
    for (const auto& member : value.items()) {
      if (!member.value().is_string())
        reject(at, "metadata values that are strings", member.value().type_name());
      header_.metadata[member.key()] = member.value().get<std::string>();
    }
  }

  void read_tensor(const std::string& name, const json& value, std::size_t at) {
    const auto member = [&](const char* key) -> const json& {
      const auto found = value.find(key);
      if (found == value.end()) {
        reject(at, '"' + std::string{key} + "\" of the tensor \"" + name + '"', "none");
      }
      return *found;
    };
    safetensor made;
    made.name = name;
    const json& dtype = member("dtype");
    if (dtype.is_string()) made.dtype = dtype.get<std::string>();
    if (safetensors_bits(made.dtype) == 0) {
      reject(at, "a type of safetensors for \"" + name + '"',
             dtype.dump(-1, ' ', true, json::error_handler_t::replace));
    }
    made.shape = numbers(name, "shape", member("shape"), at);
    const auto ends = numbers(name, "data_offsets", member("data_offsets"), at);
    if (ends.size() != 2 || ends[0] > ends[1]) {
      reject(at, "data_offsets of \"" + name + "\": a begin and a later end",
             member("data_offsets").dump());
    }
    made.offset = ends[0];
    made.bytes = ends[1] - ends[0];
    const auto bytes = safetensors_bytes(made.dtype, made.shape);
    if (!bytes) {
      throw dimension_mismatch(path_, 8 + at,
                               "a shape of \"" + name + "\" with a whole number of bytes",
                               member("shape").dump());
    }
    if (*bytes != made.bytes) {
      throw dimension_mismatch(
          path_, 8 + at,
          std::to_string(*bytes) + " bytes for \"" + name + "\", according to its type and shape",
          std::to_string(made.bytes));
    }
    found_.push_back({std::move(made), at});
  }

  [[nodiscard]] std::vector<std::uint64_t> numbers(const std::string& name, const char* key,
                                                   const json& list, std::size_t at) const {
    std::vector<std::uint64_t> all;
    const bool is_list = list.is_array();
    for (const auto& one : is_list ? list : json::array()) {
      if (one.is_number_unsigned()) all.push_back(one.get<std::uint64_t>());
    }
    if (!is_list || all.size() != list.size()) {
      reject(at, std::string{key} + " of \"" + name + "\": integers of at least 0",
             std::string{is_list ? "a list of other values" : "a value that is not a list"});
    }
    return all;
  }

  void require_no_holes() {
    std::ranges::stable_sort(found_, [](const found_tensor& a, const found_tensor& b) {
      return std::pair{a.tensor.offset, a.tensor.bytes} <
             std::pair{b.tensor.offset, b.tensor.bytes};
    });
    std::uint64_t end = 0;
    for (const found_tensor& one : found_) {
      if (one.tensor.offset != end) {
        reject(one.at,
               "tensors without gaps: \"" + one.tensor.name + "\" at " + std::to_string(end),
               std::to_string(one.tensor.offset));
      }
      end += one.tensor.bytes;
    }
    const std::uint64_t begin = 8 + text_.size();
    if (end > data_) {
      throw file_truncated(path_, begin + data_, std::to_string(end) + " bytes of tensors",
                           "the end of the file after " + std::to_string(data_));
    }
    if (end < data_) {
      throw file_format_error(path_, begin + end, "the end of the file",
                              std::to_string(data_ - end) + " bytes more");
    }
  }

  std::string_view text_;
  std::string path_;
  std::uint64_t data_;
  std::vector<found_tensor> found_;
  safetensors_header header_;
};

}  // namespace detail

/// The tensors of a safetensors file, for uploads. The constructor reads and checks the header, but
/// does not read tensors. The file stays open, so replacing the file at its path has no effect on
/// this object.
///
///     const ps::safetensors_file file{"model.safetensors"};
///     auto loading = ps::upload(device, stream, weights, file.all());
///
/// Movable. Thread-safe.
class safetensors_file {
 public:
  /// Opens `path`. Throws `file_unreadable`, `file_truncated`, and, if the header is invalid,
  /// `file_format_error` or a derived type.
  explicit safetensors_file(std::string path) : path_(std::move(path)), file_(path_) {
    std::array<std::byte, 8> start{};
    if (file_.size() < start.size()) {
      throw file_truncated(path_, file_.size(), "the length of the header, 8 bytes",
                           "the end of the file");
    }
    file_.read(0, start);
    const std::uint64_t length = detail::little_endian<8>(start.data());
    constexpr std::uint64_t max = detail::max_safetensors_header;
    if (length > max) {  // before memory is allocated
      throw file_format_error(path_, 0, "a header of at most " + std::to_string(max) + " bytes",
                              std::to_string(length));
    }
    begin_ = start.size() + length;
    if (begin_ > file_.size()) {
      throw file_truncated(path_, file_.size(), "a header of " + std::to_string(length) + " bytes",
                           "the end of the file");
    }
    head_.resize(static_cast<std::size_t>(begin_));
    file_.read(0, std::as_writable_bytes(std::span{head_}));
    header_ = detail::safetensors_parser{std::string_view{head_}.substr(start.size()), path_,
                                         file_.size() - begin_}
                  .read();
    const auto checksum = header_.metadata.find("penstock.crc64nvme");
    if (checksum != header_.metadata.end() &&
        std::string_view{head_}.substr(start.size()).starts_with(detail::safetensors_sum_begin)) {
      const std::size_t at = start.size() + detail::safetensors_sum_begin.size();
      const std::string& digits = checksum->second;
      if (digits.size() != detail::safetensors_sum_digits ||
          digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
        throw file_corrupt(path_, at, "a checksum of 16 hexadecimal digits", digits);
      }
      checksum_ = std::stoull(digits, nullptr, 16);
      head_.replace(at, digits.size(), digits.size(), '0');
    }
  }

  /// Returns the tensors in file order.
  [[nodiscard]] const std::vector<safetensor>& tensors() const noexcept { return header_.tensors; }
  /// Returns the strings in "__metadata__".
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const noexcept {
    return header_.metadata;
  }
  /// Returns the total number of bytes in all tensors.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return tensors().empty() ? 0 : tensors().back().offset + tensors().back().bytes;
  }
  /// Returns true if the file contains its checksum. Files written by `safetensors_sink` do.
  [[nodiscard]] bool has_checksum() const noexcept { return checksum_.has_value(); }
  /// Returns the tensor `name`. Throws `file_format_error` if the file does not contain the tensor.
  [[nodiscard]] const safetensor& at(std::string_view name) const {
    const auto found = std::ranges::find(tensors(), name, &safetensor::name);
    if (found != tensors().end()) return *found;
    throw file_format_error(path_, 8, "a tensor \"" + std::string{name} + '"',
                            "no tensor of that name among " + std::to_string(tensors().size()));
  }

  /// Returns a source of the bytes of all tensors, in the order of `tensors`. An upload can copy
  /// each tensor to its own range. If `verify` is true and the file contains a checksum, the upload
  /// verifies the checksum. After the last byte, it throws `file_corrupt` if the checksum does not
  /// match.
  [[nodiscard]] bulk_file_source all(bool verify = true) const {
    bulk_file_options options{.offset = begin_, .size = bytes()};
    if (!verify || !checksum_) return {file_, options};
    options.checksum = checksum_;
    auto head = std::make_unique<detail::pieces_checksum>();
    head->add(0, std::as_bytes(std::span{head_}));
    return {file_, options, std::move(head)};
  }
  /// Returns a source of one tensor, without verifying a checksum. Throws `file_format_error` if
  /// the file does not contain the tensor.
  [[nodiscard]] bulk_file_source only(std::string_view name) const {
    const safetensor& one = at(name);
    return {file_, {.offset = begin_ + one.offset, .size = one.bytes}};
  }

 private:
  std::string path_;
  bulk_file_source file_;
  std::string head_;  // all bytes before the tensors, with zeros in place of the checksum digits
  std::uint64_t begin_ = 0;
  detail::safetensors_header header_;
  std::optional<std::uint64_t> checksum_;
};

/// A `bulk_sink` that writes a safetensors file, which appears either complete or not at all (see
/// `bulk_file_sink`). The metadata entry "penstock.crc64nvme" of the header contains the
/// CRC-64/NVME of the file, computed with zeros in place of its 16 digits. Other readers ignore the
/// entry.
class safetensors_sink {
 public:
  /// Creates the file `path` with these tensors in this order. Ignores `offset` and `bytes` of the
  /// tensors. Throws `file_unwritable`, and `option_error` for a duplicate name, an unknown type, a
  /// shape whose size is not a whole number of bytes, or a header of more than 100,000,000 bytes.
  safetensors_sink(std::string path, std::vector<safetensor> tensors,
                   const std::map<std::string, std::string>& metadata = {})
      : safetensors_sink(std::move(path), header_of(std::move(tensors), metadata)) {}

  /// Returns the total number of bytes in all tensors.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Writes `bytes` at `offset`, relative to the first tensor. Thread-safe. Throws
  /// `file_unwritable` if writing fails.
  void write(std::uint64_t offset, std::span<const std::byte> bytes) {
    file_->write(begin_ + offset, bytes);
  }
  /// Writes the checksum to the header, and renames the file to its final name. Throws
  /// `file_unwritable` if the file cannot be written or renamed.
  void finish() {
    const std::string digits = bulk_file_source::text_of(file_->checksum());
    file_->overwrite(8 + detail::safetensors_sum_begin.size(), std::as_bytes(std::span{digits}));
    file_->finish();
  }

 private:
  struct made_header {
    std::string head;
    std::uint64_t size = 0;
  };

  safetensors_sink(std::string path, const made_header& made)
      : begin_(made.head.size()),
        size_(made.size),
        file_(std::make_unique<detail::new_file>(std::move(path), true)) {
    file_->write(0, std::as_bytes(std::span{made.head}));
  }

  [[nodiscard]] static made_header header_of(std::vector<safetensor> tensors,
                                             const std::map<std::string, std::string>& metadata) {
    const auto json_of = [](const nlohmann::json& value) {
      try {
        return value.dump();
      } catch (const nlohmann::json::exception& problem) {
        throw option_error("tensors",
                           std::string{"a name or text is not valid UTF-8: "} + problem.what());
      }
    };
    made_header made;
    std::string text{detail::safetensors_sum_begin};
    text += std::string(detail::safetensors_sum_digits, '0') + '"';
    for (const auto& [key, value] : metadata) {
      if (key != "penstock.crc64nvme") text += ',' + json_of(key) + ':' + json_of(value);
    }
    text += '}';
    std::set<std::string_view> names{"__metadata__"};
    for (const safetensor& one : tensors) {
      const auto reject = [&](const std::string& problem) {
        throw option_error("tensors", '"' + one.name + "\" " + problem);
      };
      if (!names.insert(one.name).second) reject("appears twice");
      if (detail::safetensors_bits(one.dtype) == 0) {
        reject("is of the type \"" + one.dtype + "\", which safetensors do not support");
      }
      const auto bytes = detail::safetensors_bytes(one.dtype, one.shape);
      std::uint64_t end = 0;
      if (!bytes || __builtin_add_overflow(made.size, *bytes, &end)) {
        reject("has a shape with a fractional or too large number of bytes");
      }
      text +=
          ',' + json_of(one.name) + ':' +
          json_of({{"dtype", one.dtype}, {"shape", one.shape}, {"data_offsets", {made.size, end}}});
      made.size = end;
    }
    text += '}';
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > detail::max_safetensors_header) {
      throw option_error("tensors", "and the metadata give a header of " +
                                        std::to_string(text.size()) +
                                        " bytes, which is more than " +
                                        std::to_string(detail::max_safetensors_header));
    }
    for (unsigned i = 0; i < 8; ++i) {
      made.head += static_cast<char>(std::uint64_t{text.size()} >> (8 * i) & 0xffU);
    }
    made.head += text;
    return made;
  }

  std::uint64_t begin_;
  std::uint64_t size_;
  std::unique_ptr<detail::new_file> file_;
};

static_assert(bulk_sink<safetensors_sink>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
