// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/npy_dataset.hpp>
#include <penstock_ext/narrow/half.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/read_batch.hpp"
#include "ext/files/npy_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::error_of;
using test::npy;
using test::npy_of;

namespace {

using pair_record = ps::record<ps::field<"x", float, 2, 3>, ps::field<"y", std::int64_t>>;
using column = ps::record<ps::field<"x", std::uint16_t>>;

ps::detail::npy_header header_of(const std::string& bytes) {
  return ps::detail::npy_header_parser{
      {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "file.npy", 100}
      .read();
}

// Returns the little-endian values 0, 1, 2, ... of type T.
template <class T>
std::vector<T> counted(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(i);
  return values;
}

std::string floats(std::size_t samples) { return test::bytes_of(counted<float>(samples * 6)); }
std::string labels(std::size_t samples) { return test::bytes_of(counted<std::int64_t>(samples)); }

template <class Error, class Record = column>
Error opened_error(const std::string& bytes) {
  const test::temp_dir dir;
  const std::string path = test::write_file(dir.path("x.npy"), bytes);
  auto problem = error_of<Error>([&] { ps::npy_dataset<Record>{path}; });
  CHECK(problem.path() == path);
  return problem;
}

}  // namespace

TEST_CASE("npy files are the fields of a record", "[data]") {
  const test::temp_dir dir;
  test::write_file(dir.path("x.npy"), npy("<f4", "5, 2, 3", floats(5)));
  test::write_file(dir.path("y.npy"), npy("<i8", "5,", labels(5)));
  ps::npy_dataset<pair_record> data{dir.path("x.npy"), dir.path("y.npy")};
  REQUIRE(data.size() == 5);
  auto batch = test::read_batch(data, {4, 0, 3});
  CHECK(batch.get<"x">()(0, 1, 2) == 29.0F);
  CHECK(batch.get<"x">()(1, 0, 0) == 0.0F);
  CHECK(batch.get<"x">()(2, 0, 1) == 19.0F);
  CHECK(batch.get<"y">()(0) == 4);
  CHECK(batch.get<"y">()(1) == 0);
  CHECK(batch.get<"y">()(2) == 3);
  CHECK(error_of<ps::index_error>([&] { test::read_batch(data, {5}); }).size() == 5);
  data.prefetch(5);
  // The dataset can still read its files after their removal, even after a move.
  std::filesystem::remove(dir.path("x.npy"));
  const ps::npy_dataset<pair_record> moved{std::move(data)};
  CHECK(test::read_batch(moved, {4}).get<"x">()(0, 0, 0) == 24.0F);
}

TEST_CASE("dynamic extents are those of the npy file", "[data]") {
  const test::temp_dir dir;
  using any = ps::record<ps::field<"x", float, ps::dyn, 3>>;
  test::write_file(dir.path("x.npy"), npy("<f4", "5, 2, 3", floats(5)));
  const ps::npy_dataset<any> data{dir.path("x.npy")};
  CHECK(data.extents().at<0>()[0] == 2);
  CHECK(test::read_batch(data, {1}).get<"x">()(0, 1, 2) == 11.0F);
  test::write_file(dir.path("empty.npy"), npy("<f4", "0, 2, 3", ""));
  CHECK(ps::npy_dataset<any>{dir.path("empty.npy")}.size() == 0);
}

TEST_CASE("elements of the other byte order are swapped", "[data]") {
  const test::temp_dir dir;
  const auto all_orders = [&]<class T>(T, const std::string& type) {
    using one = ps::record<ps::field<"x", T, 3>>;
    const std::vector<T> values = counted<T>(12);
    for (const bool is_other : {false, true}) {
      const bool is_big = is_other == (std::endian::native == std::endian::little);
      const std::string path = test::write_file(
          dir.path("x.npy"),
          npy((is_big ? '>' : '<') + type, "4, 3", test::bytes_of(values, is_other)));
      const ps::npy_dataset<one> data{path};
      CHECK(test::values<"x">(test::read_batch(data, {0, 1, 2, 3})) == values);
    }
  };
  all_orders(std::int16_t{}, "i2");
  all_orders(std::uint32_t{}, "u4");
  all_orders(float{}, "f4");
  all_orders(double{}, "f8");
  const std::string path = test::write_file(dir.path("b.npy"), npy("|u1", "3", "abc"));
  using bytes = ps::record<ps::field<"x", std::uint8_t>>;
  CHECK(test::values<"x">(test::read_batch(ps::npy_dataset<bytes>{path}, {2, 1, 0})) ==
        std::vector<std::uint8_t>{'c', 'b', 'a'});
  test::write_file(dir.path("b.npy"), npy("|b1", "2", std::string_view{"\1\0", 2}));
  using bools = ps::record<ps::field<"x", bool>>;
  CHECK(test::read_batch(ps::npy_dataset<bools>{path}, {0}).get<"x">()(0));
}

TEST_CASE("an npy header of any version is parsed by its keys", "[data]") {
  for (const unsigned version : {1U, 2U, 3U}) {
    const auto header = header_of(npy_of(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 28, 28), }   \n", "", version));
    CHECK(header.descr == "<f4");
    CHECK(header.lengths == std::vector<std::uint64_t>{3, 28, 28});
    CHECK(header.bytes == 3 * 28 * 28 * 4);
    CHECK(header.data == (version == 1 ? 78 : 80));
    CHECK(header.descr_at == 100 + (version == 1 ? 20 : 22));
  }
  for (const std::string_view text :
       {"{'shape':(3L,),'fortran_order':False,'descr':\"|u1\"}",
        " { 'shape' : ( 3 , ) , 'fortran_order' : False , 'descr' : '|u1' , } \n",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (3)}"}) {
    CHECK(header_of(npy_of(text, "")).lengths == std::vector<std::uint64_t>{3});
  }
}

TEST_CASE("an npy header may leave out the byte order, and that of a vector's columns", "[data]") {
  CHECK(header_of(npy_of("{'descr': 'f4', 'fortran_order': False, 'shape': (3,), }", "")).descr ==
        "=f4");
  for (const std::string_view shape : {"3,", "1, 3, 1", "0,", "1"}) {
    std::string text{"{'fortran_order': True, 'descr': '<f4', 'shape': ("};
    CHECK_NOTHROW(header_of(npy_of(text.append(shape).append(")}"), "")));
  }
}

TEST_CASE("halves, bfloat16 and dates are read bit by bit", "[data]") {
  const test::temp_dir dir;
  const auto values = []<class T>(T, const std::string& path) {
    const ps::npy_dataset<ps::record<ps::field<"x", T>>> data{path};
    return test::values<"x">(test::read_batch(data, {0, 1, 2}));
  };
  const std::vector<std::uint16_t> bits{0x3c00, 0xc000, 0x3555};
  for (const bool is_turned : {false, true}) {
    const std::string path = test::write_file(
        dir.path("half.npy"),
        npy(std::string{is_turned ? ">" : "<"} + "f2", "3", test::bytes_of(bits, is_turned)));
    CHECK(values(std::uint16_t{}, path) == bits);
    const auto halves = values(ps::half{}, path);
    CHECK((halves[0] == 1.0F && halves[1] == -2.0F));
    CHECK_THROWS_AS(values(ps::bfloat16{}, path), ps::element_type_mismatch);
    CHECK_THROWS_AS(values(std::int16_t{}, path), ps::element_type_mismatch);
  }
  const std::string path =
      test::write_file(dir.path("bfloat16.npy"), npy("|V2", "3", test::bytes_of(bits)));
  CHECK(values(std::uint16_t{}, path) == bits);
  CHECK(values(ps::bfloat16{}, path)[1] == -2.0F);
  CHECK_THROWS_AS(values(ps::half{}, path), ps::element_type_mismatch);
  const std::vector<std::int64_t> days{1, -2, 3};
  const std::string dates =
      test::write_file(dir.path("dates.npy"), npy("<M8[ns]", "3", test::bytes_of(days)));
  CHECK(values(std::int64_t{}, dates) == days);
  CHECK_THROWS_AS(values(std::uint64_t{}, dates), ps::element_type_mismatch);
  CHECK_THROWS_AS(values(double{}, dates), ps::element_type_mismatch);
}

TEST_CASE("an invalid npy header reports the offset", "[data][fault:files-10]") {
  const auto rejected = [](std::string_view text) {
    return error_of<ps::file_format_error>([&] { (void)header_of(npy_of(text, "")); });
  };
  const std::string_view right = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }\n";
  REQUIRE(header_of(npy_of(right, "")).bytes == 12);
  for (std::size_t i = 0; i < right.size() - 2; ++i) {
    CAPTURE(i);
    const auto problem = rejected(right.substr(0, i));
    CHECK(problem.offset() <= 100 + 10 + i);
    CHECK(problem.path() == "file.npy");
  }
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text{right};
    return rejected(text.replace(text.find(from), from.size(), to));
  };
  CHECK(with("'descr'", "'desc'").offset() == 111);
  CHECK(with("'shape'", "'descr'").found() == "'descr'");
  const auto columns_first =
      rejected("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }\n");
  CHECK(columns_first.offset() == 110 + 34);
  CHECK(columns_first.found() ==
        "columns first (Fortran order): save numpy.ascontiguousarray of the array");
  CHECK(with("False", "0").expected() == "True or False");
  CHECK(test::has(with("'<f4'", "[('a', '<f4')]").found(), "a structure"));
  CHECK(test::has(with("'<f4'", "'|O'").found(), "pickled"));
  CHECK(with("'<f4'", "'f'").expected() == "a type such as '<f4'");
  CHECK(with("'<f4'", "'<'").expected() == "a type such as '<f4'");
  CHECK(with("3,", "-3").expected() == "a length of 64 bits");
  CHECK(with("3,", "18446744073709551616").expected() == "a length of 64 bits");
  CHECK(with("3,", "3 3").found() == "'3'");
  CHECK(with("}\n", "} x").expected() == "spaces to the end of the header");
  CHECK(with("(3,), }", "__import__('os')}").found() == "'_'");
}

TEST_CASE("an npy file of an unsupported kind is rejected", "[data][fault:files-10]") {
  const std::string right = npy("<u2", "3,", "abcdef");
  CHECK(opened_error<ps::file_truncated>("").offset() == 0);
  CHECK(opened_error<ps::file_truncated>(right.substr(0, 7)).offset() == 7);
  CHECK(opened_error<ps::file_truncated>(right.substr(0, 9)).offset() == 9);
  CHECK(opened_error<ps::file_truncated>(right.substr(0, 100)).offset() == 100);
  CHECK(opened_error<ps::file_format_error>("hello").offset() == 0);
  CHECK(test::has(opened_error<ps::file_format_error>("PK\3\4....").found(), "penstock::npz"));
  std::string version = right;
  version[6] = 4;
  CHECK(opened_error<ps::file_format_error>(version).found() == "4.0");
  version[6] = 1;
  version[7] = 1;
  CHECK(opened_error<ps::file_format_error>(version).found() == "1.1");
  const auto too_long = opened_error<ps::file_format_error>(std::string{"\x93NUMPY\2\0", 8} +
                                                            test::little((1U << 20) + 1, 4));
  CHECK(too_long.expected() == "a header of at most 1 MiB");
  const auto cut = opened_error<ps::file_truncated>(right.substr(0, right.size() - 1));
  CHECK(cut.offset() == right.size() - 1);
  CHECK(cut.expected() == "6 bytes of elements");
  const auto longer = opened_error<ps::file_format_error>(right + "x");
  CHECK(longer.offset() == right.size());
  CHECK(longer.found() == "more bytes than given by the shape");
  CHECK(opened_error<ps::element_type_mismatch>(npy("<c16", "3", "")).found() == "'<c16'");
  CHECK(opened_error<ps::element_type_mismatch>(npy("<U", "3", "")).found() == "'<U'");
  CHECK(
      opened_error<ps::element_type_mismatch>(npy("<f18446744073709551620", "3", "")).expected() ==
      "numbers of at most 8 bytes");
  CHECK(opened_error<ps::dimension_mismatch>(npy("<u2", "", "ab")).found() == "a scalar");
  (void)opened_error<ps::dimension_mismatch>(npy("<u2", "9223372036854775808, 1", ""));
  {  // zero rows, but each row would be too long
    const test::temp_dir dir;
    const auto path = test::write_file(dir.path("x.npy"), npy("<f4", "0, 4611686018427387904", ""));
    using rows = ps::record<ps::field<"x", float, ps::dyn>>;
    const auto rejected =
        error_of<ps::dimension_mismatch>([&] { ps::npy_dataset<rows> data{path}; });
    CHECK(rejected.path() == path);
  }
}

TEST_CASE("an array that does not match its field is rejected by name", "[data][fault:files-10]") {
  const auto type = opened_error<ps::element_type_mismatch>(npy("<i2", "1,", "ab"));
  CHECK(type.expected() == "elements of type 'u2' for field \"x\"");
  CHECK(type.found() == "'<i2'");
  const auto rank = opened_error<ps::dimension_mismatch>(npy("<u2", "1, 1", "ab"));
  CHECK(rank.expected() == "1 dimensions for field \"x\"");
  CHECK(rank.found() == "2");
  using three = ps::record<ps::field<"x", std::uint16_t, ps::dyn, 3>>;
  const auto length =
      opened_error<ps::dimension_mismatch, three>(npy("<u2", "1, 1, 2", std::string(4, 'x')));
  CHECK(length.expected() == "3 in dimension 2 for field \"x\"");
  CHECK(length.found() == "2");
  CHECK(opened_error<ps::dimension_mismatch, three>(npy("<u2", "1, 0, 3", "")).expected() ==
        "1 or more in dimension 1 for field \"x\"");
  const test::temp_dir dir;
  const std::string x = test::write_file(dir.path("x.npy"), npy("<f4", "2, 2, 3", floats(2)));
  const std::string y = test::write_file(dir.path("y.npy"), npy("<i8", "3", labels(3)));
  const auto count = error_of<ps::length_mismatch>([&] { ps::npy_dataset<pair_record>{x, y}; });
  CHECK(count.path() == y);
  CHECK(count.expected() == "2 samples as in " + x);
  CHECK(count.found() == "3");
  CHECK(error_of<ps::file_unreadable>([&] { ps::npy_dataset<column>{dir.path("none")}; }).path() ==
        dir.path("none"));
  CHECK(error_of<ps::file_unreadable>([&] { ps::npy_dataset<column>{dir.path("")}; }).found() ==
        "a file that is not a regular file");
}

TEST_CASE("the arrays of an npz file are the fields of a record", "[data]") {
  const test::temp_dir dir;
  const std::string x = npy("<f4", "3, 2, 3", floats(3));
  const std::string y = npy("<i8", "3,", labels(3));
  for (const bool zip64 : {false, true}) {
    const std::string path = test::write_file(
        dir.path("both.npz"),
        test::zip({{"other.npy", "odd", 8}, {"y.npy", y, 0, 0, zip64}, {"x.npy", x, 0, 0, zip64}},
                  zip64));
    const ps::npy_dataset<pair_record> data{ps::npz{path}};
    REQUIRE(data.size() == 3);
    CHECK(test::values<"y">(test::read_batch(data, {2, 1, 0})) ==
          std::vector<std::int64_t>{2, 1, 0});
    CHECK(test::read_batch(data, {2}).get<"x">()(0, 1, 2) == 17.0F);
    using labels_only = ps::record<ps::field<"z", std::int64_t>>;
    CHECK(ps::npy_dataset<labels_only>{ps::npz{path}, "y"}.size() == 3);
    const auto none =
        error_of<ps::file_format_error>([&] { ps::npy_dataset<labels_only>{ps::npz{path}}; });
    CHECK(none.expected() == "an entry 'z.npy'");
    CHECK(none.found() == "no entry of that name");
    const auto packed = error_of<ps::file_format_error>(
        [&] { ps::npy_dataset<labels_only>{ps::npz{path}, "other"}; });
    CHECK(test::has(packed.found(), "savez_compressed"));
    using wrong = ps::record<ps::field<"y", float>>;
    const auto type =
        error_of<ps::element_type_mismatch>([&] { ps::npy_dataset<wrong>{ps::npz{path}}; });
    CHECK(type.path() == path + "/y.npy");
    CHECK(type.offset() > 30);
  }
}

TEST_CASE("the members of an npz file are compared with their CRC-32 if requested",
          "[data][fault:files-10]") {
  const test::temp_dir dir;
  // The checksum comes from Python's zlib.
  const std::string x = npy("<u2", "4,", "penstock");
  const std::string right = test::zip({{"x.npy", x, 0, 0, false, 0x0e7a361dU}, {"y.npy", "odd"}});
  const auto values_in = [&](const std::string& bytes, bool verify) {
    const std::string path = test::write_file(dir.path("x.npz"), bytes);
    const ps::npy_dataset<column> data{ps::npz{.path = path, .verify = verify}};
    return test::values<"x">(test::read_batch(data, {0, 1, 2, 3}));
  };
  const auto whole = values_in(right, true);
  constexpr std::size_t header = 30 + 5;  // size of the entry's header and name
  std::size_t unseen = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    CAPTURE(i);
    std::string damaged = right;
    damaged[header + i] = static_cast<char>(damaged[header + i] ^ (1 << i % 8));
    const auto problem = error_of<ps::file_corrupt>([&] { values_in(damaged, true); });
    CHECK(problem.path() == dir.path("x.npz/x.npy"));
    CHECK(problem.offset() == header);
    CHECK(problem.expected() == "CRC-32 0e7a361d, according to the archive's directory");
    CHECK(test::has(problem.found(), ": the archive is damaged: copy or write it again"));
    try {
      if (values_in(damaged, false) != whole) ++unseen;
    } catch (const ps::file_error&) {  // the npy header is invalid
    }
  }
  CHECK(unseen == 8);  // the element bytes, in which only the checksum detects damage
}

TEST_CASE("a damaged npz file is rejected", "[data][fault:files-10]") {
  const test::temp_dir dir;
  const std::string y = npy("<u2", "1,", "ab");
  const auto open = [&](const std::string& bytes) {
    const std::string path = test::write_file(dir.path("x.npz"), bytes);
    return ps::npy_dataset<column>{ps::npz{path}}.size();
  };
  const std::string right = test::zip({{"x.npy", y}});
  const std::string right64 = test::zip({{"x.npy", y, 0, 0, true}}, true);
  REQUIRE(open(right) == 1);
  REQUIRE(open(right64) == 1);
  // An archive with a comment.
  CHECK(open(right.substr(0, right.size() - 2) + test::little(3, 2) + "abc") == 1);
  // An end record inside a comment of 24 bytes.
  const std::string fake = "PK\5\6" + std::string(18, '\0') + "zz";
  CHECK(open(right.substr(0, right.size() - 2) + test::little(24, 2) + fake) == 1);
  std::string overlapping = right;
  for (const std::size_t at : {std::size_t{20}, std::size_t{24}}) {
    overlapping[30 + 5 + y.size() + at] = static_cast<char>(y.size() + 1);
  }
  CHECK(error_of<ps::file_corrupt>([&] { open(overlapping); }).offset() == 0);
  for (std::size_t i = 4; i < right.size(); ++i) {
    CAPTURE(i);
    CHECK(error_of<ps::file_truncated>([&] { open(right.substr(0, i)); }).offset() == i);
  }
  (void)error_of<ps::file_format_error>([&] { open(""); });
  (void)error_of<ps::file_format_error>([&] { open("\x93NUMPY" + std::string(30, 'x')); });
  CHECK(test::has(
      error_of<ps::file_format_error>([&] { open(test::zip({{"x.npy", y, 0, 1}})); }).expected(),
      "not encrypted"));
  CHECK(error_of<ps::file_format_error>([&] {
          open(test::zip({{"x.npy", y}, {"x.npy", y}}));
        }).found() == "a second");
  CHECK(error_of<ps::file_format_error>([&] { open(test::zip({})); }).found() ==
        "no entry of that name");
  // Corrupts the offset and length fields of the archive, one at a time.
  const std::size_t directory = 30 + 5 + y.size();
  const auto damaged = [&](std::string bytes, std::size_t at, char value) {
    bytes[at] = value;
    return error_of<ps::file_corrupt>([&] { open(bytes); }).offset();
  };
  const std::size_t end = directory + 46 + 5;
  CHECK(damaged(right, end + 13, 'x') == end);                   // the length of the directory
  CHECK(damaged(right, end + 17, 'x') == end);                   // the position of the directory
  CHECK(damaged(right, directory, 'x') == directory);            // the first entry
  CHECK(damaged(right, directory + 29, 'x') == directory);       // the length of a name
  CHECK(damaged(right, directory + 20, 'x') == directory + 20);  // the stored size
  CHECK(damaged(right, directory + 43, 'x') == directory + 42);  // the position of the entry
  // The entry name that precedes the contents is corrupted.
  CHECK(damaged(right, 30, 'y') == 0);
  // The length of the extra field between the name and the contents is corrupted.
  CHECK(damaged(right, 29, 'x') == 0);
  const std::size_t end64 = right64.size() - 22;
  CHECK(damaged(right64, end64 - 20 + 15, 'x') == end64 - 20);
  CHECK(damaged(right64, end64 - 20 - 56, 'x') == end64 - 20);
  CHECK(damaged(right64, end64 - 20 - 1, 'x') == end64);
  const std::size_t extra = right64.find("x.npy", 35) + 5 + 6;
  CHECK(damaged(right64, extra + 2, '\7') == extra + 4);
  CHECK(damaged(right64, extra + 3, '\7') == extra + 4);
  CHECK(damaged(right64, extra + 4, '\7') == right64.find("PK\1\2") + 20);
  CHECK(damaged(right64, extra + 27, '\7') == right64.find("PK\1\2") + 42);
}
