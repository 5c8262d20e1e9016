// SPDX-License-Identifier: BSL-1.0
// A CSV file out of any bytes: it is read, and comes back when its fields are written in quotes; or
// it is refused with a line and a byte that it has. A list out of it has paths and nothing else.
#include <penstock_ext/blob/blob_list.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

using table = std::vector<std::vector<std::string>>;

table rows_of(std::string_view text) {
  ps::detail::csv_rows rows{text, "fuzzed", ','};
  table all;
  std::uint64_t last = 0;
  while (rows.next()) {
    std::vector<std::string> row;
    for (const ps::detail::csv_field& field : rows.fields()) {
      fuzz::require(field.offset >= last && field.offset <= text.size(), "a field lies behind");
      last = field.offset;
      row.push_back(field.text);
    }
    fuzz::require(all.empty() || all[0].size() == row.size(), "rows of one length");
    all.push_back(row);
  }
  return all;
}

std::string quoted(const table& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (const std::string& field : row) {
      text += &field == row.data() ? "\"" : ",\"";
      for (const char c : field) text += c == '"' ? std::string{"\"\""} : std::string{c};
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

void require_place(const ps::csv_error& error, std::string_view text) {
  const auto lines = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  fuzz::require(error.offset() <= text.size(), "an error points into the file");
  fuzz::require(error.line() >= 1 && error.line() <= lines, "an error names a line of the file");
  const auto before = text.substr(0, static_cast<std::size_t>(error.offset()));
  fuzz::require(error.line() ==
                    static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n')) + 1,
                "the line is that of the byte");
}

void check_list(std::string_view text, const ps::csv_options& options) {
  static const int file = ::memfd_create("fuzzed", MFD_CLOEXEC);
  fuzz::require(::ftruncate(file, 0) == 0 && ::pwrite(file, text.data(), text.size(), 0) ==
                                                 static_cast<ssize_t>(text.size()),
                "the file is written");
  try {
    const auto list = ps::blob_list::from_csv("/proc/self/fd/" + std::to_string(file), options);
    for (std::uint64_t i = 0; i < list.size(); ++i) {
      const std::string key = list.key(i);
      fuzz::require(!key.empty() && key.find('\0') == std::string::npos, "a path is one");
      static_cast<void>(list.label(i));
    }
  } catch (const ps::csv_error& error) {
    require_place(error, text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    const table rows = rows_of(text);
    fuzz::require(rows_of(quoted(rows)) == rows, "what is written in quotes comes back");
  } catch (const ps::csv_error& error) {
    require_place(error, text);
  }
  // Once for sixteen inputs: reading a file takes a large buffer.
  if (size % 16 != 0) return 0;
  check_list(text, {});
  check_list(text, {.path = 0, .label = 1, .header = false, .separator = ';'});
  return 0;
}
