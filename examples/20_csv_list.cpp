// SPDX-License-Identifier: BSL-1.0
// Files that a CSV file names, each with its label: "path,label" in the first line, then a file a
// line, without quotes. A list of any other kind is made in the same way: `blob_list` takes paths
// and labels, wherever they come from.
//
//   penstock_20_csv_list [LIST.csv]   without one: a list of two files, made here
#include <penstock_ext/blob/blob_list.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ps = penstock;

ps::blob_list list_of(const std::filesystem::path& csv) {
  std::ifstream file{csv};
  std::string row;
  if (!std::getline(file, row) || row != "path,label") {
    throw std::runtime_error(csv.string() + ": no line \"path,label\" first");
  }
  std::vector<ps::blob_entry> entries;
  while (std::getline(file, row)) {
    const auto comma = row.rfind(',');
    if (comma == std::string::npos) throw std::runtime_error(csv.string() + ": no label: " + row);
    entries.push_back({row.substr(0, comma), std::stoll(row.substr(comma + 1))});
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
  return files.size() == 0 ? EXIT_FAILURE : EXIT_SUCCESS;
} catch (const std::exception& problem) {
  std::cerr << "20_csv_list: " << problem.what() << '\n';
  return EXIT_FAILURE;
}
