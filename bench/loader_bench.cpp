// The loader on data of MNIST's shape: 60,000 samples of 28 x 28 bytes and a label, shuffled, batches
// of 64. Beside it, in the same run, its floors: the same bytes gathered (and converted to float) by a
// plain loop with the same sampler, without a hand-off and with one hand-off between two threads.
//
//   build/release/bench/penstock_loader_bench
//
// Runs every benchmark several times in random order and prints the ratios of the medians.

#include <benchmark/benchmark.h>

#include <boost/lockfree/spsc_queue.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <penstock/penstock.hpp>

#include "support/program.hpp"

namespace {

namespace ps = penstock;

constexpr std::size_t samples = 60'000;
constexpr std::size_t pixels = 28 * 28;
constexpr std::size_t batch = 64;

using bytes_record =
    ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
using floats_record =
    ps::record<ps::field<"image", float, 28, 28>, ps::field<"label", std::int32_t>>;

struct digits {
  std::vector<std::uint8_t> images = std::vector<std::uint8_t>(samples * pixels);
  std::vector<std::uint8_t> labels = std::vector<std::uint8_t>(samples);

  digits() {
    std::uint32_t state = 1;
    for (auto& value : images)
      value = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
    for (auto& value : labels)
      value = static_cast<std::uint8_t>((state = state * 1664525U + 1013904223U) % 10);
  }
};

const digits& data() {
  static const digits made;
  return made;
}

void normalise(const std::uint8_t* in, float* out) noexcept {
  for (std::size_t i = 0; i < pixels; ++i) {
    out[i] = (static_cast<float>(in[i]) * (1.0F / 255.0F) - 0.1307F) * (1.0F / 0.3081F);
  }
}

// What both sides do to a sample.
struct to_floats {
  using record = floats_record;
  void operator()(ps::const_sample<bytes_record> in, ps::sample<floats_record> out) const noexcept {
    normalise(ps::get<"image">(in).data(), ps::get<"image">(out).data());
    ps::get<"label">(out) = ps::get<"label">(in);
  }
  static void plain(std::size_t from, std::byte* slab, std::size_t at) noexcept {
    auto* images = reinterpret_cast<float*>(slab);
    auto* labels = reinterpret_cast<std::int32_t*>(slab + batch * pixels * sizeof(float));
    normalise(data().images.data() + from * pixels, images + at * pixels);
    labels[at] = data().labels[from];
  }
};

struct to_bytes {
  using record = bytes_record;
  static void plain(std::size_t from, std::byte* slab, std::size_t at) noexcept {
    std::memcpy(slab + at * pixels, data().images.data() + from * pixels, pixels);
    slab[batch * pixels + at] = static_cast<std::byte>(data().labels[from]);
  }
};

template <class Work>
auto make_loader(std::size_t workers) {
  ps::memory_dataset<bytes_record> source{data().images, data().labels};
  const ps::loader_options options{.batch_size = batch, .workers = workers};
  if constexpr (std::is_same_v<Work, to_floats>) {
    return ps::loader{std::move(source) | ps::map<floats_record>(to_floats{}),
                      ps::shuffled{.seed = 1}, options};
  } else {
    return ps::loader{std::move(source), ps::shuffled{.seed = 1}, options};
  }
}

// The consumer reads every value.
template <class T>
std::uint64_t read_all(std::span<const T> values) {
  if constexpr (std::is_same_v<T, float>) {
    float sums[16] = {};
    for (std::size_t i = 0; i + 16 <= values.size(); i += 16) {
      for (std::size_t j = 0; j < 16; ++j) sums[j] += values[i + j];
    }
    return static_cast<std::uint64_t>(std::accumulate(std::begin(sums), std::end(sums), 0.0F) !=
                                      0.0F);
  } else {
    std::uint64_t sum = 0;
    for (const T value : values) sum += value;
    return sum;
  }
}

template <class Work>
std::uint64_t read_slab(const std::byte* slab, std::size_t size) {
  using element = typename Work::record::template field_at<0>::value_type;
  return read_all(std::span<const element>{reinterpret_cast<const element*>(slab), size * pixels});
}

// One epoch by the plain loop: rows prefetched four ahead, as the loader's dataset does.
template <class Work, class Emit>
void plain_epoch(std::uint64_t epoch, Emit emit) {
  const auto order = ps::shuffled{.seed = 1}.order(samples, epoch);
  std::array<std::uint64_t, batch> index;
  for (std::size_t first = 0; first < samples; first += batch) {
    const std::size_t count = std::min(batch, samples - first);
    order.fill(first, std::span{index}.first(count));
    std::byte* slab = emit.take();
    const auto prefetch = [&](std::size_t i) {
      const std::uint8_t* row = data().images.data() + index[i] * pixels;
      for (std::size_t b = 0; b < pixels; b += 64) __builtin_prefetch(row + b);
    };
    for (std::size_t i = 0; i < std::min<std::size_t>(4, count); ++i) prefetch(i);
    for (std::size_t i = 0; i < count; ++i) {
      if (i + 4 < count) prefetch(i + 4);
      Work::plain(index[i], slab, i);
    }
    emit.give(slab, count);
  }
}

constexpr std::size_t slab_bytes = batch * (pixels + 1) * sizeof(float);

struct aligned_slab {
  alignas(256) std::byte bytes[slab_bytes];
};

template <class Work>
void floor_inline(benchmark::State& state) {
  auto slab = std::make_unique<aligned_slab>();
  struct same_slab {
    std::byte* slab;
    std::byte* take() const { return slab; }
    void give(std::byte* done, std::size_t size) const {
      benchmark::DoNotOptimize(read_slab<Work>(done, size));
    }
  };
  std::uint64_t epoch = 0;
  for (auto _ : state) plain_epoch<Work>(epoch++, same_slab{slab->bytes});
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(samples));
}

// The cheapest hand-off we know: two single-producer queues of slab pointers, waits as the library's.
template <class Work>
void floor_hand_off(benchmark::State& state) {
  const std::size_t ring = make_loader<Work>(1).footprint().slots;  // as many as the loader
  struct full_slab {
    std::byte* slab;
    std::size_t size;
  };
  struct channel {
    boost::lockfree::spsc_queue<full_slab, boost::lockfree::capacity<16>> full;
    boost::lockfree::spsc_queue<std::byte*, boost::lockfree::capacity<16>> empty;
    ps::sequence pushed;
    ps::sequence popped;
    std::byte* take() {
      std::byte* slab = nullptr;
      for (std::uint32_t seen = popped.load(); !empty.pop(slab); seen = popped.load()) {
        popped.wait([seen](std::uint32_t now) { return now != seen; });
      }
      return slab;
    }
    void give(std::byte* slab, std::size_t size) {
      full.push({slab, size});
      pushed.advance();
    }
  };
  struct emit_to {
    channel* to;
    std::byte* take() const { return to->take(); }
    void give(std::byte* slab, std::size_t size) const { to->give(slab, size); }
  };
  std::vector<aligned_slab> slabs(ring);
  channel between;
  for (auto& slab : slabs) between.empty.push(slab.bytes);
  const auto epochs = static_cast<std::uint64_t>(state.max_iterations);
  std::thread producer{[&] {
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
      plain_epoch<Work>(epoch, emit_to{&between});
  }};
  for (auto _ : state) {
    for (std::size_t done = 0; done < samples;) {
      full_slab got{};
      for (std::uint32_t seen = between.pushed.load(); !between.full.pop(got);
           seen = between.pushed.load()) {
        between.pushed.wait([seen](std::uint32_t now) { return now != seen; });
      }
      benchmark::DoNotOptimize(read_slab<Work>(got.slab, got.size));
      done += got.size;
      between.empty.push(got.slab);
      between.popped.advance();
    }
  }
  producer.join();
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(samples));
}

template <class Work>
void loader_epochs(benchmark::State& state, std::size_t workers) {
  auto loader = make_loader<Work>(workers);
  auto range = loader.epochs(0, static_cast<std::uint64_t>(state.max_iterations));
  auto it = range.begin();
  for (auto _ : state) {
    for (std::uint64_t i = 0; i < loader.batches_per_epoch(); ++i, ++it) {
      benchmark::DoNotOptimize(read_slab<Work>(std::as_const(*it).data(), it->size()));
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(samples));
}

void sampler_alone(benchmark::State& state) {
  std::array<std::uint64_t, batch> index;
  std::uint64_t epoch = 0;
  for (auto _ : state) {
    const auto order = ps::shuffled{.seed = 1}.order(samples, epoch++);
    for (std::size_t first = 0; first < samples; first += batch) {
      order.fill(first, std::span{index}.first(std::min(batch, samples - first)));
      benchmark::DoNotOptimize(index.data());
      benchmark::ClobberMemory();
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(samples));
}

template <class Work>
void add(const std::string& what) {
  const auto wall = [](benchmark::internal::Benchmark* made) {
    made->UseRealTime()->Unit(benchmark::kMillisecond);
  };
  wall(benchmark::RegisterBenchmark(("floor_inline/" + what).c_str(), floor_inline<Work>));
  wall(benchmark::RegisterBenchmark(("floor_hand_off/" + what).c_str(), floor_hand_off<Work>));
  wall(benchmark::RegisterBenchmark(("loader_inline/" + what).c_str(), loader_epochs<Work>, 0));
  for (const std::size_t workers : {1U, 2U, 4U}) {
    wall(benchmark::RegisterBenchmark(("loader_" + std::to_string(workers) + "/" + what).c_str(),
                                      loader_epochs<Work>, workers));
  }
}

}  // namespace

int main(int argc, char** argv) {
  add<to_floats>("float");
  add<to_bytes>("byte");
  benchmark::RegisterBenchmark("sampler_alone", sampler_alone)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);

  using enum bench::goal::kind;
  return bench::run(argc, argv, "loader_bench",
                    {{"loader_inline/float", "floor_inline/float", speed_at_least, 0.90},
                     {"loader_inline/byte", "floor_inline/byte", speed_at_least, 0.90},
                     {"loader_1/float", "floor_hand_off/float", speed_at_least, 0.90},
                     {"loader_1/byte", "floor_hand_off/byte", speed_at_least, 0.90}});
}
