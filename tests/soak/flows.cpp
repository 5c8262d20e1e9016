// SPDX-License-Identifier: BSL-1.0
// Runs loops with random configurations over ragged samples. A configuration selects the sampler,
// workers, chunks, prefetch, hints, automatic values, retries, skips, substitutes and an optional
// transform, and threads that share leases or receive them through a queue. Loops are left early,
// stopped, resumed, and destroyed during a read. Tokens are generated, or read ahead through a
// cache with an access plan. Each batch is compared with a batch that this program builds sample by
// sample without the library's loader. Between these runs, random clients use a batcher, and each
// request must end exactly once.
//
//   penstock_soak_flows ROUNDS [SEED]
//
// Exits with 1 if a batch differs, and prints the configuration and the seed to repeat the run.
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
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/interop/shared_batch.hpp>
#include "soak/clients.hpp"
#include "soak/shelf.hpp"
#include "support/hand_over.hpp"

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
  std::uint64_t bad_in = 0;    // one in `bad_in` samples always fails; 0 means none
  std::uint64_t flaky_in = 0;  // one in `flaky_in` samples fails once per loop; 0 means none
  std::uint64_t max_reported = 0;
  bool hints_throw = false;
  bool is_stopped = false;  // another thread requests a stop at a random time
  // The store of the tokens; empty if tokens are generated.
  std::optional<soak::shelf_config> shelf;
  int ranks = 1;
  int rank = 0;
  ps::loader_options options;
  ps::transfer_options transfer;
};

bool is_one(const config& how, std::uint64_t index, std::uint64_t what, std::uint64_t in) {
  return in != 0 && ps::sample_generator{{.seed = how.seed, .epoch = what}, index}() % in == 0;
}
using soak::first_token;
using soak::tokens_of;

/// Ragged samples from a store that receives hints and access plans. Some samples fail.
struct texts {
  using record_type = text_record;
  const config* how;
  const soak::shelf::blobs_type* blobs = nullptr;  // null if tokens are generated
  std::shared_ptr<std::vector<std::atomic<bool>>> have_failed =
      std::make_shared<std::vector<std::atomic<bool>>>(static_cast<std::size_t>(how->samples));

  [[nodiscard]] std::uint64_t size() const { return how->samples; }
  [[nodiscard]] ps::record_extents<record_type> extents() const {
    return {{.longest = 10}, {}, {}};
  }
  [[nodiscard]] std::uint64_t length(std::uint64_t index) const { return tokens_of(index); }
  void read(std::uint64_t index, ps::sample<record_type> out, ps::sample_generator& rng) const {
    if (index % 5 == 0) std::this_thread::yield();
    ps::get<"label">(out) = ~index;  // a value that must not be visible if the read fails
    if (is_one(*how, index, 100, how->bad_in)) throw bad_sample{};
    if (is_one(*how, index, 101, how->flaky_in) && fails_now(index)) throw bad_sample{};
    const auto tokens = ps::get<"tokens">(out).flat();
    if (blobs == nullptr) {
      auto value = first_token(index);
      for (auto& token : tokens) token = value++;
    } else if (!soak::read_tokens(*blobs, index, tokens)) {
      throw mismatch("a blob of another length");
    }
    ps::get<"label">(out) = index;
    ps::get<"bits">(out) = rng();
  }
  void prefetch_hint(std::span<const std::uint64_t> indices) const {
    if (blobs != nullptr) blobs->prefetch(indices);
    std::this_thread::yield();
    if (how->hints_throw) throw bad_sample{};
  }
  void access_plan(std::span<const std::uint64_t> indices) const {
    if (blobs != nullptr) blobs->access_plan(indices);
  }
  [[nodiscard]] std::uint64_t prefetch_capacity() const {
    return blobs == nullptr ? how->max_reported
                            : (std::min)(how->max_reported, blobs->prefetch_capacity());
  }
  [[nodiscard]] std::uint64_t plan_capacity() const {
    return blobs == nullptr ? how->max_reported : blobs->plan_capacity();
  }

 private:
  // Returns true once per sample. A retry therefore always succeeds, regardless of the thread's
  // other reads.
  [[nodiscard]] bool fails_now(std::uint64_t index) const {
    return !(*have_failed)[static_cast<std::size_t>(index)].exchange(true);
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

/// Returns the sample that replaces a bad sample, if any.
std::optional<std::uint64_t> substitute_of(const config& how, std::uint64_t index,
                                           std::uint64_t epoch) {
  if (how.options.faults.on_error.action != ps::error_action::replace || how.samples < 2) return {};
  ps::detail::substitutes others{{.seed = how.options.seed, .epoch = epoch}, index, how.samples};
  for (int turn = 0; turn < ps::detail::substitutes::max; ++turn) {
    const std::uint64_t other = others.next();
    if (!is_one(how, other, 100, how.bad_in)) return other;
  }
  return {};
}

/// Builds the expected batch at a position sample by sample.
template <class Sampler>
expected expect(const config& how, const Sampler& sampler, const ps::batch_position& at) {
  expected batch;
  const std::uint64_t drawn = sampler.size(how.samples);
  const auto order = sampler.order(how.samples, at.epoch);
  const std::uint64_t begin = at.batch * how.options.batch_size;
  const std::uint64_t full = begin + how.options.batch_size;
  const bool pads = how.options.last_batch == ps::last_batch::pad;
  for (std::uint64_t k = begin; k < (pads ? full : (std::min)(full, drawn)); ++k) {
    std::uint64_t index = 0;
    order.fill(k % drawn, std::span{&index, 1});
    if (is_one(how, index, 100, how.bad_in)) {
      if (how.options.faults.on_error.action == ps::error_action::skip) continue;
      const auto other = substitute_of(how, index, at.epoch);
      if (!other) {
        batch.is_bad = true;
        return batch;
      }
      index = *other;
    }
    ps::sample_generator rng{{.seed = how.options.seed, .epoch = at.epoch}, index};
    batch.samples.push_back({index, rng()});
  }
  return batch;
}

void require(bool holds, const char* what) {
  if (!holds) throw mismatch(what);
}

/// Checks a batch of texts in host-readable memory.
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
    auto value = first_token(label);
    for (const auto token : all) require(token == value++, "other tokens");
  }
}
/// Checks the output of the transform for a batch.
template <class View>
void compare_sums(const View& view, const expected& must) {
  require(view.size() == must.samples.size(), "another number of samples, transformed");
  for (std::size_t i = 0; i < must.samples.size(); ++i) {
    const std::uint64_t label = must.samples[i].label;
    std::uint64_t sum = 0;
    for (std::size_t n = 0; n < tokens_of(label); ++n) {
      sum += static_cast<std::uint16_t>(first_token(label) + n);
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

/// Threads that receive leases through a queue and release them. The destructor closes the queue
/// and waits until it is empty.
template <class Lease>
struct lane {
  template <class Work>
  lane(std::uint64_t count, const Work& work) {
    for (; count != 0; --count) {
      threads.emplace_back([this, work] {
        while (auto batch = queue.pop()) work(*batch);
      });
    }
  }
  lane(lane&&) = delete;
  ~lane() { queue.close(); }

  hand_over<Lease> queue{2};
  std::vector<std::jthread> threads;
};

/// One run of one configuration. An object can be used only once.
template <class Sampler>
class flow {
  using loader_type = ps::loader<texts, Sampler>;

 public:
  flow(const config& how, const Sampler& sampler, std::uint64_t seed)
      : how_(how), sampler_(sampler), random_(seed) {}

  void run() {
    std::optional<ps::loader_state> state;
    ps::batch_position next{below(3), 0};
    std::optional<soak::shelf> shelf;
    if (how_.shelf) shelf.emplace(how_.samples, *how_.shelf);
    for (int loop = 0; loop < 3; ++loop) {
      auto options = how_.options;
      if (loop > 0) {  // continues with other numbers of workers and another prefetch
        options.workers = below(4);
        options.tuning.max_workers = ps::automatic;
        options.prefetch = below(5);
        if (options.workers == 0) options.faults.timeout = {};
      }
      const std::uint64_t way = below(6);
      auto transfer = how_.transfer;
      if (way == 3 || way == 4) {  // no other thread could release a lease
        options.on_slots_exhausted = transfer.on_slots_exhausted = ps::exhausted_action::fail;
      }
      std::unique_ptr<const soak::shelf::blobs_type> blobs;
      // a thread that reads from the store concurrently and sends false access plans.
      std::optional<std::jthread> visitor;
      if (shelf) {
        blobs = shelf->open(*how_.shelf);
        if (below(4) == 0) visitor.emplace([&, seed = random_()] { visit(*shelf, seed); });
      }
      std::stop_source stop;
      if (how_.is_stopped) options.stop = stop.get_token();
      const ps::cpu_device device;
      const auto stream = device.make_stream();  // must outlive the leases
      const auto second = device.make_stream();
      auto loader = std::make_unique<loader_type>(texts{&how_, blobs.get()}, sampler_, options);
      std::optional<std::jthread> stopper;
      if (how_.is_stopped) {
        stopper.emplace([&stop, turns = below(1000)] {
          for (std::uint64_t turn = 0; turn < turns; ++turn) std::this_thread::yield();
          stop.request_stop();
        });
      }
      std::vector<std::jthread> others;  // threads that hold shared leases and may outlive the feed
      const auto on_host = [](auto& batch, const expected& must) { compare(batch.view(), must); };
      const auto on_streams = [&second](auto& batch, const expected& must) {
        // Usually the check runs on the stream, like a step. Synchronizing rethrows its exception.
        const auto look = [view = batch.view(), own = std::make_shared<const expected>(must)] {
          compare(view, *own);
        };
        batch.stream().launch(look);
        if (batch.number() % 3 == 0) {
          batch.also_used_on(second);
          second.launch(look);
        }
        if (batch.number() % 4 == 0) batch.stream().synchronize();
      };
      const auto summed = [](auto& batch, const expected& must) {
        compare_sums(batch.view(), must);
      };
      using feed_type = ps::transfer<loader_type&>;
      const auto sums = ps::on_stream<sums_record>(add_up{});
      switch (way) {
        case 0:
          go(*loader, state, next, others, on_host);
          break;
        case 1: {
          feed_type feed{*loader, stream, transfer};
          go(feed, state, next, others, on_streams);
          break;
        }
        case 2: {
          ps::transfer feed{*loader, device, sums, transfer};
          go(feed, state, next, others, summed);
          break;
        }
        case 3:
          leave_in_the_middle(std::move(loader), next, on_host);
          break;
        case 4: {
          feed_type feed{*loader, stream, transfer};
          leave_in_the_middle(std::make_unique<feed_type>(std::move(feed)), next, on_streams);
          break;
        }
        default:
          break;
      }
      others.clear();
      visitor.reset();
      require(!visitor_is_wrong_, "other bytes by way of the cache");
      if (loader != nullptr) soak::counted.add("moves of tuners", loader->tuning().count);
      stream.synchronize();
      second.synchronize();
      if (shelf) look_at(shelf->cache());
    }
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }

  /// Runs two epochs, starting at `next` or at the state. May leave the loop early.
  template <class Face, class Look>
  void go(Face& face, std::optional<ps::loader_state>& state, ps::batch_position& next,
          std::vector<std::jthread>& others, const Look& look) {
    const std::uint64_t last = next.epoch + 2;
    const std::uint64_t drawn = sampler_.size(how_.samples);
    const std::uint64_t size = how_.options.batch_size;
    const bool has_rest = drawn % size != 0 && how_.options.last_batch != ps::last_batch::drop;
    const std::uint64_t batches = drawn / size + (has_rest ? 1 : 0);
    const std::uint64_t leave_after = below(3) == 0 ? below(2 * batches + 1) : ~std::uint64_t{0};
    const auto normal = [&] {
      if (next.batch == batches) next = {next.epoch + 1, 0};
    };
    normal();
    std::uint64_t seen = 0;
    const auto range = [&] {
      return state && how_.options.in_order ? face.resume(*state, last)
                                            : face.batches(next, ps::until_epoch{last});
    };
    using lease = std::remove_reference_t<decltype(*range().begin())>;
    std::optional<lane<lease>> passed;  // passes leases to other threads through a queue
    if (below(5) == 0) {
      passed.emplace(1 + below(2), [this, look](lease& batch) {
        look(batch, expect(how_, sampler_, {batch.epoch(), batch.number()}));
      });
    }
    bool is_left = false;
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
        soak::counted.add("batches");
        if (passed && below(3) == 0) {
          soak::counted.add("leases passed on");
          passed->queue.push(std::move(batch));
        } else if (others.size() < 3 && below(6) == 0) {
          // Another thread holds a copy of the lease and releases it at a random time.
          soak::counted.add("leases shared");
          auto shared = ps::share(std::move(batch));
          others.emplace_back([copy = shared, must, look, turns = below(200)]() mutable {
            for (std::uint64_t turn = 0; turn < turns; ++turn) std::this_thread::yield();
            look(copy, must);
          });
          if (below(2) == 0) look(shared, must);
        }
        if (seen++ == leave_after) {
          soak::counted.add("loops left");
          is_left = true;
          break;
        }
      }
      if (!is_left && how_.options.in_order) {
        normal();
        require(next.epoch == last && next.batch == 0, "batches are missing");
      }
    } catch (const bad_sample&) {
      normal();
      require(has_bad(next, last, batches), "an error that no sample has");
      soak::counted.add("loops that an error ended");
      state.reset();
      next = {next.epoch + 1, 0};
      return;
    } catch (const ps::cancelled&) {
      require(how_.is_stopped, "a stop that nobody has requested");
      soak::counted.add("loops stopped");
    }
    normal();
    if (how_.options.in_order) {
      state = face.state();
      ps::batch_position at{state->epoch, state->batch};
      // A state at the end of an epoch differs from a state at the start of the next epoch.
      if (at.batch >= batches) at = {at.epoch + 1, 0};
      require(at == next, "a state of another place");
    } else {
      next = {last, 0};
    }
  }

  /// Leaves a loop before its end. Destroys the loader or feed while samples are read, either
  /// before or after its range. Leases must keep their contents.
  template <class Face, class Look>
  void leave_in_the_middle(std::unique_ptr<Face> face, const ps::batch_position& next,
                           const Look& look) {
    auto range =
        std::make_optional(face->batches({next.epoch, 0}, ps::until_epoch{next.epoch + 2}));
    using lease = std::remove_reference_t<decltype(*range->begin())>;
    std::vector<std::pair<lease, expected>> kept;
    try {
      auto it = range->begin();
      for (auto left = below(6); left != 0 && it != range->end(); --left) {
        auto must = expect(how_, sampler_, {(*it).epoch(), (*it).number()});
        look(*it, must);
        if (kept.size() < 2 && below(2) == 0) kept.emplace_back(std::move(*it), std::move(must));
        ++it;
      }
    } catch (const bad_sample&) {
      require(how_.bad_in != 0, "an error that no sample has");
    } catch (const ps::cancelled&) {
      require(how_.is_stopped, "a stop that nobody has requested");
    } catch (const ps::leases_exhausted&) {
      require(!kept.empty(), "no slot, and no lease");
    }
    soak::counted.add("destroyed in the middle");
    const bool range_first = below(2) == 0;
    if (range_first) range.reset();
    face.reset();
    range.reset();
    for (auto& [batch, must] : kept) look(batch, must);
  }

  /// Reads random blobs through the cache and sends false access plans to the cache.
  void visit(const soak::shelf& shelf, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    const auto& blobs = shelf.below().blobs();
    const auto any = [&]() -> const ps::stored_blob& { return blobs[random() % blobs.size()]; };
    for (int turn = 0; turn < 20; ++turn) {
      if (turn % 8 == 7) {
        std::vector<ps::upcoming_range> coming;
        for (auto left = random() % 20; left != 0; --left) {
          const auto& one = any();
          coming.push_back({one.object, one.offset, one.length});
        }
        shelf.cache().will_use(coming);
      }
      std::array<std::array<std::uint16_t, 10>, 4> tokens{};
      std::vector<ps::byte_range> ranges;
      std::vector<std::uint64_t> indices;
      for (auto& to : tokens) {
        const auto& one = any();
        const auto bytes = std::as_writable_bytes(std::span{to});
        ranges.push_back({one.object, one.offset, bytes.first(one.length)});
        indices.push_back(static_cast<std::uint64_t>(one.label));
      }
      try {
        shelf.cache().read_many(ranges);
      } catch (const ps::file_unreadable&) {
        continue;
      }
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        auto value = first_token(indices[i]);
        for (std::size_t n = 0; n < tokens_of(indices[i]); ++n) {
          if (tokens.at(i).at(n) != value++) visitor_is_wrong_ = true;
        }
      }
    }
  }
  void look_at(const soak::shelf::cache_type& cache) const {
    const auto stats = cache.stats();
    soak::counted.add("blocks from memory", stats.from_memory);
    soak::counted.add("blocks from others", stats.from_others);
    soak::counted.add("blocks from the disk", stats.from_disk);
    soak::counted.add("blocks from the store", stats.from_store);
    soak::counted.add("blocks' uses known", stats.planned_uses);
    require(stats.memory_bytes <= how_.shelf->cache.memory_bytes, "more memory than it may take");
    require(stats.damaged == 0 && stats.disk_failures == 0, "files that nobody has touched");
  }

  /// Returns true if the next batch has a bad sample. If delivery is unordered, returns true if any
  /// possible next batch has a bad sample.
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
  std::atomic<bool> visitor_is_wrong_{false};
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
  how.max_reported = one_of(std::uint64_t{0}, std::uint64_t{100}, ~std::uint64_t{0});
  how.hints_throw = below(4) == 0;
  how.flaky_in = one_of(std::uint64_t{0}, std::uint64_t{3});
  how.bad_in = one_of(std::uint64_t{0}, std::uint64_t{0}, std::uint64_t{15});
  how.options = {
      .batch_size = 1 + below(12),
      .workers = below(5),
      .prefetch = below(6),
      .seed = below(1000),
      .last_batch = one_of(ps::last_batch::keep, ps::last_batch::drop, ps::last_batch::pad),
      .in_order = below(4) != 0,
      .on_slots_exhausted = ps::exhausted_action::wait,
      .lookahead_bytes = one_of(std::uint64_t{0}, std::uint64_t{200}, ~std::uint64_t{0}),
      .faults = {.on_error = {.retries = below(3),
                              .initial_backoff = std::chrono::milliseconds{0},
                              .action = one_of(ps::error_action::rethrow, ps::error_action::skip),
                              .max_failures = ~std::uint64_t{0},
                              .max_failure_rate = 1}},
      .tuning = {.chunk = one_of(std::size_t{0}, std::size_t{1}, std::size_t{3})}};
  if (below(4) == 0) {
    how.options.workers = ps::automatic;
    how.options.tuning.max_workers = 1 + below(4);
  }
  if (below(5) == 0) how.options.prefetch = ps::automatic;
  if (how.options.faults.on_error.retries == 0) how.flaky_in = 0;
  if (below(4) == 0) {  // enough rounds for an automatic value to change
    how.samples = 150 + below(100);
    how.options.batch_size = 1 + below(2);
  }
  how.is_stopped = below(6) == 0;
  if (how.options.workers != 0 && below(5) == 0) how.options.faults.timeout = std::chrono::hours{1};
  if (below(2) == 0) {
    how.shelf = {.fails_in = one_of(0U, 0U, 2U, 5U),
                 .has_folder = below(6) == 0,
                 .cache = {.block_bytes = one_of(8U, 30U, 64U, 1000U),
                           .memory_bytes = one_of(0U, 100U, 400U, 100'000U),
                           .disk_bytes = one_of(600U, 5000U, 100'000U)},
                 .blobs = {.read_ahead = one_of(0U, 50U, 400U, 100'000U), .threads = 1 + below(4)}};
  }
  how.transfer = {.depth = 1 + below(5), .on_slots_exhausted = ps::exhausted_action::wait};
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
         ", workers " + std::to_string(o.workers.value()) + ", prefetch " +
         std::to_string(o.prefetch.value()) + ", chunk " + std::to_string(o.tuning.chunk) +
         ", hints " + std::to_string(o.lookahead_bytes) + ", depth " +
         std::to_string(how.transfer.depth.value()) + ", last " +
         std::to_string(static_cast<int>(o.last_batch)) + ", then " +
         std::to_string(static_cast<int>(o.faults.on_error.action.value())) + ", bad_in " +
         std::to_string(how.bad_in) + ", flaky_in " + std::to_string(how.flaky_in) + ", ranks " +
         std::to_string(how.ranks) + (o.in_order ? "" : ", out of order") +
         (how.is_stopped ? ", stopped" : "") +
         (how.shelf ? ", blocks of " + std::to_string(how.shelf->cache.block_bytes) + " in " +
                          std::to_string(how.shelf->cache.memory_bytes) + " bytes" +
                          (how.shelf->has_folder ? " and a folder" : "") + ", ahead " +
                          std::to_string(how.shelf->blobs.read_ahead) + ", fails_in " +
                          std::to_string(how.shelf->fails_in)
                    : std::string{});
}

/// A dataset of samples with a fixed length, for which bad samples can be replaced.
struct numbers {
  using record_type =
      ps::record<ps::field<"label", std::uint64_t>, ps::field<"bits", std::uint32_t>>;
  const config* how;
  [[nodiscard]] std::uint64_t size() const { return how->samples; }
  void read(std::uint64_t index, ps::sample<record_type> out, ps::sample_generator& rng) const {
    ps::get<"label">(out) = ~index;
    if (is_one(*how, index, 100, how->bad_in)) throw bad_sample{};
    ps::get<"label">(out) = index;
    ps::get<"bits">(out) = rng();
  }
};
void run_substituted(config& how, std::mt19937_64& random) {
  how.options.faults.on_error.action = ps::error_action::replace;
  how.bad_in = 2 + random() % 12;
  how.options.in_order = true;
  how.samples = (std::max<std::uint64_t>)(how.samples, how.options.batch_size);
  const ps::shuffled order{.seed = how.order_seed};
  ps::loader loader{numbers{&how}, order, how.options};
  ps::batch_position next{0, 0};
  try {
    for (auto& batch : loader.epochs(0, 2)) {
      next = {batch.epoch(), batch.number()};
      const expected must = expect(how, order, next);
      require(!must.is_bad, "a batch that can't be read");
      require(batch.size() == must.samples.size(), "another number of samples");
      for (std::size_t i = 0; i < must.samples.size(); ++i) {
        require(ps::get<"label">(batch)(i) == must.samples[i].label, "another substitute");
        require(ps::get<"bits">(batch)(i) == must.samples[i].bits, "other random bits");
      }
      ++next.batch;
    }
  } catch (const bad_sample&) {
    if (next.batch == loader.batches_per_epoch()) next = {next.epoch + 1, 0};
    require(expect(how, order, next).is_bad, "an error that no sample has");
  }
}

void run_clients(std::uint64_t seed, std::mt19937_64& random) {
  const soak::clients_config how = soak::draw_clients(random);
  try {
    soak::clients{how, seed}.run();
  } catch (const std::exception& error) {
    throw mismatch("seed " + std::to_string(seed) + ": " + error.what() + "\n  " +
                   soak::describe(how));
  }
}

void run_one(std::uint64_t seed) {
  std::mt19937_64 random{seed};
  if (seed % 5 == 0) return run_clients(seed, random);
  config how = draw(random);
  try {
    if (seed % 10 == 1) return run_substituted(how, random);
    if (how.ranks == 1) {
      if (how.options.last_batch == ps::last_batch::drop) {
        how.samples = (std::max<std::uint64_t>)(how.samples, how.options.batch_size);
      }
      const ps::shuffled order{.seed = how.order_seed};
      flow<ps::shuffled>{how, order, random()}.run();
      return;
    }
    how.samples = (std::max<std::uint64_t>)(how.samples, 2 * how.options.batch_size);
    std::vector<double> weights(how.samples);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<double>(1 + i % 4);
    const bool may_keep = how.options.last_batch != ps::last_batch::drop && seed % 2 == 0;
    const ps::sharded order{
        ps::weighted{weights, {.seed = how.order_seed}},
        {.rank = how.rank,
         .world = how.ranks,
         .global_batch = 2 * how.options.batch_size,
         .remainder = may_keep ? ps::remainder_policy::keep : ps::remainder_policy::wrap}};
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
  soak::counted.print();
  return 0;
}
