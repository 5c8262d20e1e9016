// SPDX-License-Identifier: BSL-1.0
// Tests datasets that decode blobs. The user-defined decoder needs no library.
#include <penstock_ext/image/decode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/data/reader.hpp>
#include <penstock/faults/failure_ledger.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/blob/stored_blobs.hpp>
#include <penstock_ext/image/crop.hpp>
#include <penstock_ext/store/cache/cached_store.hpp>

#include "data/read_batch.hpp"
#include "ext/image/blobs.hpp"
#include "ext/store/counting_store.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"

namespace ps = penstock;

namespace {

/// Counters shared by all copies of a test's decoder. Not thread-safe.
struct notes {
  int copies = 0;
  std::size_t pixels = 0;
  const std::uint8_t* place = nullptr;
};

/// A decoder for an image format of this test: "TOY", a letter for the kind, the width, the
/// height, and a seed for the values.
class toy_decoder {
 public:
  explicit toy_decoder(char kind = 'A', notes* note = nullptr) : kind_(kind), note_(note) {}
  toy_decoder(const toy_decoder& other) : kind_(other.kind_), note_(other.note_) {
    if (note_ != nullptr) ++note_->copies;
  }
  toy_decoder& operator=(const toy_decoder&) = default;
  ~toy_decoder() = default;

  [[nodiscard]] bool matches(std::span<const std::byte> bytes) const noexcept {
    return ps::detail::has_text(bytes, 0, "TOY") && bytes.size() > 3 &&
           std::to_integer<char>(bytes[3]) == kind_;
  }
  [[nodiscard]] ps::image_info info(std::span<const std::byte> bytes, std::string_view key) const {
    if (bytes.size() < 7) {
      throw ps::image_truncated(std::string{key}, bytes.size(), "seven bytes", "their end");
    }
    return {{std::to_integer<std::size_t>(bytes[4]), std::to_integer<std::size_t>(bytes[5])}, 3};
  }
  void decode(std::span<const std::byte> bytes, std::string_view key, const ps::image_box& box,
              const ps::pixels& out) {
    // Throws instead of asserting, because Catch2 does not support assertions on worker threads.
    if (!ps::detail::is_part_of(box, info(bytes, key).size) || out.size != box.size) {
      throw std::logic_error("a box outside the image");
    }
    if (note_ != nullptr) {
      note_->pixels += box.size.width * box.size.height;
      note_->place = out.data;
    }
    const auto seed = std::to_integer<std::size_t>(bytes[6]);
    for (std::size_t y = 0; y < box.size.height; ++y) {
      for (std::size_t x = 0; x < box.size.width; ++x) {
        for (std::size_t c = 0; c < 3; ++c) {
          const std::size_t at = (box.top + y) * 257 + (box.left + x) * 31 + c * 7 + seed;
          out.row(y)[3 * x + c] = static_cast<std::uint8_t>(at * at / 13);
        }
      }
    }
  }

 private:
  char kind_;
  notes* note_;
};

static_assert(ps::image_decoder<toy_decoder>);
static_assert(!ps::scaled_image_decoder<toy_decoder>);
static_assert(ps::blob_source<test::blobs>);
static_assert(ps::image_geometry<test::some_crop>);

std::vector<std::byte> toy(std::size_t width, std::size_t height, std::size_t seed,
                           char kind = 'A') {
  std::vector<std::byte> bytes;
  for (const std::size_t value : {std::size_t{'T'}, std::size_t{'O'}, std::size_t{'Y'},
                                  static_cast<std::size_t>(kind), width, height, seed}) {
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

std::vector<std::byte> text(std::string_view letters) {
  const auto* begin = reinterpret_cast<const std::byte*>(letters.data());
  return {begin, begin + letters.size()};
}

test::blobs toys(std::size_t count) {
  test::blobs blobs;
  for (std::size_t i = 0; i < count; ++i) blobs.all.push_back(toy(13 + i % 60, 11 + i % 37, i));
  return blobs;
}

/// A blob source that records the hints it receives. Not thread-safe.
struct hinted_blobs : test::blobs {
  mutable std::vector<std::uint64_t> hints;
  void prefetch(std::span<const std::uint64_t> indices) const noexcept {
    hints.insert(hints.end(), indices.begin(), indices.end());
  }
  void prefetch(std::uint64_t) const noexcept { hints.push_back(999); }
};

/// A blob source that logs each hint as the index, and each read as the index plus 100. Not
/// thread-safe.
struct noted_blobs : test::blobs {
  mutable std::vector<std::uint64_t> notes;
  void prefetch(std::uint64_t index) const noexcept { notes.push_back(index); }
  [[nodiscard]] std::span<const std::byte> bytes(std::uint64_t index, ps::blob_buffer& into) const {
    notes.push_back(100 + index);
    return test::blobs::bytes(index, into);
  }
};

/// A geometry that always returns the same plan.
struct fixed {
  ps::image_plan plan_;
  [[nodiscard]] ps::image_size size() const { return plan_.size(); }
  [[nodiscard]] ps::image_plan plan(const ps::image_size&, ps::sample_generator&) const {
    return plan_;
  }
};

// Returns the expected sample: the whole image is decoded and then resized.
std::vector<std::uint8_t> expected(const std::vector<std::byte>& bytes, const ps::image_plan& plan,
                                   const ps::resize_options& options) {
  toy_decoder decoder;
  const ps::image_size size = decoder.info(bytes, "").size;
  std::vector<std::uint8_t> whole(size.width * size.height * 3);
  const ps::pixels image{whole.data(), size, 3, size.width * 3};
  decoder.decode(bytes, "", {0, 0, size}, image);
  std::vector<std::uint8_t> sample(plan.size().width * plan.size().height * 3);
  ps::resizer resize{options};
  resize(image, plan, {sample.data(), plan.size(), 3, plan.size().width * 3});
  return sample;
}

// Returns all bytes of all batches in two epochs.
template <class Loader>
std::vector<std::uint8_t> all_bytes(Loader& loader) {
  std::vector<std::uint8_t> all;
  for (auto& batch : loader.epochs(0, 2)) {
    const auto images = ps::get<"image">(batch).flat();
    all.insert(all.end(), images.begin(), images.end());
    for (const std::int64_t label : ps::get<"label">(batch).flat()) {
      all.push_back(static_cast<std::uint8_t>(label));
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a sample is the crop of the decoded image, resized", "[image][promise:exact-15]") {
  const test::blobs blobs = toys(200);
  for (const auto filter : {ps::resize_filter::bilinear, ps::resize_filter::nearest,
                            ps::resize_filter::lanczos, ps::resize_filter::bicubic}) {
    const auto data =
        blobs | ps::decode_images<toy_decoder>(test::some_crop{}, {.resize = {.filter = filter}});
    CHECK(ps::dataset<std::remove_cvref_t<decltype(data)>>);
    CHECK(data.size() == 200);
    const ps::random_key key{.seed = 5, .epoch = 3};
    std::vector<std::uint64_t> indices(200);
    for (std::size_t i = 0; i < 200; ++i) indices[i] = 199 - i;
    auto batch = test::read_batch(data, indices, key);
    int differ = 0;
    for (std::size_t i = 0; i < 200; ++i) {
      ps::sample_generator random{key, indices[i]};
      const auto& bytes = blobs.all[indices[i]];
      const auto plan = test::some_crop{}.plan(toy_decoder{}.info(bytes, "").size, random);
      const auto right = expected(bytes, plan, {.filter = filter});
      const auto image = ps::get<"image">(batch.view()[i]).flat();
      differ += std::equal(right.begin(), right.end(), image.begin(), image.end()) ? 0 : 1;
      CHECK(ps::get<"label">(batch.view()[i]) == 1000 + static_cast<std::int64_t>(indices[i]));
    }
    CHECK(differ == 0);
  }
}

TEST_CASE("only the needed part of a crop is decoded", "[image]") {
  notes note;
  const test::blobs blobs{{toy(200, 100, 1)}};
  const auto read = [&](const ps::image_plan& plan) {
    note = {};
    const auto data = blobs | ps::decode_images(fixed{plan}, {}, toy_decoder{'A', &note});
    auto batch = test::read_batch(data, {0});
    const auto image = ps::get<"image">(batch.view()[0]).flat();
    const auto right = expected(blobs.all[0], plan, {});
    CHECK(std::equal(right.begin(), right.end(), image.begin(), image.end()));
    return note.place == image.data();
  };
  // Without resizing, the image is decoded directly into the batch.
  CHECK(read({{10, 20, {40, 30}}, {40, 30}, {0, 0, {40, 30}}}));
  CHECK(note.pixels == 1200);
  CHECK(read({{0, 0, {200, 100}}, {200, 100}, {50, 20, {24, 22}}}));
  CHECK(note.pixels == 24 * 22);
  CHECK_FALSE(read({{0, 0, {200, 100}}, {200, 100}, {50, 20, {24, 22}}, true}));
  CHECK(note.pixels == 24 * 22);
  CHECK_FALSE(read({{0, 0, {40, 30}}, {40, 30}, {0, 0, {40, 30}}, false, {1, 2, 3, 4}}));
  CHECK(note.pixels == 1200);
  // Only the middle of the reduced image is decoded.
  CHECK_FALSE(read({{0, 0, {200, 100}}, {100, 50}, {40, 20, {20, 10}}}));
  CHECK(note.pixels < 60 * 40);
  CHECK_FALSE(read({{0, 0, {200, 100}}, {100, 50}, {0, 0, {100, 50}}}));
  CHECK(note.pixels == 20000);
}

TEST_CASE("the content selects the decoder", "[image]") {
  notes a;
  notes b;
  const test::blobs blobs{{toy(9, 9, 1, 'B'), toy(9, 9, 1, 'A')}};
  const fixed geometry{{{0, 0, {9, 9}}, {9, 9}, {0, 0, {9, 9}}}};
  const auto data =
      blobs | ps::decode_images(geometry, {}, toy_decoder{'A', &a}, toy_decoder{'B', &b});
  (void)test::read_batch(data, {0});
  CHECK((a.pixels == 0 && b.pixels == 81));
  (void)test::read_batch(data, {1});
  CHECK((a.pixels == 81 && b.pixels == 81));
}

TEST_CASE("a format without a decoder is rejected by name", "[image][fault:files-13]") {
  const test::blobs blobs{{text("GIF89a and more"), text("what?"), {}, toy(3, 3, 0)}};
  const fixed geometry{{{0, 0, {9, 9}}, {9, 9}, {0, 0, {9, 9}}}};
  const auto data = blobs | ps::decode_images<toy_decoder>(geometry);
  CHECK_THROWS_WITH(test::read_batch(data, {0}),
                    "folder/0.any: at byte 0: expected an image of a format that decode_images "
                    "supports, found a GIF image");
  CHECK_THROWS_AS(test::read_batch(data, {0}), ps::image_unsupported);
  CHECK_THROWS_AS(test::read_batch(data, {1}), ps::image_unsupported);
  CHECK_THROWS_AS(test::read_batch(data, {2}), ps::image_truncated);
  CHECK_THROWS_WITH(test::read_batch(data, {3}),
                    "folder/3.any: resizer: expected a crop inside the image of 3 x 3, found "
                    "9 x 9 at (0, 0)");
  CHECK_THROWS_AS(test::read_batch(data, {4}), ps::index_error);
}

TEST_CASE("a geometry whose plans contradict its size is rejected", "[image]") {
  struct liar : fixed {
    [[nodiscard]] ps::image_size size() const { return {9, 9}; }
  };
  const test::blobs blobs{{toy(9, 9, 1)}};
  const auto data = blobs | ps::decode_images<toy_decoder>(liar{
                                {{{0, 0, {9, 9}}, {9, 9}, {0, 0, {9, 9}}, false, {1, 1, 1, 1}}}});
  CHECK_THROWS_WITH(test::read_batch(data, {0}),
                    "folder/0.any: resizer: expected a place for 11 x 11 pixels, found 9 x 9");
}

TEST_CASE("an error of a geometry names the image", "[image]") {
  const auto data = toys(1) | ps::decode_images<toy_decoder>(ps::random_crop{32});
  const auto problem = test::error_of<ps::image_too_small>([&] { test::read_batch(data, {0}); });
  CHECK(problem.found() == ps::image_size{13, 11});
  CHECK(std::string_view{problem.what()}.starts_with("folder/0.any: random_crop: expected"));
  struct rejecting : fixed {
    [[nodiscard]] ps::image_plan plan(const ps::image_size&, ps::sample_generator&) const {
      throw std::invalid_argument("rejected");
    }
  };
  const auto other = toys(1) | ps::decode_images<toy_decoder>(
                                   rejecting{{{{0, 0, {9, 9}}, {9, 9}, {0, 0, {9, 9}}}}});
  CHECK_THROWS_WITH(test::read_batch(other, {0}), "folder/0.any: rejected");
}

TEST_CASE("the sample that fails is named within its run", "[image]") {
  test::blobs blobs = toys(9);
  blobs.all[5] = text("GIF89a and so on");
  const auto data = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
  test::batch_memory<ps::image_record> memory{ps::extents_of(data), 4};
  ps::reader reader{data};
  const std::vector<std::uint64_t> indices{3, 4, 5, 6};
  CHECK_THROWS_AS(reader.read(indices, memory.view(), {}), ps::image_unsupported);
  CHECK(reader.failed_at() == 2);
}

TEST_CASE("a thread's decoders are kept for its next run, also after a failure", "[image]") {
  notes note;
  const fixed geometry{{{0, 0, {9, 9}}, {9, 9}, {0, 0, {9, 9}}}};
  const test::blobs blobs{{toy(9, 9, 1), text("BAD")}};
  const auto data = blobs | ps::decode_images(geometry, {}, toy_decoder{'A', &note});
  (void)test::read_batch(data, {0, 0});
  const int made = note.copies;
  for (int i = 0; i < 5; ++i) {
    (void)test::read_batch(data, {0, 0, 0});
    CHECK_THROWS_AS(test::read_batch(data, {1}), ps::image_unsupported);
  }
  CHECK(note.copies == made);
}

TEST_CASE("a dataset of images owns a source that is moved in", "[image]") {
  auto made = toys(3) | ps::decode_images<toy_decoder>(test::some_crop{});
  const auto data = std::move(made);
  CHECK(data.size() == 3);
  CHECK(test::read_batch(data, {2}).get<"label">()(0) == 1002);
  const test::blobs blobs = toys(3);
  auto referring = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
  CHECK_FALSE(ps::detail::borrows<decltype(made)>);
  CHECK(ps::detail::borrows<decltype(referring)>);
}

TEST_CASE("the warnings of a source pass through the decoding dataset", "[image][fault:files-7]") {
  struct warner : test::blobs {
    [[nodiscard]] std::vector<std::string> warnings() const { return {"no sums"}; }
  };
  const warner source{toys(1)};
  const std::vector<std::string> said{"no sums"};
  CHECK(ps::warnings_of(source | ps::decode_images<toy_decoder>(test::some_crop{})) == said);
  CHECK(ps::warnings_of(warner{source} | ps::decode_images<toy_decoder>(test::some_crop{})) ==
        said);
  CHECK(ps::warnings_of(toys(1) | ps::decode_images<toy_decoder>(test::some_crop{})).empty());
}

TEST_CASE("batches of images are the same bits for any workers", "[image][promise:exact-15]") {
  const test::blobs blobs = toys(150);
  std::vector<std::uint8_t> first;
  for (const std::size_t workers : {0U, 1U, 2U, 4U}) {
    const auto data = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
    ps::loader loader{
        data, ps::shuffled{.seed = 4}, ps::cpu_device{}, {.batch_size = 16, .workers = workers}};
    const auto all = all_bytes(loader);
    CHECK(all.size() == 300 * (12 * 10 * 3 + 1));
    if (first.empty()) first = all;
    CHECK((all == first));
    const ps::read_stats read = loader.stats().read;
    CHECK(read.timed_transforms.count() > 0);
    CHECK(read.timed_transforms <= read.timed_chunks);
  }
}

TEST_CASE("a source with chunk hints gets each hint after the first sample once", "[image]") {
  hinted_blobs blobs{toys(9), {}};
  const auto data = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
  (void)test::read_batch(data, {4, 2, 7, 1, 0, 3, 8});
  CHECK(blobs.hints == std::vector<std::uint64_t>{2, 7, 1, 0, 3, 8});
  (void)test::read_batch(data, {5});
  CHECK(blobs.hints.size() == 6);
  ps::prefetch_hint(data, std::vector<std::uint64_t>{6, 4});  // simulates the hints of a loader
  CHECK(blobs.hints == std::vector<std::uint64_t>{2, 7, 1, 0, 3, 8, 6, 4});
  CHECK(ps::prefetch_capacity_of(data) == ~std::uint64_t{0});
}

TEST_CASE("a source with single hints gets each hint once, four samples ahead", "[image]") {
  noted_blobs blobs{toys(9), {}};
  const auto data = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
  (void)test::read_batch(data, {4, 2, 7, 1, 0, 3, 8});
  CHECK(blobs.notes ==
        std::vector<std::uint64_t>{2, 7, 1, 0, 104, 3, 102, 8, 107, 101, 100, 103, 108});
  blobs.notes.clear();
  (void)test::read_batch(data, {5, 6});
  CHECK(blobs.notes == std::vector<std::uint64_t>{6, 105, 106});
}

TEST_CASE("images in a store are the same bits, read ahead or not",
          "[image][fault:hangs-5][promise:honest-9]") {
  test::counting_store store;
  std::vector<ps::stored_blob> list;
  const test::blobs images = toys(60);
  for (std::size_t i = 0; i < 60; ++i) {
    const auto& one = images.all[i];
    const std::string name = std::to_string(i);
    store.add(name, {reinterpret_cast<const char*>(one.data()), one.size()});
    list.push_back({name, 0, one.size(), images.label(i)});
  }
  std::vector<std::uint8_t> first;
  for (const std::uint64_t read_ahead : {0U, 30U, 10'000U}) {
    for (const std::size_t workers : {0U, 3U}) {
      const ps::stored_blobs blobs{store, list, {.read_ahead = read_ahead}};
      const auto data = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
      ps::loader loader{data,
                        ps::shuffled{.seed = 4},
                        ps::cpu_device{},
                        {.batch_size = 16, .workers = workers, .lookahead_bytes = 20 * read_ahead}};
      CHECK(loader.stats().ahead.max_bytes == read_ahead);  // limited by the capacity of the source
      CHECK(ps::storage_size_of(data, 7) == images.all[7].size());
      const auto all = all_bytes(loader);
      if (first.empty()) first = all;
      CHECK((all == first));
    }
  }
}

TEST_CASE("images of unknown bytes count as the mean of those that were read", "[image]") {
  const test::blobs images = toys(3);
  const auto data = images | ps::decode_images<toy_decoder>(test::some_crop{});
  CHECK(ps::storage_size_of(data, 0) == 0);
  test::read_batch(data, {0, 1});
  CHECK(ps::storage_size_of(data, 2) == (images.all[0].size() + images.all[1].size()) / 2);
}

TEST_CASE("announced images are forwarded to the cache below", "[image][promise:bounded-11]") {
  const test::counting_store store;
  const ps::cached_store cache{store};
  const ps::stored_blobs blobs{cache, {{"a", 0, 10}, {"b", 0, 10}, {"c", 0, 10}}};
  const auto data = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
  CHECK(ps::plan_capacity_of(data) == blobs.plan_capacity());
  ps::access_plan(data, std::vector<std::uint64_t>{2, 0});
  CHECK(cache.stats().planned_uses == 2);
  ps::access_plan(data, {});
  CHECK(cache.stats().planned_uses == 0);
  const auto plain = toys(1) | ps::decode_images<toy_decoder>(test::some_crop{});
  CHECK(ps::plan_capacity_of(plain) == 0);
}

TEST_CASE("a bad image is skipped or replaced, and the quarantine list names it",
          "[image][fault:files-13]") {
  test::blobs blobs = toys(60);
  blobs.all[7] = text("GIF89a and so on");
  blobs.all[40].resize(5);
  for (const auto action : {ps::error_action::skip, ps::error_action::replace}) {
    std::vector<std::uint8_t> first;
    for (const std::size_t workers : {1U, 2U, 4U}) {
      const auto data = blobs | ps::decode_images<toy_decoder>(test::some_crop{});
      ps::loader loader{
          data,
          ps::shuffled{.seed = 4},
          ps::cpu_device{},
          {.batch_size = 16, .workers = workers, .faults = {.on_error = {.action = action}}}};
      const auto all = all_bytes(loader);
      const std::size_t samples = action == ps::error_action::skip ? 116 : 120;
      CHECK(all.size() == samples * (12 * 10 * 3 + 1));
      if (first.empty()) first = all;
      CHECK((all == first));
      const ps::failure_report report = loader.failures();
      REQUIRE(report.samples.size() == 2);
      CHECK(report.samples[0].sample == 7);
      CHECK(report.samples[0].what.find("folder/7.any: at byte 0") != std::string::npos);
      CHECK(report.samples[1].sample == 40);
      CHECK(report.samples[1].what.find("folder/40.any: at byte 5") != std::string::npos);
    }
  }
}
