// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/blob/blob_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A field of a CSV file, without its quotes, and where it starts.
struct csv_field {
  std::string text = {};
  std::uint64_t offset = 0;
  std::uint64_t line = 1;
};

/// The rows of a CSV text as RFC 4180 has it: fields between separators, those in quotes with
/// separators, line ends and doubled quotes in them; a row ends with LF, CR LF or the text. A byte
/// order mark of UTF-8 is ignored, and so are lines without a byte. Single-use; refers to the text.
class csv_rows {
 public:
  /// `path` is for messages.
  csv_rows(std::string_view text, std::string path, char separator)
      : text_(text), path_(std::move(path)), separator_(separator) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  /// Reads the next row; false at the end of the text. Throws `csv_error` for quotes that are not
  /// as they should be, for a CR within a row, and for a row of another length than the first.
  [[nodiscard]] bool next() {
    while (at_ < text_.size() && take_line_end()) {
    }
    if (at_ == text_.size()) return false;
    std::size_t count = 0;
    do {
      if (count == most_fields) fail_here("at most " + std::to_string(count) + " fields", "more");
      if (count == fields_.size()) fields_.emplace_back();
      read_field(fields_[count++]);
    } while (take_separator());
    if (at_ < text_.size() && !take_line_end()) {
      fail_here("a separator or the end of the line", shown(text_[at_]));
    }
    if (columns_ == 0) columns_ = count;
    if (count != columns_) {
      const csv_field& first = fields_.front();
      fail(first.offset, first.line, std::to_string(columns_) + " fields, as in the first row,",
           std::to_string(count));
    }
    return true;
  }

  /// The row that `next` has read; valid until it is called again.
  [[nodiscard]] const std::vector<csv_field>& fields() const noexcept { return fields_; }

  /// Throws `csv_error` about `field`.
  [[noreturn]] void fail(const csv_field& field, const std::string& expected,
                         const std::string& found) const {
    fail(field.offset, field.line, expected, found);
  }
  /// Throws `csv_error` about the place where the text is read on.
  [[noreturn]] void fail_here(const std::string& expected, const std::string& found) const {
    fail(at_, line_, expected, found);
  }

 private:
  static constexpr std::size_t most_fields = 65'536;  // each takes 48 bytes, and one of the file

  [[noreturn]] void fail(std::uint64_t offset, std::uint64_t line, const std::string& expected,
                         const std::string& found) const {
    throw csv_error(path_, line, offset, expected, found);
  }

  [[nodiscard]] static std::string shown(char c) {
    if (c == '\r') return "CR without LF";
    if (c == '"') return "a quote";
    return std::string{"'"} + c + "'";
  }

  bool take_line_end() noexcept {
    const std::string_view rest = text_.substr(at_, 2);
    const std::size_t size = rest.starts_with('\n') ? 1 : rest == "\r\n" ? 2 : 0;
    at_ += size;
    line_ += size == 0 ? 0 : 1;
    return size != 0;
  }

  bool take_separator() noexcept {
    const bool is_there = at_ < text_.size() && text_[at_] == separator_;
    at_ += is_there ? 1 : 0;
    return is_there;
  }

  void read_field(csv_field& field) {
    field.offset = at_;
    field.line = line_;
    if (at_ < text_.size() && text_[at_] == '"') {
      read_quoted(field);
      return;
    }
    const char ends[] = {separator_, '\n', '\r', '"'};
    const std::size_t end = (std::min)(text_.find_first_of({ends, sizeof ends}, at_), text_.size());
    field.text.assign(text_.substr(at_, end - at_));
    at_ = end;
  }

  void read_quoted(csv_field& field) {
    field.text.clear();
    ++at_;
    while (true) {
      const std::size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos) {
        fail(field.offset, field.line, "a quote that ends the field that starts with one",
             "the end of the file");
      }
      const std::string_view piece = text_.substr(at_, quote - at_);
      field.text.append(piece);
      line_ += static_cast<std::uint64_t>(std::count(piece.begin(), piece.end(), '\n'));
      at_ = quote + 1;
      if (!text_.substr(at_).starts_with('"')) return;
      field.text.push_back('"');
      ++at_;
    }
  }

  std::string_view text_;
  std::string path_;
  char separator_;
  std::size_t at_ = 0;
  std::uint64_t line_ = 1;
  std::size_t columns_ = 0;  // of the first row; 0 before it
  std::vector<csv_field> fields_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
