// SPDX-License-Identifier: BSL-1.0
#include <penstock/transfer/batch_source.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <penstock/core/batch.hpp>
#include <penstock/load/any_loader.hpp>
#include <penstock/load/host_batch.hpp>
#include <penstock/load/stage.hpp>
#include <penstock/transfer/detail/source_stage.hpp>
#include <penstock/transfer/transfer.hpp>

#include "support/catch.hpp"

namespace ps = penstock;

namespace {

using numbers_record = ps::record<ps::field<"number", std::uint64_t>>;

/// A batch type that a program defines: a buffer that returns to a free list.
class own_batch {
 public:
  using record_type = numbers_record;
  using device_type = ps::cpu_device;

  own_batch() = default;
  own_batch(std::byte* data, const ps::batch_info& info, int& returned)
      : data_(data), info_(info), returned_(&returned) {}
  own_batch(own_batch&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        info_(other.info_),
        returned_(other.returned_) {}
  own_batch& operator=(own_batch&& other) noexcept {
    std::swap(data_, other.data_);
    info_ = other.info_;
    returned_ = other.returned_;
    return *this;
  }

  explicit operator bool() const { return data_ != nullptr; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] ps::batch_info info() const { return info_; }
  void release_after(ps::cpu_stream_ref stream) {
    ps::cpu_device{}.synchronize(stream);  // a blocking wait is simple and correct
    data_ = nullptr;
    ++*returned_;
  }

 private:
  std::byte* data_ = nullptr;
  ps::batch_info info_;
  int* returned_ = nullptr;
};
static_assert(ps::source_batch<own_batch>);

/// A batch source that a program defines, with four batches of two numbers per epoch in a single
/// buffer.
struct own_source {
  using record_type = numbers_record;
  using device_type = ps::cpu_device;
  using batch_type = own_batch;

  [[nodiscard]] device_type device() const { return {}; }
  [[nodiscard]] const ps::batch_layout<numbers_record>& layout() const { return layout_; }
  void start(const ps::batch_position& from, std::uint64_t last_epoch) {
    next_ = from.epoch * 4 + from.batch;
    end_ = last_epoch * 4;
  }
  batch_type next() {
    if (next_ == end_) return {};
    buffer_ = {2 * next_, 2 * next_ + 1};
    const ps::batch_info info{next_ / 4, next_ % 4, 2, 2};
    ++next_;
    return {reinterpret_cast<std::byte*>(buffer_.data()), info, *returned};
  }
  batch_type try_next() { return {}; }  // the single buffer permits no batch ahead
  void stop() noexcept { end_ = next_; }

  std::shared_ptr<int> returned = std::make_shared<int>(0);

 private:
  ps::batch_layout<numbers_record> layout_{{{}}, 2};
  std::array<std::uint64_t, 2> buffer_{};
  std::uint64_t next_ = 0;
  std::uint64_t end_ = 0;
};
static_assert(ps::batch_source<own_source>);
static_assert(ps::source_batch<ps::host_batch<numbers_record, ps::cpu_device>>);

// Types that do not satisfy `source_batch`.
struct copyable_batch {
  using record_type = numbers_record;
  using device_type = ps::cpu_device;
  explicit operator bool() const { return false; }
  [[nodiscard]] const std::byte* data() const { return nullptr; }
  [[nodiscard]] ps::batch_info info() const { return {}; }
  void release_after(ps::cpu_stream_ref) {}
};
struct batch_never_released : own_batch {
  void release_after(ps::cpu_stream_ref) = delete;
};
struct batch_without_info : own_batch {
  void info() const {}
};
struct batch_never_empty : own_batch {
  explicit operator bool() const = delete;
};
struct batch_without_default : own_batch {
  explicit batch_without_default(int) {}
};
static_assert(!ps::source_batch<copyable_batch>);
static_assert(!ps::source_batch<batch_never_released>);
static_assert(!ps::source_batch<batch_without_info>);
static_assert(!ps::source_batch<batch_never_empty>);
static_assert(!ps::source_batch<batch_without_default>);
static_assert(!ps::source_batch<std::unique_ptr<int>>);

// Types that do not satisfy `batch_source`.
struct stop_throws : own_source {
  void stop() {}
};
struct start_without_position : own_source {
  void start(std::uint64_t) {}
};
struct no_try_next : own_source {
  batch_type try_next() = delete;
};
struct next_of_something_else : own_source {
  int next() { return 0; }
};
struct layout_of_something_else : own_source {
  [[nodiscard]] int layout() const { return 0; }
};
struct no_device : own_source {
  using device_type = int;
};
struct where_changes : own_source {
  [[nodiscard]] device_type device() { return {}; }
};
static_assert(!ps::batch_source<stop_throws>);
static_assert(!ps::batch_source<start_without_position>);
static_assert(!ps::batch_source<no_try_next>);
static_assert(!ps::batch_source<next_of_something_else>);
static_assert(!ps::batch_source<layout_of_something_else>);
static_assert(!ps::batch_source<no_device>);
static_assert(!ps::batch_source<where_changes>);
static_assert(!ps::batch_source<int>);

// All loaders for the same device share one stage type. Each user-defined source has its own stage
// type.
using loader_stage = ps::detail::loader_core<ps::cpu_device>;
using own_stage = ps::detail::source_stage<own_source>;
struct derived_loader : ps::any_loader<numbers_record> {
  using any_loader::any_loader;
};
static_assert(ps::detail::stage<loader_stage> && ps::detail::stage<own_stage>);
static_assert(!ps::detail::stage<own_source> && !ps::detail::stage<ps::any_loader<numbers_record>>);
static_assert(
    std::same_as<ps::detail::stage_of_t<ps::any_loader<numbers_record>>, loader_stage> &&
    std::same_as<ps::detail::stage_of_t<own_source>, own_stage> &&
    std::same_as<ps::detail::stage_of_t<derived_loader>, ps::detail::source_stage<derived_loader>>);

}  // namespace

TEST_CASE("a user-defined source feeds a transfer", "[transfer]") {
  const ps::cpu_device device;
  own_source source;
  ps::transfer feed{source, device.inline_stream()};
  std::vector<std::uint64_t> seen;
  std::vector<std::uint64_t> epochs;
  for (auto& batch : feed.epochs(1, 3)) {
    for (const auto number : ps::get<"number">(batch).flat()) seen.push_back(number);
    epochs.push_back(batch.epoch());
  }
  CHECK(seen == std::vector<std::uint64_t>{8, 9, 10, 11, 12, 13, 14, 15,  //
                                           16, 17, 18, 19, 20, 21, 22, 23});
  CHECK(epochs == std::vector<std::uint64_t>{1, 1, 1, 1, 2, 2, 2, 2});
  CHECK(*source.returned == 8);
  CHECK_FALSE(feed.last_failure().has_value());
}

TEST_CASE("a source with a changing layout, or with batches that contradict it, is rejected",
          "[transfer][fault:consumers-13]") {
  struct grown : own_source {
    std::size_t batch_size = 2;
    std::size_t samples = 2;
    int taken_back = 0;
    int stops = 0;
    void take_back(const ps::batch_info&, std::span<const std::uint64_t>) noexcept { ++taken_back; }
    void stop() noexcept {
      ++stops;
      own_source::stop();
    }
    ps::batch_layout<numbers_record> places{{{}}, 2};
    [[nodiscard]] const ps::batch_layout<numbers_record>& layout() const { return places; }
    batch_type next() {
      batch_type one = own_source::next();
      if (!one) return one;
      ps::batch_info info = one.info();
      info.size = samples;
      return {const_cast<std::byte*>(one.data()), info, *returned};
    }
  } source;
  ps::transfer feed{source};
  const auto loop = [&] {
    for (auto& batch : feed.epoch(0)) CHECK(batch.size() == 2);
  };
  loop();
  const int stops = source.stops;
  source.samples = 3;
  CHECK_THROWS_MATCHES(loop(), ps::source_mismatch,
                       Catch::Matchers::Predicate<ps::source_mismatch>([](const auto& error) {
                         return std::string{error.what()}.find(
                                    "batch 0 of epoch 0 has 3 samples") != std::string::npos;
                       }));
  CHECK(source.taken_back == 1);
  CHECK(source.stops == stops + 1);
  source.samples = 2;
  source.places = {{{}}, 8};
  CHECK_THROWS_AS(loop(), ps::source_mismatch);
  source.places = {{{}}, 2};
  loop();
}

TEST_CASE("nothing is taken from a source without a free slot", "[transfer][fault:consumers-2]") {
  struct counting : own_source {
    batch_type next() {
      ++taken;
      return own_source::next();
    }
    int taken = 0;
  };
  counting source;
  const ps::cpu_device device;
  ps::transfer feed{source, device.inline_stream(), {.depth = 2}};
  std::vector<decltype(feed)::batch_type> held;
  const auto hoard = [&] {
    for (auto& batch : feed.epoch(0)) held.push_back(std::move(batch));
  };
  CHECK_THROWS_AS(hoard(), ps::leases_exhausted);
  CHECK(held.size() == 2);
  CHECK(source.taken == 2);  // the source still has every batch
}

TEST_CASE("tags of a source reach the device batch, and undelivered batches are returned",
          "[transfer][promise:honest-14]") {
  struct tagged_batch : own_batch {
    using own_batch::own_batch;
    tagged_batch(own_batch&& other) : own_batch(std::move(other)) {}  // NOLINT: implicit
    [[nodiscard]] ps::batch_info info() const {
      auto all = own_batch::info();
      all.tag = 100 + all.batch;
      return all;
    }
    [[nodiscard]] std::span<const std::uint64_t> tags() const { return words; }
    std::array<std::uint64_t, 2> words{};
  };
  struct tagged_source : own_source {
    using batch_type = tagged_batch;
    batch_type next() {
      batch_type batch{own_source::next()};
      if (batch) batch.words = {10 * batch.info().batch, 10 * batch.info().batch + 1};
      return batch;
    }
    batch_type try_next() { return next(); }
    void take_back(const ps::batch_info& batch, std::span<const std::uint64_t> tags) noexcept {
      taken_back.push_back(batch.tag);
      words_taken_back += tags.front();
    }
    std::vector<std::uint64_t> taken_back;
    std::uint64_t words_taken_back = 0;
  };
  tagged_source source;
  const ps::cpu_device device;
  ps::transfer feed{source, device.inline_stream(), {.depth = 2}};
  std::uint64_t batches = 0;
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.tag() == 100 + batches);
    CHECK(batch.info().tag == 100 + batches);
    REQUIRE(batch.tags().size() == 2);
    CHECK(batch.tags()[1] == 10 * batches + 1);
    ++batches;
  }
  CHECK(batches == 4);
  CHECK(source.taken_back.empty());
  for (auto& batch : feed.epoch(0)) {
    CHECK(batch.tag() == 100);
    break;
  }
  CHECK(source.taken_back == std::vector<std::uint64_t>{101});  // copied ahead but not delivered
  CHECK(source.words_taken_back == 10);
}

TEST_CASE("batches of a loader have no tags of a source", "[transfer]") {
  ps::host_batch<numbers_record, ps::cpu_device> batch;
  CHECK(batch.tag() == 0);
  batch.set_tag(5);
  CHECK(batch.tag() == 5);
  CHECK(batch.info().tag == 5);
  own_source source;
  ps::transfer feed{source};
  for (auto& each : feed.epoch(0)) {
    CHECK(each.tags().empty());
    CHECK(each.tag() == 0);
  }
}

TEST_CASE("a minimal batch_source is a stage with defaults", "[transfer]") {
  own_source source;
  own_stage stage{source};
  ps::detail::failed_batch failed;
  stage.start({0, 0}, 1);
  CHECK_FALSE(stage.at_end());
  CHECK_FALSE(stage.try_next(failed));
  for (int i = 0; i < 4; ++i) CHECK(stage.next(failed));
  CHECK_FALSE(stage.next(failed));
  CHECK_FALSE(failed);
  CHECK_FALSE(stage.was_cut());
  CHECK_FALSE(stage.lists_samples());
  CHECK_FALSE(stage.stats().has_value());
  CHECK_FALSE(stage.holdable().has_value());
  CHECK_FALSE(stage.stop_token().stop_possible());
  CHECK(stage.trace_flow(nullptr) == 0);
  stage.take_back({}, {});
  stage.stop();
}

TEST_CASE("a source without failure reports still passes on its exceptions", "[transfer]") {
  struct failing : own_source {
    batch_type next() {
      if (++calls == 3) throw std::runtime_error{"producer failed"};
      return own_source::next();
    }
    int calls = 0;
  };
  failing source;
  const ps::cpu_device device;
  ps::transfer feed{source, device.inline_stream()};
  std::uint64_t seen = 0;
  const auto consume = [&] {
    for (auto& batch : feed.epoch(0)) seen += batch.size();
  };
  CHECK_THROWS_MATCHES(consume(), std::runtime_error, Catch::Matchers::Message("producer failed"));
  CHECK(seen == 4);
  CHECK_FALSE(feed.last_failure().has_value());
  consume();
  CHECK(seen == 12);
}
