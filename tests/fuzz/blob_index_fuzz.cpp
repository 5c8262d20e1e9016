// SPDX-License-Identifier: BSL-1.0
// An index file out of any bytes: it is refused, or a listing whose paths all stay below its
// folder. The same with a length and a checksum that are right, which random changes never are.
// A listing made of the bytes comes back.
#include <penstock_ext/blob/detail/folder_index.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/require.hpp"

namespace ps = penstock;

namespace {

bool is_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

void check(const ps::detail::folder_listing& listing) {
  const auto classes = listing.classes();
  fuzz::require(std::is_sorted(classes.begin(), classes.end()), "classes in order");
  fuzz::require(std::all_of(classes.begin(), classes.end(), is_name), "classes are names");
  std::string last;
  for (std::uint64_t i = 0; i < listing.header().files; ++i) {
    const auto& folder = listing.folder_of(i);
    fuzz::require(folder.label < classes.size(), "a label is that of a class");
    const std::string_view path = listing.path(folder);
    fuzz::require(path.substr(0, path.find('/')) == classes[folder.label], "below its class");
    for (std::size_t at = 0; at != std::string_view::npos;) {
      const std::size_t slash = path.find('/', at);
      fuzz::require(is_name(path.substr(at, slash - at)), "a path has names only");
      at = slash == std::string_view::npos ? slash : slash + 1;
    }
    fuzz::require(is_name(listing.name(i)), "a file has a name");
    std::string whole{path};
    whole.append(1, '\0').append(listing.name(i));
    fuzz::require(i == 0 || folder.label != listing.folder_of(i - 1).label || last < whole,
                  "files in order, each once");
    last = whole;
  }
  fuzz::require(listing.options().size() <= listing.bytes().size(), "options lie in the file");
}

// The bytes as an index whose header says what they are.
std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  if (bytes.size() < sizeof(ps::detail::listing_header)) return bytes;
  ps::detail::listing_header header;
  header.total = bytes.size();
  std::memcpy(bytes.data(), &header, offsetof(ps::detail::listing_header, folders));
  ps::detail::seal_listing(bytes);
  return bytes;
}

// The bytes as a listing: a line is a file, a line that starts with a digit a class.
void check_written(std::string_view text) {
  std::set<std::string> names;
  ps::detail::listing_parts parts;
  parts.options = text.substr(0, 10);
  parts.add_folder("", ps::detail::no_label, {1, 2, 3});
  std::vector<std::string> written;
  const auto add_files = [&] {
    for (const std::string& name : names) {
      parts.add_file(name);
      written.push_back(name);
    }
    names.clear();
  };
  std::uint64_t label = 0;
  while (!text.empty()) {
    const std::size_t end = (std::min)(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix((std::min)(end + 1, text.size()));
    if (!is_name(line)) continue;
    if (line.front() >= '0' && line.front() <= '9') {
      add_files();
      parts.add_folder("class " + std::to_string(10'000 + label), label, {label, 0, 0});
      ++label;
    } else if (label > 0) {
      names.emplace(line);
    }
  }
  add_files();
  auto bytes = parts.joined();
  ps::detail::seal_listing(bytes);
  const ps::detail::folder_listing listing{bytes};
  fuzz::require(ps::detail::check_listing(listing).empty(), "what was written is right");
  fuzz::require(listing.header().files == written.size(), "as many files");
  fuzz::require(listing.classes().size() == label, "as many classes");
  fuzz::require(listing.options() == parts.options, "the options come back");
  for (std::uint64_t i = 0; i < written.size(); ++i) {
    fuzz::require(listing.name(i) == written[i], "names come back");
  }
  check(listing);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto* first = reinterpret_cast<const std::byte*>(data);
  const std::vector<std::byte> bytes(first, first + size);
  for (const bool is_sealed : {false, true}) {
    const ps::detail::folder_listing listing{is_sealed ? sealed(bytes) : bytes};
    if (ps::detail::check_listing(listing).empty()) check(listing);
  }
  check_written({reinterpret_cast<const char*>(data), size});
  return 0;
}
