// SPDX-License-Identifier: BSL-1.0
// Flows of random configurations over ragged samples: samplers, workers, chunks, prefetch, hints,
// retries, skips, feeds with and without a transform, leases that threads share, loops that are
// left, resumed and destroyed in mid-read. Each batch is compared with one that is made here sample
// by sample, without the library's loader.
//
//   penstock_soak_flows ROUNDS [SEED]
//
// Exit status 1 when a batch differs; the configuration stands beside its seed, which repeats it.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

namespace {

namespace ps = penstock;

using text_record = ps::record<ps::field<"tokens", std::uint16_t, ps::ragged>,
                               ps::field<"label", std::uint64_t>, ps::field<"bits", std::uint32_t>>;
using sums_record = ps::record<ps::field<"sum", std::uint64_t>, ps::field<"label", std::uint64_t>>;

class mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class bad_sample : public std::runtime_error {
 public:
  bad_sample() : std::runtime_error("a bad sample") {}
};

struct config {
  std::uint64_t samples = 1;
  std::uint64_t seed = 0;
  std::uint64_t order_seed = 0;
  std::uint64_t bad_in = 0;    // one of so many samples is never read
  std::uint64_t flaky_in = 0;  // one of so many is read at the second try
  std::uint64_t told_most = 0;
  bool hints_throw = false;
  int ranks = 1;
  int rank = 0;
  ps::loader_options options;
  ps::transfer_options transfer;
};

bool is_one(const config& how, std::uint64_t index, std::uint64_t what, std::uint64_t in) {
  return in != 0 && ps::sample_generator{{.seed = how.seed, .epoch = what}, index}() % in == 0;
}
std::size_t tokens_of(std::uint64_t index) { return index * 7 % 11; }

/// Ragged samples, some of which fail, out of a store that is told what comes.
struct texts {
  using record_type = text_record;
  const config* how;
  std::shared_ptr<std::atomic<std::uint64_t>> told =
      std::make_shared<std::atomic<std::uint64_t>>(0);

  [[nodiscard]] std::uint64_t size() const { return how->samples; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{.longest = 10}, {}, {}};
  }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const { return tokens_of(index); }
  void read(std::uint64_t index, ps::sample<record_type> out, ps::sample_generator& rng) const {
    if (index % 5 == 0) std::this_thread::yield();
    ps::get<"label">(out) = ~index;  // must not show where the read fails
    if (is_one(*how, index, 100, how->bad_in)) throw bad_sample{};
    if (is_one(*how, index, 101, how->flaky_in) && fails_now(index)) throw bad_sample{};
    std::uint16_t value = static_cast<std::uint16_t>(index * 100);
    for (auto& token : ps::get<"tokens">(out).flat()) token = value++;
    ps::get<"label">(out) = index;
    ps::get<"bits">(out) = rng();
  }
  void will_read(std::span<const std::uint64_t> indices) const {
    *told += indices.size();
    std::this_thread::yield();
    if (how->hints_throw) throw bad_sample{};
  }
  void foresee(std::span<const std::uint64_t> indices) const { *told += indices.size(); }
  [[nodiscard]] std::uint64_t most_ahead() const { return how->told_most; }

 private:
  // By thread: one thread reads a sample and its retry, and nothing between them.
  static bool fails_now(std::uint64_t index) {
    thread_local std::optional<std::uint64_t> failed;
    const bool again = failed == index;
    failed = again ? std::nullopt : std::optional{index};
    return !again;
  }
};

struct sample_of_batch {
  std::uint64_t label = 0;
  std::uint32_t bits = 0;
};
struct expected {
  std::vector<sample_of_batch> samples;
  bool is_bad = false;
};

/// The batch at a place, one sample after the other.
template <class Sampler>
expected expect(const config& how, const Sampler& sampler, const ps::batch_position& at) {
  expected batch;
  const std::uint64_t drawn = sampler.size(how.samples);
  const auto order = sampler.order(how.samples, at.epoch);
  const std::uint64_t begin = at.batch * how.options.batch_size;
  const std::uint64_t full = begin + how.options.batch_size;
  const bool pads = how.options.last_batch == ps::partial_batch::pad;
  for (std::uint64_t k = begin; k < (pads ? full : (std::min)(full, drawn)); ++k) {
    std::uint64_t index = 0;
    order.fill(k % drawn, std::span{&index, 1});
    if (is_one(how, index, 100, how.bad_in)) {
      if (how.options.on_error.action == ps::error_action::skip) continue;
      batch.is_bad = true;
      return batch;
    }
    ps::sample_generator rng{{.seed = how.options.seed, .epoch = at.epoch}, index};
    batch.samples.push_back({index, rng()});
  }
  return batch;
}

void require(bool holds, const char* what) {
  if (!holds) throw mismatch(what);
}

/// What a batch of texts holds, in memory that the host reads.
template <class View>
void compare(const View& view, const expected& must) {
  const auto labels = ps::get<"label">(view);
  const auto bits = ps::get<"bits">(view);
  const auto tokens = ps::get<"tokens">(view);
  require(view.size() == must.samples.size(), "another number of samples");
  for (std::size_t i = 0; i < must.samples.size(); ++i) {
    const auto [label, random] = must.samples[i];
    require(labels(i) == label, "another sample");
    require(bits(i) == random, "other random bits");
    const auto all = tokens[i].flat();
    require(all.size() == tokens_of(label), "a sample of another length");
    auto value = static_cast<std::uint16_t>(label * 100);
    for (const auto token : all) require(token == value++, "other tokens");
  }
}
/// What a transform has made of it.
template <class View>
void compare_sums(const View& view, const expected& must) {
  require(view.size() == must.samples.size(), "another number of samples, transformed");
  for (std::size_t i = 0; i < must.samples.size(); ++i) {
    const std::uint64_t label = must.samples[i].label;
    std::uint64_t sum = 0;
    for (std::size_t n = 0; n < tokens_of(label); ++n) {
      sum += static_cast<std::uint16_t>(label * 100 + n);
    }
    require(ps::get<"label">(view)(i) == label, "another sample, transformed");
    require(ps::get<"sum">(view)(i) == sum, "another sum");
  }
}

struct add_up {
  void operator()(ps::const_batch_view<text_record> in, ps::batch_view<sums_record> out,
                  ps::cpu_stream_ref stream) const {
    stream.launch([in, out] {
      for (std::size_t i = 0; i < in.size(); ++i) {
        std::uint64_t sum = 0;
        for (const auto token : ps::get<"tokens">(in)[i].flat()) sum += token;
        ps::get<"sum">(out)(i) = sum;
        ps::get<"label">(out)(i) = ps::get<"label">(in)(i);
      }
    });
  }
};

/// One flow of one configuration. Single-use.
template <class Sampler>
class flow {
 public:
  flow(const config& how, const Sampler& sampler, std::uint64_t seed)
      : how_(how), sampler_(sampler), random_(seed) {}

  void run() {
    std::optional<ps::loader_state> state;
    ps::batch_position next{below(3), 0};
    for (int loop = 0; loop < 3; ++loop) {
      auto options = how_.options;
      if (loop > 0) {  // the rest of it under other workers and prefetch
        options.workers = below(4);
        options.cpus = ps::automatic;
        options.prefetch = below(5);
      }
      const ps::cpu_device device;
      const auto stream = device.make_stream();  // outlives the leases
      ps::loader loader{texts{&how_}, sampler_, options};
      std::vector<std::jthread> others;  // share leases, and may outlive the feed
      switch (below(3)) {
        case 0:
          go(loader, state, next, others,
             [](auto& batch, const expected& must) { compare(batch.view(), must); });
          break;
        case 1: {
          ps::transfer feed{loader, stream, how_.transfer};
          go(feed, state, next, others, [](auto& batch, const expected& must) {
            // Mostly as a step does it, at some time; what it throws comes with a synchronisation.
            batch.stream().launch([view = batch.view(), own = std::make_shared<const expected>(
                                                            must)] { compare(view, *own); });
            if (batch.number() % 4 == 0) batch.stream().synchronize();
          });
          stream.synchronize();
          break;
        }
        default: {
          ps::transfer feed{loader, device, ps::on_stream<sums_record>(add_up{}), how_.transfer};
          go(feed, state, next, others,
             [](auto& batch, const expected& must) { compare_sums(batch.view(), must); });
        }
      }
    }
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  /// Two epochs from `next` or the state on, perhaps left before.
  template <class Face, class Look>
  void go(Face& face, std::optional<ps::loader_state>& state, ps::batch_position& next,
          std::vector<std::jthread>& others, const Look& look) {
    const std::uint64_t last = next.epoch + 2;
    const std::uint64_t drawn = sampler_.size(how_.samples);
    const std::uint64_t size = how_.options.batch_size;
    const bool has_rest = drawn % size != 0 && how_.options.last_batch != ps::partial_batch::drop;
    const std::uint64_t batches = drawn / size + (has_rest ? 1 : 0);
    const std::uint64_t leave_after = below(3) == 0 ? below(2 * batches + 1) : ~std::uint64_t{0};
    const auto normal = [&] {
      if (next.batch == batches) next = {next.epoch + 1, 0};
    };
    normal();
    std::uint64_t seen = 0;
    const auto range = [&] {
      return state && how_.options.in_order ? face.resume(*state, last) : face.batches(next, last);
    };
    try {
      for (auto& batch : range()) {
        if (how_.options.in_order) {
          normal();
          require(batch.epoch() == next.epoch && batch.number() == next.batch, "another batch");
        }
        const ps::batch_position at{batch.epoch(), batch.number()};
        const expected must = expect(how_, sampler_, at);
        require(!must.is_bad, "a batch that can't be read");
        look(batch, must);
        next = {at.epoch, at.batch + 1};
        if (others.size() < 3 && below(6) == 0) {
          // A copy of the lease on another thread, which ends it some time.
          auto shared = ps::share(std::move(batch));
          others.emplace_back([copy = shared, must, look, turns = below(200)]() mutable {
            for (std::uint64_t turn = 0; turn < turns; ++turn) std::this_thread::yield();
            look(copy, must);
          });
          if (below(2) == 0) look(shared, must);
        }
        if (seen++ == leave_after) break;
      }
      if (seen <= leave_after && how_.options.in_order) {
        normal();
        require(next.epoch == last && next.batch == 0, "batches are missing");
      }
    } catch (const bad_sample&) {
      normal();
      require(has_bad(next, last, batches), "an error that no sample has");
      state.reset();
      next = {next.epoch + 1, 0};
      return;
    }
    normal();
    if (how_.options.in_order) {
      state = face.state();
      ps::batch_position at{state->epoch, state->batch};
      if (at.batch == batches) at = {at.epoch + 1, 0};  // the end of an epoch is a place of its own
      require(at == next, "a state of another place");
    } else {
      next = {last, 0};
    }
  }

  /// Whether the error belongs to the next batch; out of order, to any that may have been next.
  [[nodiscard]] bool has_bad(const ps::batch_position& from, std::uint64_t last,
                             std::uint64_t batches) const {
    if (how_.options.in_order) return expect(how_, sampler_, from).is_bad;
    for (std::uint64_t epoch = last - 2; epoch < last; ++epoch) {
      for (std::uint64_t batch = 0; batch < batches; ++batch) {
        if (expect(how_, sampler_, {epoch, batch}).is_bad) return true;
      }
    }
    return false;
  }

  const config& how_;
  Sampler sampler_;
  std::mt19937_64 random_;
};

config draw(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t end) { return random() % end; };
  const auto one_of = [&](auto... all) {
    const std::array values{all...};
    return values[below(values.size())];
  };
  config how;
  how.samples = 1 + below(90);
  how.seed = below(1000);
  how.order_seed = below(1000);
  how.told_most = one_of(std::uint64_t{0}, std::uint64_t{100}, ~std::uint64_t{0});
  how.hints_throw = below(4) == 0;
  how.flaky_in = one_of(std::uint64_t{0}, std::uint64_t{3});
  how.bad_in = one_of(std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{15});
  how.options = {.batch_size = 1 + below(12),
                 .workers = below(5),
                 .prefetch = below(6),
                 .read_ahead = one_of(std::uint64_t{0}, std::uint64_t{200}, ~std::uint64_t{0}),
                 .seed = below(1000),
                 .last_batch = one_of(ps::partial_batch::keep, ps::partial_batch::drop,
                                      ps::partial_batch::pad),
                 .in_order = below(4) != 0,
                 .run = one_of(std::size_t{0}, std::size_t{1}, std::size_t{3}),
                 .when_held = ps::held_action::wait,
                 .on_error = {.retries = 1,
                              .first_wait = std::chrono::milliseconds{0},
                              .action = one_of(ps::error_action::propagate, ps::error_action::skip),
                              .most_failures = ~std::uint64_t{0},
                              .largest_share = 1}};
  if (below(4) == 0) {
    how.options.workers = ps::automatic;
    how.options.cpus = 1 + below(4);
  }
  if (below(5) == 0) how.options.prefetch = ps::automatic;
  how.transfer = {.depth = 1 + below(5), .when_held = ps::held_action::wait};
  if (below(4) == 0) how.transfer.depth = ps::automatic;
  if (below(3) == 0) {
    how.ranks = 2;
    how.rank = static_cast<int>(below(2));
  }
  return how;
}

std::string describe(const config& how) {
  const auto& o = how.options;
  return "samples " + std::to_string(how.samples) + ", batch_size " + std::to_string(o.batch_size) +
         ", workers " + std::to_string(o.workers) + ", prefetch " + std::to_string(o.prefetch) +
         ", run " + std::to_string(o.run) + ", read_ahead " + std::to_string(o.read_ahead) +
         ", depth " + std::to_string(how.transfer.depth) + ", last " +
         std::to_string(static_cast<int>(o.last_batch)) + ", then " +
         std::to_string(static_cast<int>(o.on_error.action)) + ", bad_in " +
         std::to_string(how.bad_in) + ", flaky_in " + std::to_string(how.flaky_in) + ", ranks " +
         std::to_string(how.ranks) + (o.in_order ? "" : ", out of order");
}

void run_one(std::uint64_t seed) {
  std::mt19937_64 random{seed};
  config how = draw(random);
  try {
    if (how.ranks == 1) {
      if (how.options.last_batch == ps::partial_batch::drop) {
        how.samples = (std::max<std::uint64_t>)(how.samples, how.options.batch_size);
      }
      const ps::shuffled order{.seed = how.order_seed};
      flow<ps::shuffled>{how, order, random()}.run();
      return;
    }
    how.samples = (std::max<std::uint64_t>)(how.samples, 2 * how.options.batch_size);
    std::vector<double> weights(how.samples);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(1 + i % 4);
    const ps::sharded order{
        ps::weighted{weights, {.seed = how.order_seed}},
        {.rank = how.rank, .world = how.ranks, .global_batch = 2 * how.options.batch_size}};
    flow<std::remove_const_t<decltype(order)>>{how, order, random()}.run();
  } catch (const std::exception& error) {
    throw mismatch("seed " + std::to_string(seed) + ": " + error.what() + "\n  " + describe(how));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (argc > 3 || rounds == 0) {
    std::fprintf(stderr, "usage: %s ROUNDS [SEED]\n", argv[0]);
    return 2;
  }
  const std::uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  try {
    for (std::uint64_t round = 0; round < rounds; ++round) run_one(first + round);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  std::printf("%llu configurations from seed %llu: each batch as it must be\n",
              static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(first));
  return 0;
}
