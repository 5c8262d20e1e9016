// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/files/idx_dataset.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <typeinfo>
#include <vector>

#include "ext/files/idx_bytes.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::idx_bytes;

namespace {

template <class E>
E idx_error_in(const test::file_bytes& bytes) {
  const test::temp_dir dir;
  const std::string path = dir.write("file", bytes);
  const E problem = error_of<E>([&] { ps::detail::idx_file file{path}; });
  CHECK(problem.path() == path);
  return problem;
}

}  // namespace

TEST_CASE("an IDX file provides its type, dimensions and elements", "[data]") {
  const test::temp_dir dir;
  const ps::detail::idx_file file{dir.write("file", idx_bytes(u8, {4, 2, 3}, counted(24)))};
  CHECK(file.type() == ps::detail::idx_type::u8);
  REQUIRE(file.lengths().size() == 3);
  CHECK(file.lengths()[0] == 4);
  CHECK(file.lengths()[2] == 3);
  const auto values = file.values<std::uint8_t>();
  REQUIRE(values.size() == 24);
  CHECK(values[0] == 0);
  CHECK(values[23] == 23);
}

TEST_CASE("elements of more than one byte are converted to the machine's byte order", "[data]") {
  const test::temp_dir dir;
  const auto open = [&](std::uint8_t type, const test::file_bytes& bytes) {
    return ps::detail::idx_file{dir.write("file", idx_bytes(type, {2}, bytes))};
  };
  const auto bytes = open(i8, {0x01, 0xff});
  CHECK(bytes.values<std::int8_t>()[1] == -1);
  const auto shorts = open(i16, {0x01, 0x02, 0xff, 0xfe});
  CHECK(shorts.values<std::int16_t>()[0] == 0x0102);
  CHECK(shorts.values<std::int16_t>()[1] == -2);
  const auto words = open(i32, {0x01, 0x02, 0x03, 0x04, 0xff, 0xff, 0xff, 0xff});
  CHECK(words.values<std::int32_t>()[0] == 0x01020304);
  CHECK(words.values<std::int32_t>()[1] == -1);
  const auto floats = open(f32, {0x3f, 0x80, 0x00, 0x00, 0xc0, 0x20, 0x00, 0x00});
  CHECK(floats.values<float>()[0] == 1.0F);
  CHECK(floats.values<float>()[1] == -2.5F);
  const auto doubles = open(f64, {0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xc0, 0x04, 0, 0, 0, 0, 0, 0});
  CHECK(doubles.values<double>()[0] == 1.0);
  CHECK(doubles.values<double>()[1] == -2.5);
}

TEST_CASE("elements are read only as the type they have", "[data][fault:files-2]") {
  const test::temp_dir dir;
  const ps::detail::idx_file file{dir.write("file", idx_bytes(i16, {1}, {0, 1}))};
  const auto problem =
      error_of<ps::element_type_mismatch>([&] { (void)file.values<std::uint8_t>(); });
  CHECK(problem.offset() == 2);
  CHECK(problem.expected() == "elements of type uint8 (0x08)");
  CHECK(problem.found() == "int16 (0x0b)");
}

TEST_CASE("a truncated IDX file is rejected wherever it ends",
          "[data][promise:honest-6][fault:files-2]") {
  const test::file_bytes whole = idx_bytes(u8, {2, 3}, counted(6));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    test::file_bytes part = whole;
    part.resize(size);
    const auto problem = idx_error_in<ps::file_truncated>(part);
    CHECK(problem.offset() == size);
  }
  test::file_bytes part = whole;
  part.pop_back();
  const auto problem = idx_error_in<ps::file_truncated>(part);
  CHECK(problem.expected() == "6 bytes of elements");
  CHECK(problem.found() == "the end of the file after 5");
}

TEST_CASE("bytes after the elements are rejected", "[data][fault:files-2]") {
  const auto problem = idx_error_in<ps::file_format_error>(idx_bytes(u8, {2, 3}, counted(7)));
  CHECK(problem.offset() == 18);
  CHECK(problem.expected() == "the end of the file");
}

TEST_CASE("a wrong magic number is rejected at its byte",
          "[data][promise:honest-6][fault:files-2]") {
  CHECK(idx_error_in<ps::file_format_error>({1, 0, 8, 1, 0, 0, 0, 0}).offset() == 0);
  CHECK(idx_error_in<ps::file_format_error>({0, 7, 8, 1, 0, 0, 0, 0}).offset() == 1);
  const auto packed =
      idx_error_in<ps::file_format_error>({0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 2});
  CHECK(packed.found() ==
        "0x1f, a gzip file: unpack it with gunzip or penstock::unpack_files, or open an IDX file "
        "with penstock::gzip");
}

TEST_CASE("an unknown element type is rejected at its byte", "[data][fault:files-2]") {
  for (const std::uint8_t type : test::file_bytes{0x00, 0x07, 0x0a, 0x0f, 0xff}) {
    CAPTURE(int{type});
    const auto problem = idx_error_in<ps::file_format_error>(idx_bytes(type, {1}, {0}));
    CHECK(problem.offset() == 2);
  }
  CHECK(idx_error_in<ps::file_format_error>(idx_bytes(0xa5, {1}, {0})).found() == "0xa5");
}

TEST_CASE("missing dimensions, or a product beyond 64 bits, are rejected",
          "[data][fault:files-2]") {
  CHECK(idx_error_in<ps::dimension_mismatch>(idx_bytes(u8, {}, {1})).offset() == 3);
  constexpr std::uint32_t max = 0xffffffff;
  const auto problem = idx_error_in<ps::dimension_mismatch>(idx_bytes(f64, {max, max}, {}));
  CHECK(problem.offset() == 4);
  CHECK(problem.found() == "4294967295 x 4294967295 elements of type double (0x0e)");
  // The number of elements fits into 64 bits, but their total size in bytes does not.
  idx_error_in<ps::dimension_mismatch>(idx_bytes(i16, {max, max, 1}, {}));
  // A file with a dimension of 0 is empty.
  const test::temp_dir dir;
  const ps::detail::idx_file empty{dir.write("file", idx_bytes(f64, {max, max, 0}, {}))};
  CHECK(empty.values<double>().empty());
}

TEST_CASE("a header that announces terabytes allocates none",
          "[data][promise:bounded-9][fault:files-2]") {
  const auto problem =
      idx_error_in<ps::file_truncated>(idx_bytes(u8, {0xffffffff, 0xffff}, counted(10)));
  CHECK(problem.offset() == 22);
}
