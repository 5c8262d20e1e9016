// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock_ext/blob/blob_buffer.hpp>
#include <penstock_ext/blob/blob_error.hpp>
#include <penstock_ext/blob/blob_source.hpp>
#include <penstock_ext/blob/detail/blob_file.hpp>
#include <penstock_ext/blob/detail/csv_rows.hpp>
#include <penstock_ext/blob/detail/descriptor.hpp>
#include <penstock_ext/files/support/file_bytes.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {

/// A file, and the label that it has.
struct blob_entry {
  std::string path;        ///< not empty
  std::int64_t label = 0;  ///< any number
};

/// How a `blob_list` reads its files.
struct blob_list_options {
  /// The folder from which paths start that do not start at the root; "" is the working directory
  /// at the construction and, for a list out of a CSV file, the folder of that file.
  std::string folder = {};
  /// The largest file that is read, in bytes: `bytes` throws `file_format_error` for a larger one,
  /// before it takes memory.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
};

/// A column of a CSV file: by its name in the first row, or by its number from 0.
class csv_column {
 public:
  /// Number `number`, from 0.
  template <std::integral Number>
  csv_column(Number number)  // NOLINT: implicit, for options
      : number_(std::in_range<std::size_t>(number) ? static_cast<std::size_t>(number) : none) {}
  /// The column called `name`.
  template <std::convertible_to<std::string> Name>
  csv_column(const Name& name)  // NOLINT: implicit, for options
      : name_(name), is_named_(true) {}

  /// Whether it is known by its name.
  [[nodiscard]] bool is_named() const noexcept { return is_named_; }
  /// Its name, "" for a number.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Its number; that of no column where a negative one was given.
  [[nodiscard]] std::size_t number() const noexcept { return number_; }
  /// For messages: "column 2" or "column \"label\"".
  [[nodiscard]] std::string str() const {
    return "column " + (is_named_ ? '"' + name_ + '"' : std::to_string(number_));
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};
  std::string name_;
  std::size_t number_ = 0;
  bool is_named_ = false;
};

/// What a CSV file holds.
struct csv_options {
  csv_column path = "path";      ///< the files' paths
  csv_column label = "label";    ///< the files' labels, whole numbers
  bool header = true;            ///< whether the first row has the columns' names
  char separator = ',';          ///< between fields; no quote and no line end
  blob_list_options files = {};  ///< how the files are read
};

/// Files anywhere, each with a label: a `blob_source`.
///
///     blob_list some{{{"a.jpg", 3}, {"/data/b.jpg", 5}}};
///     auto cassava = blob_list::from_csv("cassava/train.csv", {.path = "image_id"});
///
/// Takes 17 bytes and the path for a file, and one file descriptor. Opens no file before it is
/// read. Movable, not copyable. Reading is thread-safe.
class blob_list {
 public:
  /// Throws `option_error` for a path that is empty or has a NUL in it, and `folder_unreadable`.
  explicit blob_list(const std::vector<blob_entry>& entries, const blob_list_options& options = {})
      : blob_list(no_entries{}, options) {
    for (const blob_entry& one : entries) {
      if (!is_path(one.path)) {
        throw option_error("entries[" + std::to_string(size()) + "].path",
                           "must be neither empty nor have a NUL in it");
      }
      add(one.path, one.label);
    }
  }

  /// The list that the CSV file `path` holds, a file a row: RFC 4180, with LF or CR LF, in UTF-8 or
  /// what else has the bytes of ASCII. Lines without a byte are left out. Throws `csv_error`, which
  /// names line and byte, for what is no CSV, for a column that is not there, a path that is empty,
  /// a label that is no whole number of 64 bits; `file_unreadable`, `folder_unreadable`, and
  /// `option_error` for options that mean nothing.
  [[nodiscard]] static blob_list from_csv(const std::string& path,
                                          const csv_options& options = {}) {
    if (!options.header && (options.path.is_named() || options.label.is_named())) {
      throw option_error("header", "is false, and without names columns are known by numbers only");
    }
    if (options.separator == '"' || options.separator == '\n' || options.separator == '\r') {
      throw option_error("separator", "must be no quote and no line end");
    }
    const std::vector<std::byte> bytes = detail::read_file(path);
    blob_list_options files = options.files;
    if (files.folder.empty()) files.folder = path.substr(0, path.rfind('/') + 1);
    blob_list list{no_entries{}, files};
    list.read({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, options);
    return list;
  }

  /// How many files there are.
  [[nodiscard]] std::uint64_t size() const noexcept { return entries_.size(); }

  /// The content of file `index`, read into `buffer`. Throws `index_error`, `file_unreadable`,
  /// `file_format_error` above `max_bytes`, and `file_changed` where it was written to meanwhile.
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, blob_buffer& buffer) const {
    return detail::read_blob(place(at(index)), max_bytes_, buffer);
  }

  /// The label of file `index`. Throws `index_error`.
  [[nodiscard]] std::int64_t label(std::uint64_t index) const { return at(index).label; }
  /// The path of file `index` as it was given. Throws `index_error`.
  [[nodiscard]] std::string key(std::uint64_t index) const { return place(at(index)).name; }
  /// Has the system read the file ahead, as `image_folder::prefetch`.
  void prefetch(std::uint64_t index) const noexcept {
    if (index < size()) detail::prefetch_blob(place(entries_[static_cast<std::size_t>(index)]));
  }

 private:
  struct entry {
    std::size_t begin;  // of the path, which a NUL ends, in `paths_`
    std::int64_t label;
  };

  struct no_entries {};
  blob_list(no_entries, const blob_list_options& options)
      : folder_(options.folder),
        max_bytes_(options.max_bytes),
        base_(detail::open_folder(AT_FDCWD, folder_.empty() ? "." : folder_.c_str(), folder_)) {}

  [[nodiscard]] static bool is_path(std::string_view path) noexcept {
    return !path.empty() && path.find('\0') == std::string_view::npos;
  }

  void add(std::string_view path, std::int64_t label) {
    entries_.push_back({paths_.size(), label});
    paths_.append(path).push_back('\0');
  }

  // The number of `column`, in the header `names` if it has a name.
  [[nodiscard]] static std::size_t find(const detail::csv_rows& rows, const csv_column& column) {
    const auto& fields = rows.fields();
    std::size_t found = column.is_named() ? fields.size() : column.number();
    for (std::size_t i = 0; column.is_named() && i < fields.size(); ++i) {
      if (fields[i].text != column.name()) continue;
      if (found < fields.size()) rows.fail(fields[i], "one " + column.str(), "a second");
      found = i;
    }
    if (found >= fields.size()) {
      rows.fail(fields.front(), column.str(),
                std::to_string(fields.size()) + " columns, none of them this");
    }
    return found;
  }

  void read(std::string_view text, const std::string& path, const csv_options& options) {
    detail::csv_rows rows{text, path, options.separator};
    bool has_row = rows.next();
    if (!has_row) {
      if (options.header) rows.fail_here("the columns' names", "the end of the file");
      return;
    }
    const std::size_t path_column = find(rows, options.path);
    const std::size_t label_column = find(rows, options.label);
    if (options.header) has_row = rows.next();
    for (; has_row; has_row = rows.next()) {
      const detail::csv_field& file = rows.fields()[path_column];
      if (!is_path(file.text)) {
        rows.fail(file, "a path in " + options.path.str(), file.text.empty() ? "nothing" : "a NUL");
      }
      const detail::csv_field& label = rows.fields()[label_column];
      std::int64_t number = 0;
      const char* const end = label.text.data() + label.text.size();
      const auto read_to = std::from_chars(label.text.data(), end, number);
      if (read_to.ec != std::errc{} || read_to.ptr != end) {
        rows.fail(label, "a whole number of 64 bits in " + options.label.str(),
                  '\'' + label.text.substr(0, 40) + '\'');
      }
      add(file.text, number);
    }
  }

  [[nodiscard]] const entry& at(std::uint64_t index) const {
    if (index >= size()) throw index_error("blob_list", index, size());
    return entries_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] detail::blob_place place(const entry& one) const noexcept {
    return {base_.get(), paths_.data() + one.begin, folder_};
  }

  std::string folder_;
  std::uint64_t max_bytes_;
  detail::descriptor base_;
  std::string paths_;
  std::vector<entry> entries_;
};

static_assert(blob_source<blob_list>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
