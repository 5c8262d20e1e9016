// SPDX-License-Identifier: BSL-1.0
// Tests batches from blob sources. The batches do not depend on the number of workers, and
// unreadable blobs are skipped and reported.
#include <penstock_ext/blob/image_folder.hpp>
#include <penstock_ext/blob/tar/tar_shards.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/quarantine/quarantine.hpp>
#include <penstock_ext/samplers/block_shuffled.hpp>

#include "ext/blob/archives.hpp"
#include "ext/blob/folders.hpp"
#include "support/catch.hpp"

namespace ps = penstock;

namespace {

constexpr std::size_t first_bytes = 12;

// A dataset of the first bytes of each blob and its label.
template <ps::blob_source Source>
class beginnings {
 public:
  using record_type =
      ps::record<ps::field<"start", char, first_bytes>, ps::field<"label", std::int64_t>>;

  explicit beginnings(Source source) : source_(std::move(source)) {}

  [[nodiscard]] std::uint64_t size() const { return source_.size(); }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    thread_local ps::blob_buffer buffer;
    const std::string text = test::text_of(source_.bytes(index, buffer));
    const auto start = ps::get<"start">(out).flat();
    std::fill(start.begin(), start.end(), '\0');
    std::copy_n(text.begin(), (std::min)(text.size(), start.size()), start.begin());
    ps::get<"label">(out) = source_.label(index);
  }
  void prefetch(std::uint64_t index) const noexcept { source_.prefetch(index); }

 private:
  Source source_;
};

// A blob source that refers to another source, which must outlive it.
template <ps::blob_source Source>
class by_reference {
 public:
  explicit by_reference(const Source& source) : source_(&source) {}
  [[nodiscard]] std::uint64_t size() const { return source_->size(); }
  std::span<const std::byte> bytes(std::uint64_t index, ps::blob_buffer& buffer) const {
    return source_->bytes(index, buffer);
  }
  [[nodiscard]] std::int64_t label(std::uint64_t index) const { return source_->label(index); }
  [[nodiscard]] std::string key(std::uint64_t index) const { return source_->key(index); }
  void prefetch(std::uint64_t index) const noexcept { source_->prefetch(index); }

 private:
  const Source* source_;
};

struct forty_files : test::folder {
  forty_files() {
    for (int i = 0; i < 40; ++i) {
      add("class" + std::to_string(i % 3) + '/' + std::to_string(100 + i) + ".jpg",
          "file " + std::to_string(i));
    }
  }
};

// Returns the samples of two epochs in order of delivery.
template <class Loader>
std::vector<std::pair<std::string, std::int64_t>> two_epochs(Loader& loader) {
  std::vector<std::pair<std::string, std::int64_t>> all;
  for (const auto& batch : loader.epochs(0, 2)) {
    const auto labels = ps::get<"label">(batch);
    const auto starts = ps::get<"start">(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      all.emplace_back(std::string{&starts(i, 0)}, labels(i));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("one worker and four workers make the same batches of a folder", "[blob]") {
  const forty_files dir;
  const auto deliver = [&](std::size_t workers) {
    ps::loader loader{beginnings{ps::image_folder{dir.path()}},
                      ps::shuffled{.seed = 3},
                      {.batch_size = 7, .workers = workers}};
    return two_epochs(loader);
  };
  const auto one = deliver(1);
  CHECK(one == deliver(4));
  REQUIRE(one.size() == 80);
  for (const auto& [text, label] : one) {
    CHECK(text.starts_with("file "));
    CHECK(std::stoi(text.substr(5)) % 3 == label);
  }
}

TEST_CASE("files that can't be read are skipped, and the quarantine list names them", "[blob]") {
  const forty_files dir;
  ps::image_folder photos{dir.path(), {.max_bytes = 100}};
  REQUIRE(photos.key(2) == "class0/106.jpg");
  std::filesystem::remove(dir.path("class0/106.jpg"));
  REQUIRE(photos.key(20) == "class1/119.jpg");
  dir.add("class1/119.jpg", std::string(101, 'x'));
  ps::loader loader{
      beginnings{std::move(photos)},
      ps::sequential{},
      {.batch_size = 8,
       .workers = 2,
       .faults = {.on_error = {.action = ps::error_action::skip, .max_failure_rate = 1}}}};
  const auto all = two_epochs(loader);
  CHECK(all.size() == 76);
  const auto report = loader.failures();
  CHECK(report.skipped == 4);
  std::stringstream list;
  report.write_quarantine(list);
  CHECK(list.str().find(dir.path("class0/106.jpg")) != std::string::npos);
  CHECK(list.str().find(dir.path("class1/119.jpg")) != std::string::npos);
  CHECK(ps::read_quarantine(list, {.dataset = 40}) == std::vector<std::uint64_t>{2, 20});
}

TEST_CASE("a shuffle covers all tar shards, with the same result for one worker and four",
          "[blob]") {
  const test::folder dir;
  for (int shard = 0; shard < 4; ++shard) {
    test::archive made;
    for (int i = 10 * shard; i < 10 * shard + 10; ++i) {
      made.add(std::to_string(i) + ".jpg", "file " + std::to_string(i));
      made.add(std::to_string(i) + ".cls", std::to_string(i % 3));
    }
    dir.add(std::to_string(shard) + ".tar", made.ended());
  }
  const ps::tar_shards shards{dir.path("{0..3}.tar"), {.max_open = 2}};
  const auto deliver = [&](const auto& order, std::size_t workers) {
    ps::loader loader{
        beginnings{by_reference{shards}}, order, {.batch_size = 7, .workers = workers}};
    return two_epochs(loader);
  };
  const auto all = deliver(ps::shuffled{.seed = 3}, 1);
  CHECK(all == deliver(ps::shuffled{.seed = 3}, 4));
  REQUIRE(all.size() == 80);
  std::vector<int> numbers;
  for (const auto& [text, label] : all) {
    REQUIRE(text.starts_with("file "));
    numbers.push_back(std::stoi(text.substr(5)));
    CHECK(numbers.back() % 3 == label);
  }
  // The first ten samples come from many shards, and every sample occurs exactly once in each
  // epoch.
  for (int shard = 0; shard < 4; ++shard) {
    CHECK(std::count_if(numbers.begin(), numbers.begin() + 10,
                        [&](int number) { return number / 10 == shard; }) > 0);
  }
  std::sort(numbers.begin(), numbers.begin() + 40);
  for (int i = 0; i < 40; ++i) CHECK(numbers[static_cast<std::size_t>(i)] == i);
  // Each block of ten samples is a shard. The loader reads a shard completely, in shuffled order,
  // before the next shard.
  const auto blocks = deliver(ps::block_shuffled{.seed = 3, .block = 10}, 4);
  REQUIRE(blocks.size() == 80);
  for (std::size_t i = 0; i < 80; ++i) {
    CHECK(std::stoi(blocks[i].first.substr(5)) / 10 ==
          std::stoi(blocks[i / 10 * 10].first.substr(5)) / 10);
  }
}
