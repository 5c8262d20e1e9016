// SPDX-License-Identifier: BSL-1.0
// Reads the files that a CSV file lists with their labels. The first line is "path,label", and each
// further line names one file. The parser accepts the output of spreadsheets and pandas: quoted
// cells, CRLF, a byte order mark, empty lines, and a last line without a newline. Anything else is
// an error with the file and the line. `blob_list` takes paths and labels from any source.
//
// penstock_20_csv_list [LIST.csv]: without an argument, the program creates a list of two files
#include <penstock_ext/blob/blob_list.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <ios>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace ps = penstock;

// Splits a line of CSV into cells. Quotes around a cell protect commas, and "" inside a quoted cell
// is a quote.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t at = 0;; ++at) {
    std::string& cell = cells.emplace_back();
    if (at < line.size() && line[at] == '"') {
      for (++at; at < line.size() && (line[at] != '"' || line.compare(at, 2, "\"\"") == 0); ++at) {
        cell += line[at];
        if (line[at] == '"') ++at;
      }
      if (at == line.size()) throw std::runtime_error("a quote that is not closed in its line");
      ++at;
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      cell = line.substr(at, end - at);
      at = end;
    }
    if (at == line.size()) return cells;
    if (line[at] != ',') throw std::runtime_error("text between a quote and the comma");
  }
}

// Returns the file and the label in a line.
ps::blob_entry entry_of(const std::string& line) {
  const std::vector<std::string> cells = cells_of(line);
  if (cells.size() != 2 || cells[0].empty()) {
    throw std::runtime_error("expected a path and a label, found " + line);
  }
  const std::string& label = cells[1];
  ps::blob_entry entry{cells[0], 0};
  const auto [end, problem] =
      std::from_chars(label.data(), label.data() + label.size(), entry.label);
  if (problem != std::errc{} || end != label.data() + label.size()) {
    throw std::runtime_error("expected a whole number of 64 bits as the label, found " + label);
  }
  return entry;
}

ps::blob_list list_of(const std::filesystem::path& csv) {
  std::ifstream file{csv, std::ios::binary};
  std::vector<ps::blob_entry> entries;
  bool has_header = false;
  std::size_t number = 0;
  try {
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty()) continue;
      if (has_header) {
        entries.push_back(entry_of(line));
      } else if (cells_of(line) != std::vector<std::string>{"path", "label"}) {
        throw std::runtime_error("expected the columns path,label, found " + line);
      }
      has_header = true;
    }
    if (!file.eof()) throw std::runtime_error("the file can't be read");
    if (!has_header) throw std::runtime_error("expected the columns path,label, found nothing");
    if (entries.empty()) throw std::runtime_error("expected a line for each file, found none");
  } catch (const std::runtime_error& problem) {
    throw std::runtime_error(csv.string() + ":" + std::to_string(number) + ": " + problem.what());
  }
  return ps::blob_list{entries, {.folder = csv.parent_path().string()}};
}

int main(int argc, char** argv) try {
  std::filesystem::path csv = argc > 1 ? argv[1] : "";
  if (csv.empty()) {
    csv = std::filesystem::temp_directory_path() / "penstock_20_csv_list.csv";
    if (!(std::ofstream{csv} << "path,label\n/etc/hostname,3\n/etc/passwd,5\n").flush()) {
      throw std::runtime_error("can't write " + csv.string());
    }
  }
  const ps::blob_list files = list_of(csv);
  for (std::uint64_t i = 0; i < files.size(); ++i) {
    std::cout << files.key(i) << " has label " << files.label(i) << '\n';
  }
  return EXIT_SUCCESS;
} catch (const std::exception& problem) {
  std::cerr << "20_csv_list: " << problem.what() << '\n';
  return EXIT_FAILURE;
}
