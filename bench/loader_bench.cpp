// SPDX-License-Identifier: BSL-1.0
// Compares the loader with its floors in the same run. The floors gather the same bytes (and
// convert them to float) in a plain loop with the same sampler and the same prefetches, over as
// many slabs as the loader has. floor_inline does this on the consumer's thread; floor_hand_off
// uses a separate thread with one hand-off per batch. The consumer reads every value. An iteration
// is a batch.
//
//   build/bench/bench/penstock_loader_bench
//
// float, byte: 60,000 samples of 28 x 28 bytes and a label, as in MNIST, shuffled, in batches of
// 64, converted to floats or copied unchanged.

#include <benchmark/benchmark.h>

#include <boost/lockfree/spsc_queue.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>

#include "compare/peer.hpp"
#include "support/program.hpp"

namespace {

namespace ps = penstock;
using compare::batch_size;
using compare::normalise;
using compare::pixels;

constexpr std::uint64_t forever = std::uint64_t{1} << 32;  // number of epochs

// ---- the data

constexpr std::size_t digit_count = 60'000;

std::span<const std::uint8_t> noise(std::size_t bytes) {
  static const std::vector<std::uint8_t> made = [] {
    std::vector<std::uint8_t> values(digit_count * pixels);
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

// A workload for the loader and the plain loop. Contains the dataset for the loader. For the plain
// loop, contains the locations of the samples (`rows`, `labels`) and the function `put` that writes
// a sample to a slab.
struct to_floats {
  using value_type = float;
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
  void put(std::size_t index, std::byte* slab, std::size_t at) const {
    normalise(rows + index * pixels, reinterpret_cast<float*>(slab) + at * pixels);
    auto* out = reinterpret_cast<std::int32_t*>(slab + batch_size * pixels * sizeof(float));
    out[at] = labels[index];
  }
};

struct to_bytes {
  using value_type = std::uint8_t;
  static constexpr std::size_t bytes = pixels + 1;

  static auto dataset() { return ps::memory_dataset<bytes_record>{images(), all_labels()}; }
  const std::uint8_t* rows = images().data();
  const std::uint8_t* labels = all_labels().data();
  void put(std::size_t index, std::byte* slab, std::size_t at) const {
    std::memcpy(slab + at * pixels, rows + index * pixels, pixels);
    slab[batch_size * pixels + at] = static_cast<std::byte>(labels[index]);
  }
};

template <class Work>
auto make_loader(std::size_t workers) {
  return ps::loader{
      Work::dataset(), ps::shuffled{.seed = 1}, {.batch_size = batch_size, .workers = workers}};
}

// ---- the consumer, which reads every value of the first field

double read_all(std::span<const float> values) { return compare::sum_of(values); }

std::uint64_t read_all(std::span<const std::uint8_t> values) {
  std::uint64_t sum = 0;
  for (const std::uint8_t value : values) sum += value;
  return sum;
}

// The same code for the loader and the floors. Not inlined, because GCC 12 would vectorize it in
// some loops and not in others.
template <class Work>
[[gnu::noinline]] void consume(const std::byte* slab, std::size_t size) {
  using value_type = typename Work::value_type;
  benchmark::DoNotOptimize(
      read_all(std::span{reinterpret_cast<const value_type*>(slab), size * pixels}));
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

// The plain loop over the batches of all epochs.
template <class Work>
class plain_loop {
 public:
  std::size_t read(std::byte* slab) {
    if (first_ == digit_count) {
      first_ = 0;
      order_ = ps::shuffled{.seed = 1}.order(digit_count, ++epoch_);
    }
    const std::size_t count = std::min(batch_size, digit_count - first_);
    order_.fill(first_, std::span{indices_}.first(count));
    first_ += count;
    const Work work = work_;  // a local copy, because stores to the slab could alias the members
    compare::gather(std::span<const std::uint64_t>{indices_}.first(count), work.rows,
                    [&](std::size_t index, std::size_t at) { work.put(index, slab, at); });
    return count;
  }

 private:
  Work work_;
  std::vector<std::uint64_t> indices_ = std::vector<std::uint64_t>(batch_size);
  std::uint64_t epoch_ = 0;
  std::size_t first_ = 0;
  ps::detail::permutation order_ = ps::shuffled{.seed = 1}.order(digit_count, 0);
};

template <class Work>
void floor_inline(benchmark::State& state) {
  const auto slab = make_slab(batch_size * Work::bytes);
  plain_loop<Work> loop;
  std::size_t samples = 0;
  for (auto _ : state) {
    const std::size_t size = loop.read(slab.get());
    benchmark::ClobberMemory();
    consume<Work>(slab.get(), size);
    samples += size;
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(samples));
}

// The cheapest known hand-off: a single-producer queue of slabs in each direction that waits in the
// same way as the library.
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
void floor_hand_off(benchmark::State& state) {
  struct full_slab {
    std::byte* slab;
    std::size_t size;
  };
  channel<full_slab> full;
  channel<std::byte*> empty;
  std::vector<slab_ptr> slabs(make_loader<Work>(1).footprint().slot_count);
  for (auto& slab : slabs) {
    slab = make_slab(batch_size * Work::bytes);
    empty.push(slab.get());
  }
  std::thread producer{[&, batches = state.max_iterations] {
    plain_loop<Work> loop;
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

template <class Work>
void load(benchmark::State& state) {
  auto loader = make_loader<Work>(static_cast<std::size_t>(state.range(0)));
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

auto* add(const std::string& name, void (*run)(benchmark::State&)) {
  return benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

template <class Work>
void add_digits(const std::string& what, std::vector<bench::goal>& goals) {
  add("floor_inline/" + what, floor_inline<Work>);
  add("floor_hand_off/" + what, floor_hand_off<Work>);
  add("loader/" + what, load<Work>)->ArgName("workers")->Arg(0)->Arg(1)->Arg(2);
  for (const std::int64_t workers : {0, 1}) {
    goals.push_back({.name = bench::named("loader/" + what, {{"workers", workers}}),
                     .floor = (workers == 0 ? "floor_inline/" : "floor_hand_off/") + what,
                     .what = bench::goal::kind::speed_at_least,
                     .bound = 0.90});
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<bench::goal> goals;
  add_digits<to_floats>("float", goals);
  add_digits<to_bytes>("byte", goals);
  return bench::run(argc, argv, "loader_bench", goals);
}
