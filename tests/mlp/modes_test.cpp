// SPDX-License-Identifier: BSL-1.0
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <penstock/penstock.hpp>

#include "augment.hpp"
#include "data.hpp"
#include "host_backend.hpp"
#include "mlp/replaying_backend.hpp"
#include "stage_costs.hpp"
#include "support/catch.hpp"
#include "train.hpp"
#include "wide.hpp"

namespace {

namespace ps = penstock;

/// 203 digits, so that the last batch of 16 is short.
struct drawn : mlp::digit_set {
  static constexpr std::size_t count = 203;
  drawn() : mlp::digit_set(mlp::random_digits(count)) {}
};

mlp::options chosen_for(std::size_t workers) {
  mlp::options chosen;
  chosen.epochs = 3;
  chosen.batch = 16;
  chosen.workers = workers;
  chosen.seed = 5;
  return chosen;
}

template <class Backend = mlp::host_backend, class Data>
std::vector<mlp::run_trace> traces_of_all_modes(const Data& data, bool is_random,
                                                const mlp::options& chosen,
                                                const Backend& backend = {}) {
  const ps::cpu_device device;
  const auto stream = device.inline_stream();
  device.make_current();
  mlp::trainer<Backend> trained{device,        backend,     stream,     chosen.batch,
                                chosen.epochs, data.size(), chosen.seed};
  std::vector<mlp::run_trace> traces;
  const auto keep = [&](double seconds) {
    CHECK(seconds > 0.0);
    traces.push_back(trained.trace());
  };
  keep(mlp::train_serially(data, device, trained, chosen));
  keep(mlp::train_with_workers(data, device, trained, chosen));
  keep(mlp::train_overlapped(data, device, trained, chosen).seconds);
  const mlp::resident_set<Backend, mlp::pixel_of<Data>> set{
      device,       stream,        data,       is_random, mlp::order_of(chosen),
      chosen.batch, chosen.epochs, chosen.seed};
  keep(mlp::train_resident(set, data.size(), device, trained, chosen));
  return traces;
}

void check_all_equal(const std::vector<mlp::run_trace>& traces, const mlp::run_trace& expected) {
  for (std::size_t i = 0; i < traces.size(); ++i) {
    CAPTURE(i);
    CHECK(traces[i].losses == expected.losses);
    CHECK(traces[i].parameters == expected.parameters);
  }
}

}  // namespace

TEST_CASE("the four modes agree in every bit of losses and parameters", "[mlp]") {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> data{digits.images, digits.labels};
  const std::size_t workers = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{3});
  CAPTURE(workers);
  const auto traces = traces_of_all_modes(data, false, chosen_for(workers));
  REQUIRE(traces[0].losses.size() == 3 * drawn::count);
  CHECK(traces[0].losses.back() > 0.0F);
  check_all_equal(traces, traces[0]);
}

TEST_CASE("the four modes agree on augmented samples, which differ between epochs", "[mlp]") {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> plain{digits.images, digits.labels};
  const auto data = plain | ps::map<ps::digit_record>(mlp::augment{});
  const auto chosen = chosen_for(2);
  const auto traces = traces_of_all_modes(data, true, chosen);
  check_all_equal(traces, traces[0]);
  // Tests the comparison itself, which must detect a resident set that repeats its first epoch.
  const ps::cpu_device device;
  const auto stream = device.inline_stream();
  mlp::trainer<mlp::host_backend> trained{device, {},          stream,     chosen.batch,
                                          3,      data.size(), chosen.seed};
  const mlp::resident_set<mlp::host_backend> repeated{
      device, stream, data, false, mlp::order_of(chosen), chosen.batch, 3, chosen.seed};
  static_cast<void>(mlp::train_resident(repeated, data.size(), device, trained, chosen));
  CHECK(trained.trace() != traces[0]);
}

TEST_CASE("replayed steps produce the same bits as captured steps", "[mlp]") {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> data{digits.images, digits.labels};
  auto chosen = chosen_for(1);
  chosen.depth = GENERATE(std::size_t{1}, std::size_t{3});
  const auto expected = traces_of_all_modes(data, false, chosen);
  const test::replaying_backend<> replaying;
  const auto traces = traces_of_all_modes(data, false, chosen, replaying);
  check_all_equal(traces, expected[0]);
  CHECK(replaying.graphs() == 2);  // in the last mode, for full batches and the short batch
  CHECK(replaying.replays() >= 4 * 39);
}

TEST_CASE("the four modes agree with fused kernels, captured and replayed", "[mlp]") {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> data{digits.images, digits.labels};
  auto chosen = chosen_for(1);
  chosen.epochs = 1;
  const test::replaying_backend<test::fused_context> fused;
  const auto traces = traces_of_all_modes(data, false, chosen, fused);
  check_all_equal(traces, traces[0]);
  const auto plain = traces_of_all_modes(data, false, chosen);
  for (std::size_t i = 0; i < traces[0].losses.size(); ++i) {
    CHECK(std::abs(traces[0].losses[i] - plain[0].losses[i]) < 1e-3F);
  }
}

TEST_CASE("the four modes agree on images copied as floats, which equal the byte images", "[mlp]") {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> plain{digits.images, digits.labels};
  const auto wide = plain | ps::map<mlp::wide_record>(mlp::widen{});
  const auto chosen = chosen_for(2);
  check_all_equal(traces_of_all_modes(wide, false, chosen),
                  traces_of_all_modes(plain, false, chosen)[0]);
}

TEST_CASE("the loss of an epoch is the mean of the mean batch losses", "[mlp]") {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> data{digits.images, digits.labels};
  const auto chosen = chosen_for(1);
  const ps::cpu_device device;
  mlp::trainer<mlp::host_backend> trained{device,      {},         device.inline_stream(), 16, 3,
                                          data.size(), chosen.seed};
  static_cast<void>(mlp::train_serially(data, device, trained, chosen));
  const auto losses = trained.trace().losses;
  const auto means = trained.epoch_losses();
  REQUIRE(means.size() == 3);
  for (std::size_t e = 0; e < 3; ++e) {
    double sum = 0.0;
    for (std::size_t b = 0; b < 13; ++b) {
      const std::size_t count = b < 12 ? 16 : 203 - 12 * 16;
      double batch = 0.0;
      for (std::size_t i = 0; i < count; ++i) {
        batch += losses[e * 203 + b * 16 + i];
      }
      sum += batch / static_cast<double>(count);
    }
    CHECK(std::abs(means[e] - sum / 13.0) < 1e-9);
  }
  CHECK(means[2] < means[0]);
}

TEST_CASE("the stages can be measured with batches larger than the dataset", "[mlp]") {
  const drawn digits;
  const ps::memory_dataset<ps::digit_record> data{digits.images, digits.labels};
  auto chosen = chosen_for(1);
  chosen.batch = GENERATE(std::size_t{16}, std::size_t{300});
  const ps::cpu_device device;
  mlp::trainer<mlp::host_backend> trained{
      device, {}, device.inline_stream(), chosen.batch, 3, data.size(), chosen.seed};
  mlp::stage_samples costs;
  mlp::measure_stages(costs, data, device, trained, chosen);
  CHECK(costs.medians().load > 0.0);
  CHECK(costs.medians().copy > 0.0);
  CHECK(costs.medians().compute > 0.0);
}
