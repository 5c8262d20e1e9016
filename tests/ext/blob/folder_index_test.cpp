// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/blob/detail/folder_index.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace ps = penstock;
using ps::detail::check_listing;
using ps::detail::folder_listing;
using ps::detail::listing_header;
using ps::detail::listing_parts;

namespace {

// Two classes, the first with a folder below it.
listing_parts right_parts() {
  listing_parts parts;
  parts.options = "options";
  parts.add_folder("", ps::detail::no_label, {1, 2, 3});
  parts.add_folder("cat", 0, {4, 5, 6});
  parts.add_file("1.jpg");
  parts.add_file("2.jpg");
  parts.add_folder("cat/wild", 0, {7, 8, 9});
  parts.add_file("3.jpg");
  parts.add_folder("dog", 1, {10, 11, 12});
  parts.add_file("1.jpg");
  return parts;
}

std::string_view checked(std::vector<std::byte> bytes) {
  ps::detail::seal_listing(bytes);
  return check_listing(folder_listing{std::move(bytes)});
}

// What is said of a listing after `change`, with a checksum that is right.
std::string_view after(const std::function<void(listing_parts&)>& change) {
  listing_parts parts = right_parts();
  change(parts);
  return checked(parts.joined());
}
std::string_view with_header(const std::function<void(listing_header&)>& change) {
  std::vector<std::byte> bytes = right_parts().joined();
  listing_header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return checked(std::move(bytes));
}

constexpr std::string_view impossible = "what it says can't be";
constexpr std::string_view length = "its length is not what it says";

}  // namespace

TEST_CASE("a listing comes back from its bytes", "[blob]") {
  std::vector<std::byte> bytes = right_parts().joined();
  ps::detail::seal_listing(bytes);
  const folder_listing listing{bytes};
  CHECK(check_listing(listing).empty());
  CHECK(listing.classes() == std::vector<std::string>{"cat", "dog"});
  CHECK(listing.options() == "options");
  REQUIRE(listing.header().files == 4);
  const std::vector<std::string> folders{"cat", "cat", "cat/wild", "dog"};
  const std::vector<std::string> names{"1.jpg", "2.jpg", "3.jpg", "1.jpg"};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(listing.path(listing.folder_of(i)) == folders[i]);
    CHECK(listing.name(i) == names[i]);
  }
  CHECK(listing.folders()[2].stamp == ps::detail::folder_stamp{7, 8, 9});
  CHECK(after([](listing_parts&) {}).empty());
  bytes.back() ^= std::byte{1};
  CHECK(check_listing(folder_listing{bytes}) == "it is damaged: its checksum differs");
}

TEST_CASE("a header says which format, and how long", "[blob]") {
  CHECK(check_listing(folder_listing{std::vector<std::byte>(71)}) == "it is no index");
  CHECK(with_header([](auto& header) { header.magic[7] = 's'; }) == "it is no index");
  const std::string_view other =
      "it is of another version of penstock, or of another kind of machine";
  CHECK(with_header([](auto& header) { ++header.version; }) == other);
  CHECK(with_header([](auto& header) { header.byte_order = 0x04030201; }) == other);
  CHECK(with_header([](auto& header) { ++header.total; }) == length);
  CHECK(with_header([](auto& header) { ++header.files; }) == length);
  CHECK(with_header([](auto& header) { ++header.names; }) == length);
  // Sums that wrap around to what they should be.
  CHECK(with_header([](auto& header) { header.files += std::uint64_t{1} << 62; }) == length);
  CHECK(with_header([](auto& header) { header.folders += std::uint64_t{1} << 61; }) == length);
  CHECK(with_header([](auto& header) {
          header.paths += std::uint64_t{1} << 63;
          header.names += std::uint64_t{1} << 63;
        }) == length);
  listing_header large;  // a file of holes
  large.names = std::uint64_t{5} << 30;
  large.total = sizeof large + sizeof(ps::detail::listed_folder) + large.names;
  CHECK(ps::detail::check_header(large, large.total) == "it is larger than 4 GiB");
  CHECK(folder_listing{}.header().files == 0);
}

TEST_CASE("a listing's folders lie below its root, in order", "[blob]") {
  const auto with_paths = [](std::string_view first, std::string_view second,
                             std::string_view third) {
    listing_parts parts;
    parts.add_folder("", ps::detail::no_label, {});
    parts.add_folder(first, 0, {});
    parts.add_folder(second, 0, {});
    parts.add_folder(third, 1, {});
    return checked(parts.joined());
  };
  CHECK(with_paths("cat", "cat/a", "dog").empty());
  for (const std::string_view path : {"cat/..", "cat/../../x", "cat/.", "cat//x", "cat/x/",
                                      "/cat/x", "", "dog/x", "ca/x", "catx/x", "cat"}) {
    CAPTURE(path);
    CHECK(with_paths("cat", path, "dog") == impossible);
  }
  CHECK(with_paths("cat", std::string_view{"cat/a\0b", 7}, "dog") == impossible);
  for (const std::string_view path : {"..", ".", "", "cat", "bat", "dog/x", "/"}) {
    CAPTURE(path);
    CHECK(with_paths("cat", "cat/a", path) == impossible);
  }
  CHECK(after([](auto& parts) { parts.folders[1].label = 1; }) == impossible);
  CHECK(after([](auto& parts) { parts.folders[2].label = 1; }) == impossible);
  CHECK(after([](auto& parts) { parts.folders[3].label = 0; }) == impossible);
  CHECK(after([](auto& parts) { parts.folders[3].label = 2; }) == impossible);
  CHECK(after([](auto& parts) { parts.folders[0].label = 0; }) == impossible);
  CHECK(after([](auto& parts) {
          for (auto& folder : parts.folders) ++folder.label;
        }) == impossible);
  listing_parts twice;
  twice.add_folder("", ps::detail::no_label, {});
  twice.add_folder("cat", 0, {});
  twice.add_folder("cat/b", 0, {});
  twice.add_folder("cat/a", 0, {});
  CHECK(checked(twice.joined()) == impossible);
  listing_parts named;
  named.add_folder("root", ps::detail::no_label, {});
  CHECK(checked(named.joined()) == impossible);
  listing_parts none;
  CHECK(checked(none.joined()) == impossible);
}

TEST_CASE("a listing's folders share out all paths, names and files", "[blob]") {
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(i);
    for (const std::uint64_t wrong : {std::uint64_t{100}, ~std::uint64_t{0}}) {
      CHECK(after([=](auto& parts) { parts.folders[i].first_file += wrong; }) == impossible);
      CHECK(after([=](auto& parts) { parts.folders[i].names_begin += wrong; }) == impossible);
      CHECK(after([=](auto& parts) { parts.folders[i].path_begin += wrong; }) == impossible);
    }
  }
  CHECK(after([](auto& parts) { parts.paths.back() = 'x'; }) == impossible);
  // Paths and names that no folder has.
  CHECK(after([](auto& parts) {
          parts.paths.insert(0, "xx");
          for (auto& folder : parts.folders) folder.path_begin += 2;
        }) == impossible);
  CHECK(after([](auto& parts) {
          parts.names.insert(0, "xx");
          for (auto& folder : parts.folders) folder.names_begin += 2;
        }) == impossible);
  // Files of the root itself.
  listing_parts parts;
  parts.add_folder("", ps::detail::no_label, {});
  parts.add_file("1.jpg");
  CHECK(checked(parts.joined()) == impossible);
  // The last entry says where the others end.
  std::vector<std::byte> bytes = right_parts().joined();
  auto* const end =
      reinterpret_cast<ps::detail::listed_folder*>(bytes.data() + sizeof(listing_header)) + 4;
  for (std::uint64_t* const value : {&end->first_file, &end->names_begin, &end->path_begin}) {
    ++*value;
    CHECK(checked(bytes) == impossible);
    *value -= 2;
    CHECK(checked(bytes) == impossible);
    ++*value;
  }
  CHECK(checked(bytes).empty());
}

TEST_CASE("the ends of a listing's folders hide nothing", "[blob]") {
  listing_parts parts;
  parts.add_folder("", ps::detail::no_label, {});
  parts.add_folder("cat", 0, {});
  parts.add_file("1.jpg");
  parts.add_file("2.jpg");
  parts.options = std::string(3, '\0');
  const auto with_end = [&](std::uint64_t files, std::uint64_t names) {
    std::vector<std::byte> bytes = parts.joined();
    auto* const end =
        reinterpret_cast<ps::detail::listed_folder*>(bytes.data() + sizeof(listing_header)) +
        parts.folders.size();
    end->first_file = files;
    end->names_begin = names;
    return checked(std::move(bytes));
  };
  CHECK(with_end(2, 12).empty());
  CHECK(with_end(1, 12) == impossible);  // one name that has the other in it
  CHECK(with_end(2, 13) == impossible);  // a name that has a byte of the options in it
  parts.add_folder("dog", 1, {});
  parts.add_file("3.jpg");
  CHECK(with_end(3, 18).empty());
  parts.folders[2].names_begin = 20;  // a name that ends before it starts
  CHECK(with_end(3, 18) == impossible);
}

TEST_CASE("no path is looked for behind a listing's end", "[blob]") {
  // Without a NUL behind it that would end the search.
  for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{1'000'000}}) {
    CAPTURE(begin);
    listing_parts parts;
    parts.add_folder("", ps::detail::no_label, {});
    parts.add_folder("cat", 0, {});
    parts.paths.assign(5, 'x');
    parts.options = "options";
    parts.folders[1].path_begin = begin;
    CHECK(checked(parts.joined()) == impossible);
  }
}

TEST_CASE("a listing's files have names in order, and no paths", "[blob]") {
  const auto with_names = [](std::string_view first, std::string_view second) {
    listing_parts parts;
    parts.add_folder("", ps::detail::no_label, {});
    parts.add_folder("cat", 0, {});
    parts.add_file(first);
    parts.add_file(second);
    return checked(parts.joined());
  };
  CHECK(with_names("a", "b").empty());
  for (const std::string_view name : {"a/b", "/", "..", ".", "", "c"}) {
    CAPTURE(name);
    CHECK(with_names(name, "b") == impossible);
  }
  CHECK(with_names("b", "b") == impossible);
  CHECK(with_names(std::string_view{"a\0c", 3}, "b") == impossible);
  CHECK(after([](auto& parts) { parts.name_offsets[0] = 1; }) == impossible);
  CHECK(after([](auto& parts) { parts.name_offsets[1] = 5; }) == impossible);
  CHECK(after([](auto& parts) { parts.name_offsets[1] = 0; }) == impossible);
  CHECK(after([](auto& parts) { parts.name_offsets[1] = 12; }) == impossible);
  CHECK(after([](auto& parts) { parts.name_offsets[1] = 0xffff'ffffU; }) == impossible);
  CHECK(after([](auto& parts) { parts.names.back() = 'x'; }) == impossible);
  CHECK(after([](auto& parts) { parts.names[2] = '\0'; }) == impossible);
  CHECK(after([](auto& parts) {  // an end moves into a name, and the number of ends stays
          parts.names[2] = '\0';
          parts.names[5] = 'x';
        }) == impossible);
  // Names that no file has.
  CHECK(after([](auto& parts) { parts.names.push_back('x'); }) == impossible);
  CHECK(after([](auto& parts) {
          parts.add_folder("emu", 2, {});
          parts.names.push_back('x');
        }) == impossible);
}
