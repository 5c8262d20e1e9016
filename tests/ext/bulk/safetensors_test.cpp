// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/bulk/safetensors/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ext/bulk/bulk_files.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"
#include "support/temp_dir.hpp"

namespace ps = penstock;
using test::content_of;
using test::device;
using test::error_of;
using test::load;
using test::put;

namespace {

/// Returns a file with this header and `data` bytes of tensors.
std::string file_of(const std::string& json, std::size_t data) {
  std::string text;
  for (unsigned i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> (8 * i) & 0xffU);
  text += json;
  for (std::size_t i = 0; i < data; ++i) text += static_cast<char>(i);
  return text;
}
void save(const std::string& path, const std::vector<ps::safetensor>& tensors,
          const std::string& text, const std::map<std::string, std::string>& metadata = {}) {
  ps::download(device, device.inline_stream(), ps::safetensors_sink{path, tensors, metadata},
               std::as_bytes(std::span{text}), {.piece_bytes = 4096})
      .wait();
}

template <class Error>
Error rejected(const std::string& bytes) {
  const test::temp_dir dir;
  put(dir.path("x"), bytes);
  auto problem = error_of<Error>([&] { ps::safetensors_file{dir.path("x")}; });
  CHECK(problem.path() == dir.path("x"));
  CHECK(problem.offset() <= bytes.size());
  return problem;
}

}  // namespace

TEST_CASE("the tensors of a safetensors file are found and uploaded",
          "[files][bulk][promise:honest-21]") {
  const test::temp_dir dir;
  const std::string path = dir.path("model.safetensors");
  // Other programs write files like this one, with tensors that are not in file order, a padded
  // header, metadata, and no checksum.
  put(path, file_of(R"({"b":{"dtype":"F16","shape":[2,3],"data_offsets":[8,20]},)"
                    R"("__metadata__":{"format":"pt"},)"
                    R"("none":{"dtype":"F32","shape":[0,7],"data_offsets":[20,20]},)"
                    R"("a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}   )",
                    20));
  const ps::safetensors_file file{path};
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.tensors()[0].name == "a");
  CHECK(file.tensors()[1].shape == std::vector<std::uint64_t>{2, 3});
  CHECK(file.tensors()[2].bytes == 0);
  CHECK(file.at("b").dtype == "F16");
  CHECK(file.metadata().at("format") == "pt");
  CHECK(file.bytes() == 20);
  CHECK_FALSE(file.has_checksum());
  const std::string all = load(file.all());
  CHECK((all.size() == 20 && all[19] == 19));
  CHECK(load(file.only("b")) == all.substr(8, 12));
  const auto problem = error_of<ps::file_format_error>([&] { static_cast<void>(file.at("c")); });
  CHECK(test::has(problem.what(), "a tensor \"c\""));
  put(path, file_of("{}", 0));
  CHECK(ps::safetensors_file{path}.tensors().empty());
  CHECK(load(ps::safetensors_file{path}.all()).empty());
}

TEST_CASE("a checkpoint is a safetensors file with a checksum of all its bytes",
          "[files][bulk][promise:honest-21][fault:files-18]") {
  const test::temp_dir dir;
  const std::string path = dir.path("model.safetensors");
  const std::vector<ps::safetensor> tensors{
      {.name = "w\"1\u00e9", .dtype = "BF16", .shape = {100, 60}},
      {.name = "step", .dtype = "I64", .shape = {}},
      {.name = "four", .dtype = "F4", .shape = {2, 3}}};
  std::string text(12000 + 8 + 3, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 31);
  save(path, tensors, text, {{"epoch", "7"}});
  const ps::safetensors_file file{path};
  CHECK(file.has_checksum());
  CHECK(file.metadata().at("epoch") == "7");
  REQUIRE(file.tensors().size() == 3);
  CHECK(file.at("step").offset == 12000);
  CHECK(file.tensors()[0].name == tensors[0].name);
  CHECK(load(file.all()) == text);
  const std::string whole = content_of(path);
  // If the first attempt to finish a sink fails, the second attempt writes the same checksum.
  ps::safetensors_sink late{dir.path("late"), tensors, {{"epoch", "7"}}};
  late.write(0, std::as_bytes(std::span{text}));
  std::filesystem::create_directory(dir.path("late"));
  CHECK_THROWS_AS(late.finish(), ps::file_unwritable);
  std::filesystem::remove(dir.path("late"));
  late.finish();
  CHECK(content_of(dir.path("late")) == whole);
  // Every changed byte is detected, even in a header that is still readable.
  const std::size_t shape = whole.find("[100,60]");
  std::vector<std::size_t> places{whole.size() - 1, whole.size() - 6000, whole.size() - 12011};
  for (const std::size_t at : places) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    put(path, damaged);
    const auto problem =
        error_of<ps::file_corrupt>([&] { load(ps::safetensors_file{path}.all()); });
    CHECK(test::has(problem.expected(), "CRC-64/NVME"));
    CHECK(load(ps::safetensors_file{path}.all(false)).size() == text.size());
  }
  std::string turned = whole;
  turned.replace(shape, 8, "[60,100]");
  put(path, turned);
  CHECK_THROWS_AS(load(ps::safetensors_file{path}.all()), ps::file_corrupt);
}

TEST_CASE("a safetensors header is read like the safetensors library reads it", "[files][bulk]") {
  const test::temp_dir dir;
  const auto reads = [&](const std::string& json) {
    put(dir.path("x"), file_of(json, 4));
    const ps::safetensors_file file{dir.path("x")};
    CAPTURE(json);
    CHECK(file.metadata().empty());
    CHECK(file.at("a").bytes == 4);
    CHECK(file.tensors().size() == 1);
  };
  for (const char* const dtype : {"F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0", "BOOL"}) {
    reads(R"({"a":{"dtype":")" + std::string{dtype} + R"(","shape":[4],"data_offsets":[0,4]}})");
  }
  const std::string one = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  reads(R"({"__metadata__":null,)" + one + '}');
  reads(" \n\t\r{" + one + "} \n");
  reads(R"({"a":{"dtype":"U8","b":{"dtype":[{}]},"b":5,"shape":[4],"data_offsets":[0,4]}})");
}

TEST_CASE("an invalid safetensors header is rejected with the offset of the error",
          "[files][bulk][fault:files-18]") {
  const std::string one = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const std::string whole = file_of(one, 4);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    INFO("cut after " << length);
    const auto problem = rejected<ps::file_truncated>(whole.substr(0, length));
    if (length >= 8 && length < 8 + one.size()) {
      CHECK(test::has(problem.expected(), "a header of 53 bytes"));
    }
  }
  CHECK(rejected<ps::file_format_error>(whole + "x").offset() == whole.size());
  CHECK(rejected<ps::file_format_error>(file_of("[1]", 0)).offset() == 8);
  std::string huge = whole;
  huge[7] = '\x7f';
  CHECK(test::has(rejected<ps::file_format_error>(huge).expected(), "at most 100000000 bytes"));

  const auto says = [](const std::string& json, std::size_t data, const char* part) {
    CHECK(test::has(rejected<ps::file_format_error>(file_of(json, data)).what(), part));
  };
  says("{\"a\":", 0, "JSON");
  says(R"({"a":5})", 0, "an object for each tensor");
  CHECK(rejected<ps::file_format_error>(file_of(R"({"a":[{}]})", 0)).offset() == 8 + 5);
  says(R"({"a":null})", 0, "an object for each tensor");
  says("\xef\xbb\xbf{}", 0, "the first byte of the JSON");
  says("  ", 0, "the first byte of the JSON");
  says(R"({"a":{"dtype":"U8","shape":[{}],"data_offsets":[0,4]}})", 4, "a list of other values");
  says(std::string{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})"} + '\0' + '}', 4,
       "a zero byte");
  says(R"({"a":[{"dtype":"U8","shape":[4],"data_offsets":[0,4]}]})", 4,
       "an object for each tensor");
  says(R"({"a":{"shape":[4],"data_offsets":[0,4]}})", 4, "\"dtype\" of the tensor \"a\"");
  says(R"({"a":{"dtype":"U9","shape":[4],"data_offsets":[0,4]}})", 4, "a type of safetensors");
  says(R"({"a":{"dtype":4,"shape":[4],"data_offsets":[0,4]}})", 4, "found 4");
  says(R"({"a":{"dtype":"U8","shape":[-4],"data_offsets":[0,4]}})", 4, "integers");
  says(R"({"a":{"dtype":"U8","shape":4,"data_offsets":[0,4]}})", 4, "not a list");
  says(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4, "a begin and a later end");
  says(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,8]}})", 4, "a begin and a later end");
  says(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}})", 4, "without gaps");
  says(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
       6, "without gaps");
  says(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
       8, "every member once");
  says(R"({"__metadata__":{"x":5}})", 0, "metadata values that are strings");
  const auto shape = [](const std::string& dtype, const std::string& lengths) {
    return rejected<ps::dimension_mismatch>(file_of(
        R"({"a":{"dtype":")" + dtype + R"(","shape":)" + lengths + R"(,"data_offsets":[0,4]}})",
        4));
  };
  CHECK(test::has(shape("U8", "[5]").what(), "5 bytes for \"a\""));
  CHECK(test::has(shape("F4", "[9]").what(), "whole number of bytes"));
  shape("F64", "[4294967296,4294967296,4294967296]");
  shape("U8", "[4294967296,4294967296,0]");
  CHECK(test::has(shape("U8", "[0,4294967296,4294967296]").what(), "0 bytes for \"a\""));
  says(R"({"__metadata__":{"x":{}}})", 0, "metadata values that are strings");
  says(R"({"__metadata__":[]})", 0, "an object for each tensor");
  const auto sum = rejected<ps::file_corrupt>(
      file_of(std::string{ps::detail::safetensors_sum_begin} + R"(0x34567890123456"}})", 0));
  CHECK(sum.offset() == 8 + ps::detail::safetensors_sum_begin.size());
}

TEST_CASE("an open safetensors file is unaffected by a new file with the same name",
          "[files][bulk][promise:honest-21]") {
  const test::temp_dir dir;
  const std::string path = dir.path("model.safetensors");
  const std::vector<ps::safetensor> tensors{{.name = "a", .dtype = "U8", .shape = {5000}},
                                            {.name = "b", .dtype = "U8", .shape = {3000}}};
  const std::string old = std::string(5000, 'a') + std::string(3000, 'b');
  save(path, tensors, old);
  const ps::safetensors_file file{path};
  save(path, tensors, std::string(8000, 'n'), {{"longer", "header"}});
  CHECK(load(file.only("b")) == std::string(3000, 'b'));
  CHECK(load(file.all()) == old);
  CHECK(load(file.all(false)) == old);
  CHECK(load(ps::safetensors_file{path}.all()) == std::string(8000, 'n'));

  put(dir.path("written to"), content_of(path));
  const ps::safetensors_file changed{dir.path("written to")};
  std::ofstream{dir.path("written to"), std::ios::app} << "more";
  CHECK_THROWS_AS(load(changed.only("b")), ps::file_changed);
}

TEST_CASE("a checksum that another program copied into its file is ignored", "[files][bulk]") {
  const test::temp_dir dir;
  const std::string path = dir.path("model.safetensors");
  save(path, {{.name = "a", .dtype = "U8", .shape = {8}}}, "original");
  std::string others = content_of(path);
  others.replace(8, others.size() - 16, [](std::string header) {
    return nlohmann::ordered_json::parse(header).dump();
  }(others.substr(8, others.size() - 16)));
  const std::string header = others.substr(8, others.size() - 16);
  put(path, file_of(header, 0) + "changed!");
  const ps::safetensors_file file{path};
  CHECK(file.metadata().contains("penstock.crc64nvme"));
  CHECK_FALSE(file.has_checksum());
  CHECK(load(file.all()) == "changed!");
}

TEST_CASE("a hostile safetensors header does not take quadratic time",
          "[files][bulk][large][fault:files-18]") {
  constexpr int many = 200'000;
  std::string objects = "{}";
  std::string texts = R"("a":"")";
  std::string scalars = R"("a":0)";
  for (int i = 1; i < many; ++i) {
    objects += ",{}";
    texts += ",\"" + std::to_string(i) + "\":\"\"";
    scalars += ",\"" + std::to_string(i) + "\":0";
  }
  rejected<ps::file_format_error>(file_of(R"({"a":[)" + objects + "]}", 0));
  rejected<ps::file_format_error>(file_of('{' + scalars + '}', 0));
  const test::temp_dir dir;
  put(dir.path("x"), file_of(R"({"__metadata__":{)" + texts + "}}", 0));
  CHECK(ps::safetensors_file{dir.path("x")}.metadata().size() == many);
}

TEST_CASE("beginning a checkpoint of many tensors does not take quadratic time",
          "[files][bulk][large]") {
  std::vector<ps::safetensor> tensors(200'000, {.dtype = "U8"});
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].name = std::to_string(i);
  const test::temp_dir dir;
  CHECK(ps::safetensors_sink{dir.path("x"), tensors}.size() == tensors.size());
}

TEST_CASE("a safetensors header above the limit of the format is not written",
          "[files][bulk][large][fault:files-18]") {
  const test::temp_dir dir;
  const auto problem = error_of<ps::option_error>([&] {
    ps::safetensors_sink{dir.path("x"), {{.name = std::string(100'000'000, 'a'), .dtype = "U8"}}};
  });
  CHECK(test::has(problem.what(), "a header of 1000001"));
  CHECK(content_of(dir.path("x")).empty());
}

TEST_CASE("an invalid safetensors file is not created", "[files][bulk][fault:files-18]") {
  const test::temp_dir dir;
  const auto rejects = [&](std::vector<ps::safetensor> tensors, const char* part) {
    const auto problem = error_of<ps::option_error>(
        [&] { ps::safetensors_sink{dir.path("x"), std::move(tensors)}; });
    CHECK(test::has(problem.what(), part));
  };
  rejects({{.name = "a", .dtype = "U8"}, {.name = "a", .dtype = "U8"}}, "appears twice");
  rejects({{.name = "__metadata__", .dtype = "U8"}}, "appears twice");
  rejects({{.name = "a", .dtype = "float"}}, "of the type \"float\"");
  rejects({{.name = "a", .dtype = "F4", .shape = {3}}}, "fractional");
  rejects({{.name = "\xff", .dtype = "U8"}}, "not valid UTF-8");
  CHECK(content_of(dir.path("x")).empty());
  ps::safetensors_sink sink{dir.path("x"), {{.name = "a", .dtype = "F32", .shape = {5}}}};
  const std::vector<std::byte> wrong(19);
  CHECK_THROWS_AS(ps::download(device, device.inline_stream(), std::move(sink), wrong),
                  ps::bulk_error);
}
