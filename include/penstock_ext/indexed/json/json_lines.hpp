// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/core/record.hpp>
#include <penstock/core/version.hpp>
#include <penstock/data/adaptors/concat.hpp>
#include <penstock/data/chunk_context.hpp>
#include <penstock/data/dataset.hpp>
#include <penstock_ext/blob/support/state_pool.hpp>
#include <penstock_ext/files/mapped_file.hpp>
#include <penstock_ext/files/support/foreign_format.hpp>
#include <penstock_ext/indexed/detail/record_fields.hpp>
#include <penstock_ext/indexed/json/detail/json_line.hpp>
#include <penstock_ext/indexed/json/json_line_error.hpp>
#include <penstock_ext/indexed/sample_index.hpp>
#include <penstock_ext/indexed/text_lines.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// Options of `json_lines`.
struct json_lines_options {
  /// Options of the index of each file.
  index_options index = {};
  /// Appends the tokens of a string to `tokens`. Called for strings in fields of integers of more
  /// than 1 byte, twice for each sample, by several threads concurrently. Must append the same
  /// tokens each time. Exceptions propagate.
  std::function<void(std::string_view text, std::string_view field,
                     std::vector<std::uint32_t>& tokens)>
      tokenizer = {};
};

namespace detail {

/// The format of a JSON Lines file, with the same index as `text_lines`.
struct json_line_format : line_format {
  /// Throws `file_format_error` if `data` has a known other format.
  static void require(const mapped_file& data) {
    throw_foreign_format(data.bytes(), data.path(), "JSON Lines", 0, "");
  }
};

/// The state that the files of a `json_lines` share.
struct json_lines_state {
  explicit json_lines_state(const json_lines_options& options) : tokenizer(options.tokenizer) {}

  decltype(json_lines_options::tokenizer) tokenizer;
  state_pool<json_memory> memory;
};

/// The lines of one file of `json_lines`. Reading is thread-safe.
template <record_type Record>
class json_lines_file : public indexed_lines {
 public:
  using record_type = Record;

  json_lines_file(mapped_file data, sample_index index,
                  const std::optional<record_extents<Record>>& extents,
                  std::shared_ptr<json_lines_state> shared)
      : indexed_lines(std::move(data), std::move(index)),
        shared_(std::move(shared)),
        extents_(given_or_bounded<Record>(extents, [this]<class Field>() {
          using type = typename Field::value_type;
          const bool takes_text = is_json_byte<type> || (is_json_token<type> && shared_->tokenizer);
          return takes_text ? longest() : longest() / 2;  // an element needs 2 bytes
        })) {}

  [[nodiscard]] const record_extents<Record>& extents() const noexcept { return extents_; }
  /// Returns lengths of 0 for a line that `read_chunk` cannot read. The loader's error policy
  /// covers reading, but not lengths.
  [[nodiscard]] sample_lengths<Record> lengths(std::uint64_t index) const
    requires(Record::ragged_fields > 0)
  {
    const auto memory = shared_->memory.take();
    sample_lengths<Record> all{};
    try {
      json_line line{data(), index, this->line(index, memory->cursor), *memory};
      each_field(line, [&]<std::size_t Index>(json_line::value_type value) {
        if constexpr (field<Index>::is_ragged) {
          all[Record::template ragged_index<Index>()] =
              decode<Index>(line, value, std::span<value_of<Index>>{}, memory->tokens);
        }
      });
    } catch (const json_line_error&) {
      return {};
    }
    return all;
  }
  void read(std::uint64_t index, sample<Record> out) const {
    read_line(index, out, *shared_->memory.take());
  }
  void read_chunk(std::span<const std::uint64_t> indices, batch_view<Record> out,
                  const chunk_context& context) const {
    const auto memory = shared_->memory.take();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      context.at(i);
      prefetch_ahead(*this, indices, i);
      read_line(indices[i], out[i], *memory);
    }
  }

 private:
  template <std::size_t Index>
  using field = typename Record::template field_at<Index>;
  template <std::size_t Index>
  using value_of = typename field<Index>::value_type;

  template <std::size_t Index>
  [[nodiscard]] static const std::string& name() {
    return field_names<Record>()[Index];
  }

  void read_line(std::uint64_t index, const sample<Record>& out, json_memory& memory) const {
    json_line line{data(), index, this->line(index, memory.cursor), memory};
    std::optional<std::size_t> changed_at;
    each_field(line, [&]<std::size_t Index>(json_line::value_type value) {
      auto* const begin = reinterpret_cast<value_of<Index>*>(out.address(Index));
      if constexpr (field<Index>::extents_type::rank == 0) {
        *begin = line.scalar<value_of<Index>>(value, name<Index>());
      } else {
        const std::span all{begin, out.template at<Index>().size()};
        if constexpr (field<Index>::is_ragged) {
          const std::size_t at = line.position(value);
          if (decode<Index>(line, value, all, memory.tokens) != all.size()) changed_at = at;
        } else {
          read_array<Index, 0>(line, value, all, memory.tokens);
        }
      }
    });
    // Other errors of the line come first, because they explain a length of 0.
    if (changed_at) {
      line.fail(*changed_at, "as many values as `lengths` returned",
                "another number: the file was written to, or .tokenizer is not deterministic");
    }
  }

  // Calls `use.operator()<Index>(value)` for all fields, in the order of the line.
  template <class Use>
  static void each_field(json_line& line, const Use& use) {
    std::array<bool, Record::size> found{};
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      line.each_member([&](std::string_view key, json_line::value_type value) {
        const auto use_if = [&]<std::size_t Index>() {
          if (found[Index] || key != name<Index>()) return false;
          found[Index] = true;
          use.template operator()<Index>(value);
          return true;
        };
        static_cast<void>((use_if.template operator()<Is>() || ...));
      });
    }(std::make_index_sequence<Record::size>{});
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i]) continue;
      line.fail(0, "a member \"" + field_names<Record>()[i] + '"', "no member of this name");
    }
  }

  // Reads dimension `Depth` and the dimensions within it.
  template <std::size_t Index, std::size_t Depth>
  void read_array(json_line& line, json_line::value_type value, std::span<value_of<Index>> out,
                  std::vector<std::uint32_t>& tokens) const {
    const std::size_t at = line.position(value);
    std::size_t expected = out.size();
    std::size_t found = 0;
    if constexpr (Depth + 1 == field<Index>::extents_type::rank) {
      found = decode<Index>(line, value, out, tokens);
    } else {
      expected = extents_.template at<Index>()[Depth];
      const std::size_t row = out.size() / expected;
      line.each_element(value, name<Index>(), [&](json_line::value_type& one) {
        if (found < expected) {
          read_array<Index, Depth + 1>(line, one, out.subspan(found * row, row), tokens);
        }
        ++found;
      });
    }
    if (found == expected) return;
    line.fail(at, std::to_string(expected) + " values for field \"" + name<Index>() + '"',
              std::to_string(found));
  }

  // Writes the values of an array or string that have room in `out`, and returns their number.
  template <std::size_t Index, class T>
  [[nodiscard]] std::size_t decode(json_line& line, json_line::value_type value, std::span<T> out,
                                   std::vector<std::uint32_t>& tokens) const {
    static_assert(std::is_arithmetic_v<T> || std::same_as<T, std::byte>,
                  "penstock::json_lines: the values of a field are numbers, bool or std::byte");
    if constexpr (is_json_byte<T>) {
      if (json_line::is_string(value)) {
        const std::string_view text = line.string(value, name<Index>());
        const auto room = std::as_writable_bytes(out);
        std::copy_n(reinterpret_cast<const std::byte*>(text.data()),
                    (std::min)(text.size(), room.size()), room.begin());
        return text.size();
      }
    } else if constexpr (is_json_token<T>) {
      if (shared_->tokenizer && json_line::is_string(value)) {
        const std::size_t at = line.position(value);
        tokens.clear();
        shared_->tokenizer(line.string(value, name<Index>()), name<Index>(), tokens);
        for (std::size_t i = 0; i < (std::min)(tokens.size(), out.size()); ++i) {
          out[i] = static_cast<T>(tokens[i]);
          if (out[i] < 0 || static_cast<std::uint64_t>(out[i]) != tokens[i]) {
            line.fail(at, "tokens that fit field \"" + name<Index>() + '"',
                      std::to_string(tokens[i]));
          }
        }
        return tokens.size();
      }
      if (json_line::is_string(value)) {
        line.fail_at(value, "an array, or the option .tokenizer,", name<Index>());
      }
    }
    std::size_t count = 0;
    line.each_element(value, name<Index>(), [&](json_line::value_type& one) {
      if (count < out.size()) out[count] = line.scalar<T>(one, name<Index>());
      ++count;
    });
    return count;
  }

  std::shared_ptr<json_lines_state> shared_;
  record_extents<Record> extents_;
};

}  // namespace detail

/// A dataset of the lines of JSON Lines files, each of which is an object. A field takes the member
/// of its name:
///
///     using document = ps::record<ps::field<"text", std::uint8_t, ps::ragged>,   // a string
///                                 ps::field<"box", float, 2, 2>,                 // nested arrays
///                                 ps::field<"label", std::int64_t>>;             // a number
///     const ps::json_lines<document> documents{ps::glob("train-*.jsonl")};
///
/// A field of numbers takes numbers that fit, and a field of `bool` takes `true` and `false`. A
/// field with extents takes an array, or nested arrays, of exactly these extents. A field of 1-byte
/// values also takes a string, as UTF-8 without escapes. Other fields of integers take the tokens
/// of a string (see `json_lines_options::tokenizer`). If a name appears twice, the first member
/// is read. Other members are skipped, so errors in their values may remain undetected.
///
/// The first use of a file keeps an index of 8 bytes for 16 lines in a file (see `index_options`).
/// `text_lines` has the same index.
///
/// Files are memory-mapped and must not change while they are open. Truncating an open file kills
/// the process. The sample origin (`origin_of`) contains the file and the line, counted from 0.
/// Movable, not copyable. nvcc cannot compile this header, because it cannot compile simdjson 3.0.
///
/// Reading is thread-safe, and throws `json_line_error` if a line is empty, not an object, not
/// UTF-8, or does not match the record, and `file_corrupt` if the file has changed. `lengths` also
/// parses the line. If the line cannot be read, `lengths` returns 0, so that a loader can skip it.
template <penstock::record_type Record>
class json_lines
    : public detail::concat_dataset<detail::part_list<detail::json_lines_file<Record>>> {
 public:
  /// Opens the files at `paths`. Bounds each ragged field by the size of the longest line; pass
  /// extents if strings have more tokens than the longest line has bytes, or set
  /// `.memory.max_values_per_batch` if the bound is too large. Throws the same errors as
  /// `text_lines`, and `file_format_error` if a file has a known other format.
  explicit json_lines(const std::vector<std::string>& paths, const json_lines_options& options = {})
      : json_lines(paths, std::nullopt, options) {
    static_assert(!detail::has_dyn_field<Record>,
                  "penstock::json_lines: pass the extents of a record with dyn extents");
  }
  /// Opens the files at `paths`, whose samples have the given `extents`. Throws the same errors as
  /// the other constructor.
  json_lines(const std::vector<std::string>& paths,
             const std::optional<record_extents<Record>>& extents,
             const json_lines_options& options = {})
      : json_lines::concat_dataset(detail::opened_parts<detail::json_lines_file<Record>>(
                                       paths, options.index, detail::json_line_format{}, extents,
                                       std::make_shared<detail::json_lines_state>(options)),
                                   "json_lines") {}
};

static_assert(dataset<json_lines<record<field<"x", float, ragged>, field<"y", std::int32_t>>>>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
