// SPDX-License-Identifier: BSL-1.0
#include "ranks/checkpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "sha256.hpp"
#include "shape.hpp"
#include "support/catch.hpp"
#include "support/temp_dir.hpp"

namespace {

namespace fs = std::filesystem;

mlp::checkpoint some_checkpoint(std::uint64_t batch) {
  mlp::checkpoint c;
  c.state = {.epoch = 2, .batch = batch, .dataset = 256, .samples = 256, .batch_size = 32};
  for (auto* array : {&c.net.parameters, &c.net.first_moments, &c.net.second_moments}) {
    array->assign(mlp::shape::parameters, 0.5F + static_cast<float>(batch));
  }
  c.net.parameters.back() = -1.0F;
  c.net.steps.first_power = 0.25;
  c.net.steps.second_power = 0.125;
  return c;
}

std::string bytes_in(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}
void set_content(const fs::path& file, const std::string& content) {
  std::ofstream{file, std::ios::binary} << content;
}

/// A checkpoint's bytes with one text in place of another, and the right sum.
std::string changed(std::string content, const std::string& from, const std::string& to) {
  content.replace(content.find(from), from.size(), to);
  const std::size_t sum = content.find("sha256 ");
  const std::string body = content.substr(content.find('\n', sum) + 1);
  const std::string head = content.substr(0, sum);
  mlp::sha256 of;
  of.add(std::as_bytes(std::span{head}));
  of.add(std::as_bytes(std::span{body}));
  return head + "sha256 " + of.finish() + "\n" + body;
}

/// What reading the file throws: its type's short name and the message behind the path.
std::string problem_of(const fs::path& file) {
  const auto behind = [&](const std::exception& e) {
    return std::string{e.what()}.substr(file.string().size() + 2);
  };
  try {
    static_cast<void>(mlp::read_checkpoint(file));
  } catch (const mlp::checkpoint_torn& e) {
    return "torn: " + behind(e);
  } catch (const mlp::checkpoint_unreadable& e) {
    return "unreadable: " + behind(e);
  } catch (const mlp::checkpoint_of_another& e) {
    return "another: " + behind(e);
  } catch (const mlp::checkpoint_too_new& e) {
    return "too new: " + behind(e);
  } catch (const mlp::checkpoint_error& e) {
    return "error: " + behind(e);
  }
  return "none";
}

struct stopped_here {};

}  // namespace

TEST_CASE("a checkpoint is read back, and the one before it is kept", "[mlp]") {
  const test::temp_dir directory;
  const fs::path file = directory.path("training");
  CHECK_FALSE(mlp::newest_checkpoint(file));
  mlp::write_checkpoint(file, some_checkpoint(1));
  mlp::write_checkpoint(file, some_checkpoint(2));
  const auto found = mlp::newest_checkpoint(file);
  REQUIRE(found);
  CHECK(found->passed_over.empty());
  CHECK(found->what.state == some_checkpoint(2).state);
  CHECK(found->what.net.parameters == some_checkpoint(2).net.parameters);
  CHECK(found->what.net.first_moments == some_checkpoint(2).net.first_moments);
  CHECK(found->what.net.second_moments == some_checkpoint(2).net.second_moments);
  CHECK(found->what.net.steps.first_power == 0.25);
  CHECK(found->what.net.steps.second_power == 0.125);
  CHECK(mlp::read_checkpoint(file.string() + ".before").state.batch == 1);
}

TEST_CASE("a write that ends anywhere leaves a whole checkpoint", "[mlp]") {
  const test::temp_dir directory;
  const fs::path file = directory.path("training");
  mlp::write_checkpoint(file, some_checkpoint(1));
  for (const auto moment :
       {mlp::save_moment::half_written, mlp::save_moment::written, mlp::save_moment::moved}) {
    const auto stop = [&](mlp::save_moment now) {
      if (now == moment) throw stopped_here{};
    };
    CHECK_THROWS_AS(mlp::write_checkpoint(file, some_checkpoint(2), stop), stopped_here);
    const auto found = mlp::newest_checkpoint(file);
    REQUIRE(found);
    CHECK(found->what.state.batch == 1);
    CHECK(found->passed_over.empty() == (moment != mlp::save_moment::moved));
  }
  mlp::write_checkpoint(file, some_checkpoint(3));  // over what the others have left
  CHECK(mlp::newest_checkpoint(file)->what.state.batch == 3);
}

TEST_CASE("a torn checkpoint is refused, and the one before it taken", "[mlp]") {
  const test::temp_dir directory;
  const fs::path file = directory.path("training");
  mlp::write_checkpoint(file, some_checkpoint(1));
  mlp::write_checkpoint(file, some_checkpoint(2));
  const std::string whole = bytes_in(file);
  for (std::size_t size = 0; size < whole.size(); size += size < 500 ? 7 : 200'003) {
    set_content(file, whole.substr(0, size));
    CAPTURE(size);
    CHECK_THROWS_AS(mlp::read_checkpoint(file), mlp::checkpoint_torn);
  }
  for (std::size_t at = 0; at < whole.size(); at += at < 500 ? 11 : 200'003) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    set_content(file, damaged);
    CAPTURE(at);
    CHECK_THROWS_AS(mlp::read_checkpoint(file), mlp::checkpoint_torn);
  }
  const auto found = mlp::newest_checkpoint(file);
  CHECK(found->what.state.batch == 1);
  CHECK(found->passed_over.find("SHA-256") != std::string::npos);
  // The next one must not push the whole one out.
  CHECK_THROWS_AS(mlp::write_checkpoint(file, some_checkpoint(3),
                                        [](mlp::save_moment now) {
                                          if (now == mlp::save_moment::moved) throw stopped_here{};
                                        }),
                  stopped_here);
  CHECK(mlp::newest_checkpoint(file)->what.state.batch == 1);

  fs::remove(file.string() + ".before");
  CHECK_THROWS_AS(mlp::newest_checkpoint(file), mlp::checkpoint_torn);
  set_content(file.string() + ".before", "nothing");
  CHECK_THROWS_WITH(mlp::newest_checkpoint(file),
                    Catch::Matchers::Contains("neither it nor the one before it can be used") &&
                        Catch::Matchers::Contains(".before: is damaged"));
}

TEST_CASE(
    "a checkpoint whose version is damaged is torn, and one that can't be read is passed over",
    "[mlp]") {
  const test::temp_dir directory;
  const fs::path file = directory.path("training");
  mlp::write_checkpoint(file, some_checkpoint(1));
  mlp::write_checkpoint(file, some_checkpoint(2));
  std::string damaged = bytes_in(file);
  for (const char digit : {'0', '3', '7', '9'}) {  // what one bit makes of a digit, and more
    damaged[damaged.find('\n') - 1] = digit;
    set_content(file, damaged);
    CAPTURE(digit);
    CHECK_THROWS_AS(mlp::read_checkpoint(file), mlp::checkpoint_torn);
    CHECK(mlp::newest_checkpoint(file)->what.state.batch == 1);
  }
  // A folder is opened as a file is, and then gives no bytes, as a broken disk does.
  fs::remove(file);
  fs::create_directory(file);
  CHECK(problem_of(file) == "unreadable: can't be read: Is a directory");
  const auto found = mlp::newest_checkpoint(file);
  REQUIRE(found);
  CHECK(found->what.state.batch == 1);
  CHECK(found->passed_over == file.string() + ": can't be read: Is a directory");
  fs::remove(file.string() + ".before");
  CHECK_THROWS_AS(mlp::newest_checkpoint(file), mlp::checkpoint_unreadable);
}

TEST_CASE("a checkpoint of another network, precision or version is refused", "[mlp]") {
  const test::temp_dir directory;
  const fs::path file = directory.path("training");
  mlp::write_checkpoint(file, some_checkpoint(1));
  mlp::write_checkpoint(file, some_checkpoint(2));
  const std::string whole = bytes_in(file);
  set_content(file, changed(whole, "784-128-64-10", "784-256-10"));
  CHECK(problem_of(file) ==
        "another: is of a network 784-256-10, and this one is 784-128-64-10: "
        "name another file, or begin anew");
  CHECK_THROWS_AS(mlp::newest_checkpoint(file), mlp::checkpoint_of_another);
  set_content(file, changed(whole, "fp32", "fp16"));
  CHECK(problem_of(file) ==
        "another: has its parameters as fp16, and this program has them as "
        "fp32: name another file, or begin anew");
  set_content(file, changed(whole, "checkpoint 2", "checkpoint 3"));
  CHECK(problem_of(file) ==
        "too new: is of version 3 of the format, and this program reads versions "
        "up to 2: take the program that has written it, or begin anew");
  CHECK_THROWS_AS(mlp::newest_checkpoint(file), mlp::checkpoint_too_new);
  CHECK(problem_of(directory.path("nothing")) ==
        "unreadable: can't be opened: No such file or directory");
  CHECK_THROWS_AS(mlp::write_checkpoint(directory.path("no/folder"), some_checkpoint(1)),
                  mlp::checkpoint_error);
}

TEST_CASE("a checkpoint in the middle of a mixed step has its scaler and sums", "[mlp]") {
  const test::temp_dir directory;
  const fs::path file = directory.path("training");
  auto mixed = some_checkpoint(1);
  mixed.net.precision = mlp::precision_choice::fp16;
  mixed.net.scaler.scale = 32768.0F;
  mixed.net.scaler.good = 17;
  mixed.net.scaler.found = 1;
  mixed.net.scaler.skipped = 3;
  mixed.net.scaler.samples = 8;
  mixed.net.planned = 16;
  mixed.net.sums.assign(mlp::shape::parameters, 0.25F);
  mlp::write_checkpoint(file, mixed);
  const auto found = mlp::read_checkpoint(file, mlp::precision_choice::fp16).net;
  CHECK(found.precision == mlp::precision_choice::fp16);
  CHECK(found.scaler.scale == 32768.0F);
  CHECK(found.scaler.good == 17);
  CHECK(found.scaler.found == 1);
  CHECK(found.scaler.skipped == 3);
  CHECK(found.scaler.samples == 8);
  CHECK(found.planned == 16);
  CHECK(found.sums == mixed.net.sums);
  CHECK(found.parameters == mixed.net.parameters);
  CHECK(
      problem_of(file) ==
      "another: has its parameters as fp16, and this program has them as fp32: name another file, "
      "or begin anew");
  // A training in float does not push it out.
  CHECK_THROWS_AS(mlp::write_checkpoint(file, some_checkpoint(2)), mlp::checkpoint_of_another);
  CHECK(mlp::newest_checkpoint(file, mlp::precision_choice::fp16)->what.state.batch == 1);
  mixed.net.sums.clear();
  const fs::path other = directory.path("other");
  mlp::write_checkpoint(other, mixed);
  CHECK_THROWS_WITH(mlp::read_checkpoint(other, mlp::precision_choice::fp16),
                    Catch::Matchers::Contains("lacks the sums of the step under way"));
}

TEST_CASE("a checkpoint of the first version, without a scaler, is read", "[mlp]") {
  const test::temp_dir directory;
  const fs::path file = directory.path("training");
  mlp::write_checkpoint(file, some_checkpoint(1));
  std::string content = bytes_in(file);
  content.resize(content.size() - 36);
  set_content(file, changed(content, "checkpoint 2", "checkpoint 1"));
  const auto found = mlp::read_checkpoint(file);
  CHECK(found.net.parameters == some_checkpoint(1).net.parameters);
  CHECK(found.net.steps.second_power == 0.125);
  CHECK(found.net.is_between_steps());
}
