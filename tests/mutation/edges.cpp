// SPDX-License-Identifier: BSL-1.0
// Runs one flow on the fake CUDA runtime, with or without one of its ordering edges. Macros select
// other flows. PENSTOCK_EDGES_TRANSFORM: batches are transformed on the device.
// PENSTOCK_EDGES_ZERO_COPY: batches stay in their host slots. PENSTOCK_EDGES_KEEP_HOST: host slots
// stay occupied until the device lease ends. PENSTOCK_EDGES_RESULTS: results of steps are copied
// back. PENSTOCK_EDGES_BULK: weights are uploaded and downloaded. PENSTOCK_EDGES_INTAKE: streams
// push frames. `edges clean` passes if no run finds an error. `edges caught` passes if at least 18
// of 20 runs with the late policy, and 16 of 20 with the random policy, find an error.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "mutation/stuck.hpp"  // first, because an edge in a header calls let_others_sleep

#include <penstock/cuda.hpp>
#include <penstock_ext/bulk/bulk_copier.hpp>
#include <penstock_ext/intake/intake.hpp>
#include <penstock_ext/results/results.hpp>

#include "fake_cuda/fake_cuda.hpp"
#include "support/grouping.hpp"
#include "support/numbered.hpp"

namespace ps = penstock;

namespace {

constexpr int is_right = 0;
constexpr int saw_wrong_data = 1;
constexpr int ledger_objects = 2;
constexpr int was_stuck = 3;

#if defined(PENSTOCK_EDGES_PLAIN_SOURCE)
/// A source as a program might define it: its batches are not released at timeline points of the
/// copies.
template <class Loader>
class plain_source {
 public:
  using record_type = typename Loader::record_type;
  using device_type = typename Loader::device_type;

  struct batch_type {
    using record_type = typename Loader::record_type;
    using device_type = typename Loader::device_type;
    typename Loader::batch_type of;

    explicit operator bool() const { return static_cast<bool>(of); }
    [[nodiscard]] const std::byte* data() const { return of.data(); }
    [[nodiscard]] ps::batch_info info() const { return of.info(); }
    void release_after(ps::cuda_stream_ref stream) { of.release_after(stream); }
  };

  explicit plain_source(Loader& of) : of_(of) {}
  [[nodiscard]] device_type device() const { return of_.device(); }
  [[nodiscard]] const ps::batch_layout<record_type>& layout() const { return of_.layout(); }
  void start(const ps::batch_position& from, std::uint64_t last) { of_.start(from, last); }
  [[nodiscard]] batch_type next() { return {of_.next()}; }
  [[nodiscard]] batch_type try_next() { return {of_.try_next()}; }
  void stop() noexcept { of_.stop(); }

 private:
  Loader& of_;
};

template <class Loader>
plain_source<Loader> source(Loader& loader) {
  return plain_source<Loader>{loader};
}
#else
template <class Loader>
Loader& source(Loader& loader) {
  return loader;
}
#endif

#if defined(PENSTOCK_EDGES_TRANSFORM)
using record = ps::record<ps::field<"label", std::uint64_t>, ps::field<"values", double, 8>>;

/// Returns a transform that converts the values to double, adds 1, and copies the labels.
auto transform() {
  return ps::on_stream<record>([](ps::const_batch_view<numbered::record_type> in,
                                  ps::batch_view<record> out, ps::cuda_stream_ref stream) {
    const auto labels = ps::get<"label">(in).flat();
    const auto values = ps::get<"values">(in).flat();
    const auto new_labels = ps::get<"label">(out).flat();
    const auto new_values = ps::get<"values">(out).flat();
    const auto work = [=] {
      std::copy(labels.begin(), labels.end(), new_labels.begin());
      std::transform(values.begin(), values.end(), new_values.begin(),
                     [](float value) { return value + 1.0; });
    };
    fake_cuda::launch(stream.get(), work, {labels.data(), new_labels.data()});
  });
}
constexpr int offset = 1;
#else
constexpr int offset = 0;
#endif

#if defined(PENSTOCK_EDGES_ZERO_COPY)
constexpr auto zero_copy = ps::zero_copy_use::always;
#elif !defined(PENSTOCK_EDGES_RESULTS) && !defined(PENSTOCK_EDGES_INTAKE)
constexpr auto zero_copy = ps::zero_copy_use::never;
#endif
#if defined(PENSTOCK_EDGES_KEEP_HOST)
constexpr bool keep_host = true;
#elif !defined(PENSTOCK_EDGES_RESULTS)
constexpr bool keep_host = false;
#endif

/// Queues work on `stream` that checks the contents of the batch when it runs.
template <class Batch>
void look_at(const Batch& batch, ps::cuda_stream_ref stream, std::atomic<int>& wrong) {
  const ps::shuffled order{.seed = 4};
  std::vector<std::uint64_t> expected(batch.size());
  order.order(96, batch.epoch()).fill(batch.number() * 8, expected);
  const auto work = [labels = ps::get<"label">(batch).flat(),
                     values = ps::get<"values">(batch).flat(), expected, &wrong] {
    bool same = std::equal(labels.begin(), labels.end(), expected.begin(), expected.end());
    for (std::size_t i = 0; i < values.size(); ++i) {
      same = same && values[i] == static_cast<float>(expected[i / 8] + offset);
    }
    if (!same) wrong.fetch_add(1);
  };
  fake_cuda::launch(stream.get(), work, {batch.data()});
}

#if defined(PENSTOCK_EDGES_RESULTS)
using sums = ps::record<ps::field<"sum", std::uint64_t, 64>>;

/// Runs steps whose results are copied back to the host. Some slots are discarded while their step
/// is still running. Some consumers are slower than the steps.
void run_flow(std::size_t round, std::atomic<int>& wrong) {
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const auto expected = [round](std::uint64_t number, std::size_t i) {
    return (round + 1) * 1000 + number * 7 + i;
  };
  ps::results<sums, ps::cuda_device> out{device,
                                         stream,
                                         8,
                                         [&](const auto& done) {
                                           if (done.number() % 5 == round % 5) let_others_sleep();
                                           const auto sum = ps::get<"sum">(done).flat();
                                           for (std::size_t i = 0; i < sum.size(); ++i) {
                                             if (sum[i] != expected(done.number(), i))
                                               wrong.fetch_add(1);
                                           }
                                         },
                                         {.depth = 1 + round % 3, .workers = 1 + round / 3 % 2}};
  const auto step = [&](std::uint64_t number) {
    auto slot = out.acquire({.batch = number, .size = 8, .valid_size = 8});
    const auto work = [sum = ps::get<"sum">(slot).flat(), number, expected] {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = expected(number, i);
    };
    fake_cuda::launch(stream.get(), work, {slot.data()});
    return slot;
  };
  for (std::uint64_t number = 0; number < 12; ++number) {
    auto slot = step(number);
    if (number % 7 != 3) slot.send();
    if (round % 2 == 0) device.synchronize(ps::cuda_stream_ref{stream});
  }
  out.close();
  // Frees the memory while a step that is never waited for still uses it.
  auto last = ps::results<sums, ps::cuda_device>{device, stream, 8, [](const auto&) {}};
  auto slot = last.acquire({.size = 8, .valid_size = 8});
  fake_cuda::launch(stream.get(), [sum = ps::get<"sum">(slot).flat()] { sum[0] = 1; },
                    {slot.data()});
}
#elif defined(PENSTOCK_EDGES_BULK)
constexpr std::size_t words = 5 * 512 + 64;

/// A source of words that count up from `first`. With `breaks`, all reads after the first throw.
struct counted_words {
  std::uint64_t first = 0;
  bool breaks = false;
  [[nodiscard]] std::uint64_t size() const { return 8 * words; }
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    if (breaks && offset != 0) throw std::runtime_error("broken");
    for (std::size_t i = 0; i < out.size() / 8; ++i) {
      const std::uint64_t word = first + offset / 8 + i;
      std::memcpy(out.data() + 8 * i, &word, 8);
    }
  }
};
/// A sink that checks that the words count up from `first`.
struct counting_sink {
  std::uint64_t first = 0;
  std::atomic<int>* wrong = nullptr;
  void write(std::uint64_t offset, std::span<const std::byte> from) const {
    for (std::size_t i = 0; i < from.size() / 8; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, from.data() + 8 * i, 8);
      if (word != first + offset / 8 + i) wrong->fetch_add(1);
    }
  }
  void finish() const {}
};

/// Uploads weights repeatedly while the previous step may still use them. Steps check and modify
/// the weights. Downloads save them with and without snapshots. At the end, the last uploads are
/// never waited for, and one upload fails.
void run_flow(std::size_t round, std::atomic<int>& wrong) {
  const ps::cuda_device device{0};
  const auto stream = device.make_stream();
  const auto make = [&] { return static_cast<std::uint64_t*>(device.allocate(8 * words)); };
  const auto bytes = [](std::uint64_t* at) { return std::as_writable_bytes(std::span{at, words}); };
  auto* const weights = make();
  // Checks every word and adds 1 to it.
  const auto step = [&](std::uint64_t first) {
    const auto work = [weights, first, &wrong] {
      for (std::size_t i = 0; i < words; ++i) {
        if (weights[i] != first + i) wrong.fetch_add(1);
        ++weights[i];
      }
    };
    fake_cuda::launch(stream.get(), work, {weights});
  };
  ps::bulk_copier copier{device,
                         {.workers = 1 + round % 2, .piece_bytes = 4096, .snapshot = round < 2}};
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    const std::uint64_t first = 10000 * (3 * round + turn + 1);
    auto loading = copier.upload(stream, bytes(weights), counted_words{first});
    loading.wait(stream);
    step(first);
    step(first + 1);
    if (turn == 1) device.synchronize(ps::cuda_stream_ref{stream});
    auto saving = copier.download(stream, counting_sink{first + 2, &wrong}, bytes(weights));
    if (round >= 2) saving.wait();
    step(first + 2);
    step(first + 3);
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  device.deallocate(weights, 8 * words);
  for (const bool breaks : {false, true}) {
    auto* const unused = make();
    try {
      auto loading = copier.upload(stream, bytes(unused), counted_words{1, breaks});
      if (breaks) loading.wait(stream);
    } catch (const std::runtime_error&) {
    }
    device.deallocate(unused, 8 * words);
  }
}
#elif defined(PENSTOCK_EDGES_INTAKE)
using frame = ps::record<ps::field<"words", std::uint64_t, 64>>;

/// Pushes frames, written by a stream or by this thread, to an intake that drops the oldest frame.
/// A feed copies the frames or hands out their host slots, or a host loop reads them. At the end, a
/// stream still writes a frame that is never consumed.
void run_flow(std::size_t round, std::atomic<int>& wrong) {
  const ps::cuda_device device{0};
  const auto writer = device.make_stream();
  const auto stream = device.make_stream();
  using intake = ps::intake<frame, ps::cuda_device>;
  std::optional<intake> in{
      std::in_place, device,
      ps::intake_options{.slot_count = 3 + round % 2, .when_full = ps::when_full::drop_oldest}};
  std::uint64_t number = 1000 * (round + 1);
  const auto push = [&](bool by_stream) {
    auto slot = in->try_acquire();
    if (!slot) return;
    const auto write = [words = ps::get<"words">(slot).flat(), number = ++number] {
      for (auto& word : words) word = number;
    };
    if (by_stream) {
      fake_cuda::launch(writer.get(), write, {slot.bytes().data()});
      slot.commit_after(writer, {.tag = number});
    } else {
      write();
      slot.commit({.tag = number});
    }
  };
  const auto check = [&wrong](const auto& batch) {
    return [words = ps::get<"words">(batch).flat(), tag = batch.tag(), &wrong] {
      if (words[0] != tag || words[63] != tag) wrong.fetch_add(1);
    };
  };
  {
    const auto zero_copy = round % 3 == 1 ? ps::zero_copy_use::always : ps::zero_copy_use::never;
    std::optional feed{ps::transfer{*in, stream, {.depth = 2, .tuning = {.zero_copy = zero_copy}}}};
    std::uint64_t taken = 0;
    for (std::size_t turn = 0; turn < 24; ++turn) {
      push(true);
      if (turn % 3 != 0) push(true);
      if (turn % 2 == 0) push(false);
      if (turn % 4 == 1) push(false);
      const auto now = in->stats();
      if (round % 3 == 2) {
        if (now.waiting == 0) continue;
        auto range = in->stream();
        check(std::as_const(*range.begin()))();
      } else {
        if (now.waiting == 0 && now.delivered == taken) continue;
        const auto& batch = std::as_const(feed->next());
        ++taken;
        fake_cuda::launch(stream.get(), check(batch), {batch.data()});
        if (turn % 8 == 7) device.synchronize(ps::cuda_stream_ref{stream});
      }
    }
  }
  device.synchronize(ps::cuda_stream_ref{stream});
  push(true);
  push(true);
  in.reset();
}
#else
/// Runs several epochs with two consumer streams and occasional waits. Most rounds keep a lease for
/// many batches. The loop ends early, and a lease outlives the feed and the loader.
void run_flow(std::size_t round, std::atomic<int>& wrong) {
  const grouping<ps::cuda_device> device{0};
  const auto stream = device.make_stream();
  const auto second = device.make_stream();
  const numbered data{.count = 96};
  using loader_type = decltype(ps::loader{data, ps::shuffled{}, device, {}});
  std::optional<loader_type> loader;
  loader.emplace(
      data, ps::shuffled{.seed = 4}, device,
      ps::loader_options{.batch_size = 8, .workers = 1 + round % 2, .prefetch = 1 + round % 4});
  // The feed groups one to three copies.
  device.grouped_bytes = (1 + round / 2 % 3) * loader->layout().bytes();
  const ps::transfer_options options{
      .depth = 4 + round % 2, .keep_host = keep_host, .tuning = {.zero_copy = zero_copy}};
#if defined(PENSTOCK_EDGES_TRANSFORM)
  std::optional feed{ps::transfer{source(*loader), stream, transform(), options}};
#else
  std::optional feed{ps::transfer{source(*loader), stream, options}};
#endif
  decltype(feed)::value_type::batch_type kept;
  std::size_t count = 0;
  for (auto& batch : feed->epochs(0, 3)) {
    look_at(batch, stream, wrong);
    if (count % 3 == 1) {
      batch.also_used_on(second);
      look_at(batch, second, wrong);
      if (round % 4 == 1) device.synchronize(ps::cuda_stream_ref{second});
    }
    if (count % 4 == 3 && round % 2 == 0) device.synchronize(ps::cuda_stream_ref{stream});
    if (count % 8 == 0 && round % 3 != 2) {
      if (kept) look_at(kept, stream, wrong);
      kept = std::move(batch);
    }
    if (count < 10 && round % 5 == 1) let_others_sleep();
    if (++count == 30 + (round + 1) % 3) break;
  }
  feed.reset();
  loader.reset();
  if (kept) look_at(kept, stream, wrong);
  kept = {};
  device.synchronize(ps::cuda_stream_ref{stream});
  device.synchronize(ps::cuda_stream_ref{second});
}
#endif

#if defined(PENSTOCK_EDGES_BULK)
constexpr std::size_t rounds = 4;
#else
constexpr std::size_t rounds = 10;
#endif

int run_once(fake_cuda::policy policy, std::uint64_t seed) {
  fake_cuda::reset({.policy = policy, .seed = seed});
  std::atomic<int> wrong{0};
  {
    const stuck_watch watch{was_stuck};
    for (std::size_t round = 0; round < rounds && wrong.load() == 0; ++round)
      run_flow(round, wrong);
  }
  if (wrong.load() != 0) return saw_wrong_data;
  return fake_cuda::expect_clean() ? is_right : ledger_objects;
}

/// Returns the number of runs, out of `seeds`, that find an error. Each run has its own process,
/// because it may crash or hang.
int caught(fake_cuda::policy policy, int seeds) {
  const unsigned at_once = 2 * std::max(1U, std::thread::hardware_concurrency());
  int seen = 0;
  std::set<pid_t> running;
  const auto reap = [&] {
    int status = 0;
    const pid_t ended = ::wait(&status);
    running.erase(ended);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != is_right) ++seen;
  };
  for (int seed = 0; seed < seeds; ++seed) {
    if (running.size() == at_once) reap();
    const pid_t child = ::fork();
    if (child < 0) {
      std::perror("fork");
      std::exit(EXIT_FAILURE);
    }
    if (child == 0) {
      // Exits without running destructors or printing a sanitizer report, because only the exit
      // code matters.
      std::_Exit(run_once(policy, static_cast<std::uint64_t>(seed)));
    }
    running.insert(child);
  }
  while (!running.empty()) reap();
  return seen;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: edges clean|caught\n", stderr);
    return 2;
  }
  constexpr int seeds = 20;
  const bool edge_is_missing = std::strcmp(argv[1], "caught") == 0;
  const int late = caught(fake_cuda::policy::late, seeds);
  const int random = caught(fake_cuda::policy::random, seeds);
  const int early = caught(fake_cuda::policy::early, seeds);
  std::printf("runs of %d that see something wrong: late %d, random %d, early %d\n", seeds, late,
              random, early);
  // A few runs may find nothing, because thread timing varies.
  if (edge_is_missing) return late >= seeds - 2 && random >= seeds - 4 ? 0 : 1;
  return late + random + early == 0 ? 0 : 1;
}
