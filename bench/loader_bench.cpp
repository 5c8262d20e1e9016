// SPDX-License-Identifier: BSL-1.0
// Compares the loader with its floors in the same run. The floors gather the same bytes (and
// convert them to float) in a plain loop with the same sampler and the same prefetches, over as
// many slabs as the loader has. floor_inline does this on the consumer's thread; floor_hand_off
// uses a separate thread with one hand-off per batch. The consumer reads every value. An iteration
// is a batch.
//
//   build/bench/bench/penstock_loader_bench
//   build/bench/bench/penstock_loader_bench --benchmark_filter=byte/
//
// float, byte: 60,000 samples of 28 x 28 bytes and a label, as in MNIST, shuffled, in batches of
// 64, converted to floats or copied unchanged. any_loader: the same with types that are chosen at
// run time. Other rows have samples of a single field of 4 to 65,536 bytes, 60,000 of them or 256
// MiB, in batches of 16 to 256. sampler is only the computation of the order, for batches of 64.
// cancel is the time from a stop request, in the middle of an epoch of the first kind, until the
// consumer has received its exception and every worker has ended.

#include <benchmark/benchmark.h>

#include <boost/lockfree/spsc_queue.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <penstock/load/any_loader.hpp>
#include <penstock/penstock.hpp>
#include <penstock_ext/adaptors/any_dataset.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::uint64_t forever = std::uint64_t{1} << 32;  // number of epochs

// ---- the data

constexpr std::size_t pixels = 28 * 28;
constexpr std::size_t digit_count = 60'000;
constexpr std::size_t max_bytes = std::size_t{256} << 20;

std::span<const std::uint8_t> noise(std::size_t bytes) {
  static const std::vector<std::uint8_t> made = [] {
    std::vector<std::uint8_t> values(max_bytes);
    std::uint32_t state = 1;
    for (auto& value : values) {
      value = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
    }
    return values;
  }();
  return std::span{made}.first(bytes);
}

std::span<const std::uint8_t> images() { return noise(digit_count * pixels); }
std::span<const std::uint8_t> all_labels() { return noise(digit_count); }

using bytes_record =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
using floats_record =
    ps::record<ps::field<"image", float, 28, 28>, ps::field<"label", std::int32_t>>;

void normalise(const std::uint8_t* in, float* out) noexcept {
  for (std::size_t i = 0; i < pixels; ++i) {
    out[i] = (static_cast<float>(in[i]) * (1.0F / 255.0F) - 0.1307F) * (1.0F / 0.3081F);
  }
}

// A workload for both sides: the dataset for the loader, and for the plain loop the locations of
// the samples (`rows`, `labels`) and the function `put` that writes a sample to a slab.
struct to_floats {
  using value_type = float;
  static constexpr std::size_t samples = digit_count;
  static constexpr std::size_t row_bytes = pixels;
  static constexpr std::size_t values = pixels;
  static constexpr std::size_t bytes = pixels * sizeof(float) + sizeof(std::int32_t);

  static auto dataset() {
    const auto convert = [](ps::const_sample<bytes_record> in, ps::sample<floats_record> out) {
      normalise(ps::get<"image">(in).data(), ps::get<"image">(out).data());
      ps::get<"label">(out) = ps::get<"label">(in);
    };
    return ps::memory_dataset<bytes_record>{images(), all_labels()} |
           ps::map<floats_record>(convert);
  }
  const std::uint8_t* rows = images().data();
  const std::uint8_t* labels = all_labels().data();
  void put(std::size_t index, std::byte* slab, std::size_t batch, std::size_t at) const {
    normalise(rows + index * pixels, reinterpret_cast<float*>(slab) + at * pixels);
    auto* out = reinterpret_cast<std::int32_t*>(slab + batch * pixels * sizeof(float));
    out[at] = labels[index];
  }
};

struct to_bytes {
  using value_type = std::uint8_t;
  static constexpr std::size_t samples = digit_count;
  static constexpr std::size_t row_bytes = pixels;
  static constexpr std::size_t values = pixels;
  static constexpr std::size_t bytes = pixels + 1;

  static auto dataset() { return ps::memory_dataset<bytes_record>{images(), all_labels()}; }
  const std::uint8_t* rows = images().data();
  const std::uint8_t* labels = all_labels().data();
  void put(std::size_t index, std::byte* slab, std::size_t batch, std::size_t at) const {
    std::memcpy(slab + at * pixels, rows + index * pixels, pixels);
    slab[batch * pixels + at] = static_cast<std::byte>(labels[index]);
  }
};

template <std::size_t Bytes>
struct rows_of {
  using value_type = std::uint8_t;
  static constexpr std::size_t samples = std::min(digit_count, max_bytes / Bytes);
  static constexpr std::size_t row_bytes = Bytes;
  static constexpr std::size_t values = Bytes;
  static constexpr std::size_t bytes = Bytes;

  static auto dataset() {
    using row_record = ps::record<ps::field<"row", std::uint8_t, Bytes>>;
    return ps::memory_dataset<row_record>{noise(samples * Bytes)};
  }
  const std::uint8_t* rows = noise(samples * Bytes).data();
  void put(std::size_t index, std::byte* slab, std::size_t, std::size_t at) const {
    std::memcpy(slab + at * Bytes, rows + index * Bytes, Bytes);
  }
};

template <class Work>
auto make_loader(std::size_t workers, std::size_t batch, const std::stop_token& stop = {}) {
  return ps::loader{Work::dataset(),
                    ps::shuffled{.seed = 1},
                    {.batch_size = batch, .workers = workers, .stop = stop}};
}

// ---- the consumer, which reads every value of the first field

std::uint64_t read_all(std::span<const float> values) {
  float sums[16] = {};
  for (std::size_t i = 0; i + 16 <= values.size(); i += 16) {
    for (std::size_t j = 0; j < 16; ++j) sums[j] += values[i + j];
  }
  return std::accumulate(std::begin(sums), std::end(sums), 0.0F) != 0.0F ? 1 : 0;
}

std::uint64_t read_all(std::span<const std::uint8_t> values) {
  std::uint64_t sum = 0;
  for (const std::uint8_t value : values) sum += value;
  return sum;
}

// The same code for all sides, and not inlined, because GCC 12 would vectorize it in some loops and
// not in others.
template <class Work>
[[gnu::noinline]] void consume(const std::byte* slab, std::size_t size) {
  using value_type = typename Work::value_type;
  benchmark::DoNotOptimize(
      read_all(std::span{reinterpret_cast<const value_type*>(slab), size * Work::values}));
}

// ---- the floors

struct free_slab {
  void operator()(std::byte* slab) const { ::operator delete(slab, std::align_val_t{256}); }
};
using slab_ptr = std::unique_ptr<std::byte, free_slab>;

slab_ptr make_slab(std::size_t bytes) {
  slab_ptr made{static_cast<std::byte*>(::operator new(bytes, std::align_val_t{256}))};
  std::memset(made.get(), 0, bytes);  // touches the pages before the clock starts
  return made;
}

// The plain loop over the batches of all epochs. Rows are prefetched four ahead, up to a kilobyte,
// as in the library's dataset.
template <class Work>
class plain_loop {
 public:
  explicit plain_loop(std::size_t batch) : batch_(batch), indices_(batch) {}

  std::size_t read(std::byte* slab) {
    if (first_ == Work::samples) {
      first_ = 0;
      order_ = ps::shuffled{.seed = 1}.order(Work::samples, ++epoch_);
    }
    const std::size_t count = std::min(batch_, Work::samples - first_);
    order_.fill(first_, std::span{indices_}.first(count));
    first_ += count;
    const Work work = work_;  // a local copy, because stores to the slab could alias the members
    const std::size_t batch = batch_;
    const std::span<const std::uint64_t> indices{indices_};
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) prefetch(work, indices[i]);
    for (std::size_t i = 0; i < count; ++i) {
      if (i + ahead < count) prefetch(work, indices[i + ahead]);
      work.put(indices[i], slab, batch, i);
    }
    return count;
  }

 private:
  static constexpr std::size_t ahead = 4;

  static void prefetch(const Work& work, std::size_t index) {
    const std::uint8_t* row = work.rows + index * Work::row_bytes;
    constexpr std::size_t bytes = std::min<std::size_t>(Work::row_bytes, 1024);
    for (std::size_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
  }

  Work work_;
  std::size_t batch_;
  std::vector<std::uint64_t> indices_;
  std::uint64_t epoch_ = 0;
  std::size_t first_ = 0;
  ps::detail::permutation order_ = ps::shuffled{.seed = 1}.order(Work::samples, 0);
};

template <class Work>
void floor_inline(benchmark::State& state, std::size_t batch) {
  const auto slab = make_slab(batch * Work::bytes);
  plain_loop<Work> loop{batch};
  std::size_t samples = 0;
  for (auto _ : state) {
    const std::size_t size = loop.read(slab.get());
    benchmark::ClobberMemory();
    consume<Work>(slab.get(), size);
    samples += size;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(samples));
}

// The cheapest known hand-off: a single-producer queue of slabs in each direction that waits as the
// library does.
template <class T>
class channel {
 public:
  void push(T value) {
    queue_.push(value);
    pushed_.advance();
  }
  T pop() {
    T value{};
    for (std::uint32_t seen = pushed_.load(); !queue_.pop(value); seen = pushed_.load()) {
      pushed_.wait([seen](std::uint32_t now) { return now != seen; });
    }
    return value;
  }

 private:
  boost::lockfree::spsc_queue<T, boost::lockfree::capacity<16>> queue_;
  ps::detail::waitable_counter pushed_;
};

template <class Work>
void floor_hand_off(benchmark::State& state, std::size_t batch) {
  struct full_slab {
    std::byte* slab;
    std::size_t size;
  };
  channel<full_slab> full;
  channel<std::byte*> empty;
  std::vector<slab_ptr> slabs(make_loader<Work>(1, batch).footprint().slot_count);
  for (auto& slab : slabs) {
    slab = make_slab(batch * Work::bytes);
    empty.push(slab.get());
  }
  std::thread producer{[&, batches = state.max_iterations] {
    plain_loop<Work> loop{batch};
    for (auto i = batches; i > 0; --i) {
      std::byte* slab = empty.pop();
      full.push({slab, loop.read(slab)});
    }
  }};
  std::size_t samples = 0;
  for (auto _ : state) {
    const full_slab got = full.pop();
    consume<Work>(got.slab, got.size);
    samples += got.size;
    empty.push(got.slab);
  }
  producer.join();
  state.SetItemsProcessed(static_cast<std::int64_t>(samples));
}

// ---- the loader

template <class Work, class Loader>
void load_from(benchmark::State& state, Loader loader) {
  auto batches = loader.epochs(0, forever);
  auto it = batches.begin();
  std::size_t samples = 0;
  for (auto _ : state) {
    consume<Work>(std::as_const(*it).data(), it->size());
    samples += it->size();
    ++it;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(samples));
}

template <class Work>
void load(benchmark::State& state, std::size_t workers, std::size_t batch) {
  load_from<Work>(state, make_loader<Work>(workers, batch));
}

// The same loader behind virtual calls: one call per chunk in the dataset, and several per batch in
// the loader.
template <class Work>
void load_any(benchmark::State& state, std::size_t workers, std::size_t batch) {
  const ps::any_dataset data = Work::dataset();
  load_from<Work>(state,
                  ps::any_loader{ps::loader{
                      data, ps::shuffled{.seed = 1}, {.batch_size = batch, .workers = workers}}});
}

void sampler(benchmark::State& state) {
  std::array<std::uint64_t, 64> indices;
  const auto order = ps::shuffled{.seed = 1}.order(digit_count, 0);
  std::size_t first = 0;
  for (auto _ : state) {
    order.fill(first, indices);
    benchmark::DoNotOptimize(indices.data());
    benchmark::ClobberMemory();
    first += indices.size();
    if (first + indices.size() > digit_count) first = 0;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(indices.size()));
}

void cancel(benchmark::State& state) {
  const auto workers = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    std::stop_source source;
    auto loader = make_loader<to_floats>(workers, 64, source.get_token());
    auto batches = loader.epochs(0, forever);
    auto it = batches.begin();
    const auto requested = std::chrono::steady_clock::now();
    source.request_stop();
    try {
      ++it;
      state.SkipWithError("not cancelled");
    } catch (const ps::cancelled&) {
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - requested;
    state.SetIterationTime(took.count());
  }
}

template <class Run>
auto* add(const std::string& name, Run run) {
  return benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

template <class Work>
void add_digits(const std::string& what) {
  using state = benchmark::State;
  add("floor_inline/" + what, [](state& s) { floor_inline<Work>(s, 64); });
  add("floor_hand_off/" + what, [](state& s) { floor_hand_off<Work>(s, 64); });
  add("loader/" + what, [](state& s) { load<Work>(s, static_cast<std::size_t>(s.range(0)), 64); })
      ->ArgName("workers")
      ->Arg(0)
      ->Arg(1)
      ->Arg(2)
      ->Arg(4);
  add("any_loader/" + what,
      [](state& s) { load_any<Work>(s, static_cast<std::size_t>(s.range(0)), 64); })
      ->ArgName("workers")
      ->Arg(0)
      ->Arg(1);
}

template <std::size_t Bytes>
void add_rows() {
  using state = benchmark::State;
  using work = rows_of<Bytes>;
  constexpr double seconds = 0.03;
  const auto range = [](const state& s, std::size_t i) {
    return static_cast<std::size_t>(s.range(i));
  };
  for (const std::int64_t batch : {16, 64, 256}) {
    add("floor_inline", [=](state& s) { floor_inline<work>(s, range(s, 0)); })
        ->ArgNames({"batch", "bytes"})
        ->Args({batch, Bytes})
        ->MinTime(seconds);
    add("floor_hand_off", [=](state& s) { floor_hand_off<work>(s, range(s, 0)); })
        ->ArgNames({"batch", "bytes"})
        ->Args({batch, Bytes})
        ->MinTime(seconds);
    for (const std::int64_t workers : {0, 1}) {
      add("loader", [=](state& s) { load<work>(s, range(s, 0), range(s, 1)); })
          ->ArgNames({"workers", "batch", "bytes"})
          ->Args({workers, batch, Bytes})
          ->MinTime(seconds);
    }
  }
}

// Requires "loader/float/workers:1" to reach 0.90 of the speed of "floor_hand_off/float".
bench::goal digits_goal(const std::string& what, std::int64_t workers) {
  return {.name = bench::named("loader/" + what, {{"workers", workers}}),
          .floor = (workers == 0 ? "floor_inline/" : "floor_hand_off/") + what,
          .what = bench::goal::kind::speed_at_least,
          .bound = 0.90};
}

bench::goal rows_goal(std::int64_t workers, std::int64_t batch, std::int64_t bytes) {
  return {
      .name = bench::named("loader", {{"workers", workers}, {"batch", batch}, {"bytes", bytes}}),
      .floor = bench::named(workers == 0 ? "floor_inline" : "floor_hand_off",
                            {{"batch", batch}, {"bytes", bytes}})};
}

}  // namespace

int main(int argc, char** argv) {
  add_digits<to_floats>("float");
  add_digits<to_bytes>("byte");
  add("sampler", sampler)->Unit(benchmark::kNanosecond);
  benchmark::RegisterBenchmark("cancel", cancel)
      ->ArgName("workers")
      ->Arg(1)
      ->Arg(8)
      ->Arg(64)
      ->Iterations(50)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  add_rows<4>();
  add_rows<785>();
  add_rows<4096>();
  add_rows<65536>();
  return bench::run(argc, argv, "loader_bench",
                    {digits_goal("float", 0), digits_goal("float", 1), digits_goal("byte", 0),
                     digits_goal("byte", 1),  rows_goal(0, 16, 4),     rows_goal(1, 16, 4),
                     rows_goal(0, 64, 4),     rows_goal(1, 64, 4),     rows_goal(0, 256, 4),
                     rows_goal(1, 256, 4),    rows_goal(0, 64, 785),   rows_goal(1, 64, 785),
                     rows_goal(0, 64, 4096),  rows_goal(1, 64, 4096),  rows_goal(0, 64, 65536),
                     rows_goal(1, 64, 65536), rows_goal(0, 16, 785),   rows_goal(1, 16, 785),
                     rows_goal(0, 256, 785),  rows_goal(1, 256, 785),  rows_goal(0, 16, 4096),
                     rows_goal(1, 16, 4096),  rows_goal(0, 256, 4096), rows_goal(1, 256, 4096),
                     rows_goal(0, 16, 65536), rows_goal(1, 16, 65536), rows_goal(0, 256, 65536),
                     rows_goal(1, 256, 65536)});
}
