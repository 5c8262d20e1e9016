// SPDX-License-Identifier: BSL-1.0
// Tests both identities of a failed sample: its index in the loader's dataset, and its origin in
// the base dataset.
#include <chrono>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <penstock/faults/error_policy.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/quarantine/quarantine.hpp>

#include "support/catch.hpp"
#include "support/hanging.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

/// A dataset in which every 100th sample is bad.
struct mostly_good {
  using record_type = ps::record<ps::field<"label", std::uint64_t>>;
  std::uint64_t count;
  [[nodiscard]] std::uint64_t size() const { return count; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    ps::get<"label">(out) = index;
    if (index % 100 == 0) throw bad_sample(index);
  }
};

const auto same = [](auto&&) {};
constexpr ps::error_policy skip{.action = ps::error_action::skip, .max_failure_rate = 1};

}  // namespace

TEST_CASE("a failure also names the sample in the base dataset", "[flow][promise:honest-1]") {
  const std::size_t workers = GENERATE(0U, 2U);
  const ps::loader_options options{.batch_size = 8, .workers = workers};
  SECTION("below a subset") {
    ps::loader loader{mostly_good{2000} | ps::subset(1050, 1150) | ps::map(same), ps::sequential{},
                      options};
    CHECK_THROWS_AS(samples_in(loader.epoch(0)), bad_sample);
    REQUIRE(loader.last_failure());
    CHECK(loader.last_failure()->sample == 50);
    CHECK(loader.last_failure()->origin == ps::sample_origin{1100, 0});
    CHECK_THAT(
        loader.last_failure()->str(),
        Catch::Matchers::StartsWith("stage read, epoch 0, batch 6, sample 50 (position 2 ") &&
            Catch::Matchers::EndsWith("), 1100 in the dataset below"));
  }
  SECTION("in a part of a concatenation") {
    ps::loader loader{
        ps::concat(mostly_good{2000} | ps::subset(1, 21), mostly_good{3000} | ps::subset(290, 310)),
        ps::sequential{}, options};
    CHECK_THROWS_AS(samples_in(loader.epoch(0)), bad_sample);
    REQUIRE(loader.last_failure());
    CHECK(loader.last_failure()->sample == 30);
    CHECK(loader.last_failure()->origin == ps::sample_origin{300, 1});
    CHECK_THAT(loader.last_failure()->str(), Catch::Matchers::EndsWith("), 300 in part 1 below"));
  }
  SECTION("but not if the dataset itself is the base") {
    ps::loader loader{mostly_good{2000}, ps::sequential{}, options};
    CHECK_THROWS_AS(samples_in(loader.epoch(0)), bad_sample);
    CHECK(loader.last_failure()->origin == ps::sample_origin{0, 0});
    CHECK_THAT(loader.last_failure()->str(),
               Catch::Matchers::Contains("sample 0 (position 0 of the batch") &&
                   !Catch::Matchers::Contains("below"));
  }
}

TEST_CASE("a quarantine list of a subset fits the whole dataset, and no other",
          "[flow][promise:honest-1]") {
  ps::loader loader{mostly_good{2000} | ps::subset(1000, 1250),
                    ps::sequential{},
                    {.batch_size = 8, .workers = 2, .faults = {.on_error = skip}}};
  static_cast<void>(samples_in(loader.epoch(0)));
  const auto report = loader.failures();
  REQUIRE(report.samples.size() == 3);
  CHECK(report.samples[1].sample == 100);
  CHECK(report.samples[1].origin == ps::sample_origin{1100, 0});
  std::stringstream list;
  report.write_quarantine(list);
  const std::string text = list.str();
  CHECK(ps::read_quarantine(list, {.dataset = 2000}) ==
        std::vector<std::uint64_t>{1000, 1100, 1200});
  std::istringstream again{text};
  CHECK_THROWS_AS(ps::read_quarantine(again, {.dataset = 250}), ps::error);
}

TEST_CASE("a quarantine list of a concat has a section for each base dataset", "[flow]") {
  ps::loader loader{ps::concat(mostly_good{150}, mostly_good{250} | ps::subset(90, 250)),
                    ps::sequential{},
                    {.batch_size = 8, .workers = 2, .faults = {.on_error = skip}}};
  static_cast<void>(samples_in(loader.epoch(0)));
  CHECK(loader.failures().base_sizes == std::vector<std::uint64_t>{150, 250});
  std::stringstream list;
  loader.failures().write_quarantine(list);
  CHECK(ps::read_quarantine(list, {.dataset = 250, .part = 1}) ==
        std::vector<std::uint64_t>{100, 200});
}

TEST_CASE("a list names the base dataset for any adaptors between it and the loader", "[flow]") {
  using label = mostly_good::record_type;
  const mostly_good whole{250};
  const auto some = whole | ps::subset(50, 250) | ps::map(same) |
                    ps::map<label>([](ps::const_sample<label> in, ps::sample<label> out) {
                      ps::get<"label">(out) = ps::get<"label">(in);
                    });
  ps::loader loader{
      some, ps::sequential{}, {.batch_size = 8, .workers = 2, .faults = {.on_error = skip}}};
  static_cast<void>(samples_in(loader.epoch(0)));
  std::stringstream list;
  loader.failures().write_quarantine(list);
  CHECK_THAT(list.str(), Catch::Matchers::StartsWith("# penstock quarantine: dataset of 250 sam"));
  CHECK(ps::read_quarantine(list, {.dataset = 250}) == std::vector<std::uint64_t>{100, 200});
}

TEST_CASE("a hanging read is also named in the base dataset", "[flow][promise:honest-1]") {
  const auto around = std::make_shared<hanging::outside>();
  ps::stall_report seen;
  {
    ps::loader loader{hanging{around, 40, {13}} | ps::subset(10, 40),
                      ps::sequential{},
                      {.batch_size = 8,
                       .workers = 1,
                       .faults = {.stall_warning = std::chrono::milliseconds{300},
                                  .on_stall = [&](const ps::stall_report& read) {
                                    seen = read;
                                    around->release();
                                  }}}};
    static_cast<void>(samples_in(loader.epoch(0)));
  }
  CHECK(seen.where.origin == ps::sample_origin{13, 0});
}
