// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/bulk/bulk_copier.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ext/bulk/bulk_files.hpp"
#include "support/asleep.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/gated_device.hpp"
#include "support/has.hpp"
#include "support/in_child.hpp"
#include "support/some_bytes.hpp"

namespace ps = penstock;
using test::page;

namespace {

using transfer_type = ps::bulk_transfer<gated_device>;
static_assert(!std::copyable<transfer_type> && std::movable<transfer_type>);
using bytes_type = std::vector<std::byte>;

bytes_type pattern(std::size_t count, std::uint32_t seed = 1) {
  return test::some_bytes<bytes_type>(count, seed);
}

/// The settings of a test source or sink, and its observations.
struct watched {
  std::atomic<std::uint64_t> calls{0};  // number of calls to `read` or `write`
  std::atomic<int> finished{0};
  std::atomic<int> alive{1};
  // Index of the call that throws.
  std::uint64_t fails_at = std::numeric_limits<std::uint64_t>::max();
  bool finish_fails = false;
  bool holds = false;  // makes each call wait for `open`
  ps::detail::waitable_counter open;
  ps::detail::waitable_counter arrived;

  void call() {
    arrived.advance();
    if (holds) open.wait([](std::uint32_t now) { return now != 0; });
    if (calls.fetch_add(1) == fails_at) throw std::domain_error("the medium is worn");
  }
  void finish() {
    if (finish_fails) throw std::domain_error("no room for the end");
    ++finished;
  }
};

struct watched_end {
  watched* of;
  explicit watched_end(watched& seen) : of(&seen) {}
  watched_end(watched_end&& other) noexcept : of(std::exchange(other.of, nullptr)) {}
  ~watched_end() {
    if (of != nullptr) of->alive = 0;
  }
};

struct watched_source {
  ps::memory_source bytes;
  watched_end seen;
  [[nodiscard]] std::uint64_t size() const { return bytes.size(); }
  void read(std::uint64_t offset, std::span<std::byte> out) const {
    seen.of->call();
    bytes.read(offset, out);
  }
  void finish() { seen.of->finish(); }
};

struct watched_sink {
  ps::memory_sink bytes;
  watched_end seen;
  void write(std::uint64_t offset, std::span<const std::byte> from) {
    seen.of->call();
    bytes.write(offset, from);
  }
  void finish() { seen.of->finish(); }
};
static_assert(ps::bulk_source<watched_source> && ps::bulk_sink<watched_sink>);

/// Returns the lines that `call` prints to stderr, which must be few.
std::string said_on_stderr(const std::function<void()>& call) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  call();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(ends[1]);
  char text[1000];
  const ::ssize_t bytes = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  return {text, static_cast<std::size_t>((std::max)(bytes, ::ssize_t{0}))};
}

/// A type that is both a source and a sink. Its second move throws.
struct moved_once {
  std::span<std::byte> bytes;
  int moves = 0;
  explicit moved_once(std::span<std::byte> all) : bytes(all) {}
  moved_once(moved_once&& other) : bytes(other.bytes), moves(other.moves + 1) {
    if (moves == 2) throw std::domain_error("it stays here");
  }
  [[nodiscard]] std::uint64_t size() const { return bytes.size(); }
  void read(std::uint64_t, std::span<std::byte>) const {}
  void write(std::uint64_t, std::span<const std::byte>) {}
  void finish() {}
};

/// Splits `all` into three contiguous ranges and an empty range.
template <class Byte>
std::vector<std::span<Byte>> in_parts(std::span<Byte> all) {
  const std::size_t first = all.size() / 3;
  const std::size_t second = all.size() / 2;
  return {all.first(first), {}, all.subspan(first, second - first), all.subspan(second)};
}

}  // namespace

TEST_CASE("an upload and a download transfer every byte for every piece size",
          "[transfer][bulk][promise:honest-21]") {
  const auto size = GENERATE(std::size_t{0}, std::size_t{1}, page - 1, 3 * page, 7 * page + 5);
  const auto workers = GENERATE(std::size_t{1}, std::size_t{3});
  const auto pieces = GENERATE(ps::count_or_automatic{1}, ps::count_or_automatic{4}, ps::automatic);
  const bool snapshot = GENERATE(false, true);
  const gated_device device;
  auto stream = device.make_stream();
  const ps::bulk_options options{
      .workers = workers, .piece_bytes = page, .pieces = pieces, .snapshot = snapshot};
  const bytes_type from = pattern(size);
  bytes_type there(size);
  watched read;
  auto loading = ps::upload(device, stream, in_parts(std::span{there}),
                            watched_source{ps::memory_source{from}, watched_end{read}}, options);
  loading.wait();
  CHECK(loading.done());
  CHECK((loading.progress().done == size && loading.progress().total == size));
  CHECK(there == from);
  CHECK(read.calls == (size + page - 1) / page);
  CHECK((read.finished == 1 && read.alive == 0));

  bytes_type back(size);
  watched written;
  auto saving =
      ps::download(device, stream, watched_sink{ps::memory_sink{back}, watched_end{written}},
                   in_parts(std::span<const std::byte>{there}), options);
  saving.wait();
  CHECK(back == from);
  CHECK(saving.progress().done == size);
  CHECK((written.finished == 1 && written.alive == 0));
}

TEST_CASE("copies of an upload run after earlier work on the stream and before later work",
          "[transfer][bulk][promise:race-free-15]") {
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type from = pattern(5 * page);
  bytes_type there(from.size());
  ps::detail::waitable_counter go;
  std::atomic<bool> was_untouched{false};
  std::atomic<bool> is_there{false};
  watched read;
  stream.launch([&] {
    go.wait([](std::uint32_t now) { return now != 0; });
    was_untouched = std::ranges::all_of(there, [](std::byte one) { return one == std::byte{}; });
  });
  auto loading = ps::upload(device, stream, std::span{there},
                            watched_source{ps::memory_source{from}, watched_end{read}},
                            {.workers = 1, .piece_bytes = page, .pieces = 5});
  loading.wait(stream);  // everything is read and queued, but nothing is copied yet
  CHECK(read.calls == 5);
  CHECK_FALSE(loading.done());
  stream.launch([&] { is_there = there == from; });
  CHECK(device.copies() == 0);
  go.store(1);
  stream.synchronize();
  CHECK(was_untouched);
  CHECK(is_there);
}

TEST_CASE("a piece of the ring is refilled only after the copy from it",
          "[transfer][bulk][promise:race-free-15][promise:bounded-15]") {
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type from = pattern(12 * page);
  bytes_type there(from.size());
  watched read;
  device.hold_copies();
  auto loading = ps::upload(device, stream, std::span{there},
                            watched_source{ps::memory_source{from}, watched_end{read}},
                            {.workers = 1, .piece_bytes = page, .pieces = 3});
  sleeper other{[&] { loading.wait(); }};
  while (read.calls < 3) std::this_thread::yield();
  other.wait_until_it_sleeps();
  CHECK(read.calls == 3);
  device.open_copies();
  other.join();
  CHECK(there == from);
}

TEST_CASE("the step continues while a download with a snapshot is written",
          "[transfer][bulk][promise:race-free-15]") {
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type first = pattern(6 * page, 3);
  bytes_type weights = first;
  bytes_type out(weights.size());
  watched written;
  written.holds = true;
  ps::bulk_copier copier{device, {.workers = 2, .piece_bytes = page, .snapshot = true}};
  CHECK(copier.host_bytes() == 4 * page);
  CHECK(copier.device_bytes() == 0);
  auto saving =
      copier.download(stream, watched_sink{ps::memory_sink{out}, watched_end{written}}, weights);
  CHECK(copier.device_bytes() == weights.size());
  stream.launch([&] { std::ranges::fill(weights, std::byte{9}); });
  stream.synchronize();  // the step has ended, but nothing is written yet
  CHECK(written.calls == 0);
  CHECK_FALSE(saving.done());
  written.open.store(1);
  saving.wait();
  CHECK(out == first);
  CHECK(written.finished == 1);
}

TEST_CASE("a download without a snapshot runs after earlier work on the stream",
          "[transfer][bulk][promise:race-free-15]") {
  const gated_device device;
  auto stream = device.make_stream();
  bytes_type weights(3 * page);
  bytes_type out(weights.size());
  ps::detail::waitable_counter go;
  stream.launch([&] {
    go.wait([](std::uint32_t now) { return now != 0; });
    std::ranges::fill(weights, std::byte{5});
  });
  auto saving = ps::download(device, stream, ps::memory_sink{out}, weights, {.piece_bytes = page});
  CHECK(device.copies() == 0);
  go.store(1);
  saving.wait();
  CHECK(out == weights);
}

TEST_CASE("consecutive transfers of a copier reuse its memory",
          "[transfer][bulk][promise:bounded-15]") {
  const gated_device device;
  auto stream = device.make_stream();
  ps::bulk_copier copier{device, {.workers = 2, .piece_bytes = page, .snapshot = true}};
  std::vector<bytes_type> out(5);
  std::vector<transfer_type> saving;
  bytes_type weights;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bytes_type now = pattern((i == 2 ? 9 : 5) * page, static_cast<std::uint32_t>(i));
    weights.resize(now.size());
    auto loading = copier.upload(stream, std::span{weights}, ps::memory_source{now});
    loading.wait(stream);
    out[i].resize(now.size());
    saving.push_back(copier.download(stream, ps::memory_sink{out[i]}, weights));
    stream.synchronize();
  }
  for (auto& one : saving) one.wait();
  for (std::size_t i = 0; i < out.size(); ++i) {
    CHECK(out[i] == pattern(out[i].size(), static_cast<std::uint32_t>(i)));
  }
  CHECK(copier.host_bytes() == 4 * page);
  CHECK(copier.device_bytes() == 9 * page);
}

TEST_CASE("an exception of a source or sink ends the transfer and is rethrown by wait",
          "[transfer][bulk][fault:consumers-11]") {
  const auto at = GENERATE(std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{19});
  const gated_device device;
  auto stream = device.make_stream();
  bytes_type here = pattern(20 * page);
  bytes_type there(here.size());
  const auto workers = GENERATE(std::size_t{1}, std::size_t{2});
  const ps::bulk_options options{.workers = workers, .piece_bytes = page, .pieces = 4};
  watched read;
  read.fails_at = at;
  auto loading = ps::upload(device, stream, std::span{there},
                            watched_source{ps::memory_source{here}, watched_end{read}}, options);
  CHECK_THROWS_AS(loading.wait(stream), std::domain_error);
  CHECK(loading.done());
  CHECK((read.finished == 0 && read.alive == 0));
  if (workers == 1) CHECK(read.calls == at + 1);  // no thread continues after the failure
  CHECK_THROWS_AS(loading.wait(), std::domain_error);

  watched written;
  written.fails_at = at;
  auto saving = ps::download(
      device, stream, watched_sink{ps::memory_sink{there}, watched_end{written}}, here, options);
  CHECK_THROWS_AS(saving.wait(), std::domain_error);
  CHECK((written.finished == 0 && written.alive == 0));
}

TEST_CASE("a download fails if its sink cannot be finished",
          "[transfer][bulk][fault:consumers-11]") {
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type there(3 * page);
  bytes_type out(there.size());
  watched written;
  written.finish_fails = true;
  auto saving =
      ps::download(device, stream, watched_sink{ps::memory_sink{out}, watched_end{written}}, there);
  CHECK_THROWS_AS(saving.wait(), std::domain_error);
  CHECK(written.alive == 0);
}

TEST_CASE("a bulk transfer is cancelled between pieces", "[transfer][bulk][promise:bounded-7]") {
  const bool by_token = GENERATE(false, true);
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type there(20 * page);
  bytes_type out(there.size());
  watched written;
  written.holds = true;
  std::stop_source stop;
  auto saving =
      ps::download(device, stream, watched_sink{ps::memory_sink{out}, watched_end{written}}, there,
                   {.workers = 1, .piece_bytes = page, .pieces = 2, .stop = stop.get_token()});
  written.arrived.wait([](std::uint32_t now) { return now != 0; });
  if (by_token) {
    stop.request_stop();
  } else {
    saving.cancel();
  }
  written.open.store(1);
  const auto problem = test::error_of<ps::cancelled>([&] { saving.wait(); });
  CHECK(test::has(problem.what(), "4096 of 81920 bytes"));
  CHECK(written.calls == 1);
  CHECK((written.finished == 0 && written.alive == 0));
}

TEST_CASE("any failed device call ends a bulk transfer", "[transfer][bulk][fault:devices-4]") {
  const auto which = GENERATE(0, 1, 2);
  const auto k = GENERATE(range(std::uint64_t{0}, std::uint64_t{9}));
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type here = pattern(6 * page);
  bytes_type there(here.size());
  bytes_type back(here.size());
  ps::bulk_copier copier{device,
                         {.workers = 2, .piece_bytes = page, .pieces = 4, .snapshot = true}};
  if (which == 0) device.fail_copy(k);
  if (which == 1) device.fail_record(k);
  if (which == 2) device.fail_synchronize(k);
  int failures = 0;
  const auto attempt = [&](const auto& call) {
    try {
      call();
      return true;
    } catch (const device_fault&) {
      ++failures;
      return false;
    }
  };
  const bool is_up = attempt([&] {
    auto loading = copier.upload(stream, std::span{there}, ps::memory_source{here});
    loading.wait();
  });
  if (is_up) CHECK(there == here);
  watched written;
  const bool is_down = attempt([&] {
    auto saving =
        copier.download(stream, watched_sink{ps::memory_sink{back}, watched_end{written}}, there);
    saving.wait();
  });
  CHECK(written.finished == (is_down ? 1 : 0));
  CHECK(written.alive == 0);
  if (is_down) CHECK(back == there);
  CHECK(failures <= 1);
  // If a point is known to be reached, waiting for it does not call the device, so there may be
  // fewer than k waits.
  CHECK((failures == 1 || (which == 2 && k > 0)));
  if (failures == 0) device.fail_synchronize(~std::uint64_t{0});
  // The copier still works after the failure.
  copier.upload(stream, std::span{there}, ps::memory_source{here}).wait();
  CHECK(there == here);
}

TEST_CASE("destroying a handle waits for the end of its transfer",
          "[transfer][bulk][promise:honest-21]") {
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type here = pattern(9 * page);
  bytes_type back(here.size());
  watched written;
  {
    transfer_type saving;
    CHECK(saving.done());
    saving = ps::download(device, stream, watched_sink{ps::memory_sink{back}, watched_end{written}},
                          here, {.piece_bytes = page});
  }
  CHECK(written.finished == 1);
  CHECK(back == here);
  watched failing;
  failing.fails_at = 2;
  transfer_type lost =
      ps::download(device, stream, watched_sink{ps::memory_sink{back}, watched_end{failing}}, here,
                   {.piece_bytes = page});
  const std::string said = said_on_stderr([&] { lost = {}; });
  CHECK(test::has(said, "bulk transfer: an exception, never retrieved: the medium is worn\n"));
  CHECK(failing.alive == 0);
}

TEST_CASE("the destructor of a handle reports copies that cannot be waited for",
          "[transfer][bulk][fault:devices-4]") {
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type here = pattern(3 * page);
  bytes_type there(here.size());
  const bool is_waited_for = GENERATE(false, true);
  const std::string said = said_on_stderr([&] {
    auto loading = ps::upload(device, stream, std::span{there}, ps::memory_source{here},
                              {.workers = 1, .piece_bytes = page, .pieces = 3});
    loading.wait(stream);
    device.fail_synchronize(0);
    if (is_waited_for) CHECK_THROWS_AS(loading.wait(), device_fault);
  });
  CHECK(said.empty() == is_waited_for);
}

TEST_CASE("a child created by fork does not affect a bulk transfer of its parent",
          "[transfer][bulk][fault:memory-7]") {
  const gated_device device;
  auto stream = device.make_stream();
  const bytes_type here = pattern(5 * page);
  bytes_type back(here.size());
  watched written;
  written.holds = true;
  auto copier = std::make_optional<ps::bulk_copier<gated_device>>(
      device, ps::bulk_options{.workers = 2, .piece_bytes = page});
  auto saving =
      copier->download(stream, watched_sink{ps::memory_sink{back}, watched_end{written}}, here);
  written.arrived.wait([](std::uint32_t now) { return now != 0; });
  const int end = test::in_child([&] {
    const auto is_rejected = [](const auto& call) {
      try {
        call();
      } catch (const std::logic_error& problem) {
        return test::has(problem.what(), "make a separate bulk_copier in this process");
      }
      return false;
    };
    const bool is_reported =
        saving.done() && is_rejected([&] { saving.wait(); }) &&
        is_rejected([&] { saving.wait(stream); }) && is_rejected([&] {
          (void)copier->upload(stream, std::span{back}, ps::memory_source{here});
        });
    saving = {};
    copier.reset();
    return is_reported && written.alive == 1 ? 7 : 1;
  });
  CHECK(end == 7);
  written.open.store(1);
  saving.wait();
  CHECK(back == here);
}

namespace {

/// Ends a child process after all other static objects have been destroyed. Otherwise
/// ThreadSanitizer would report workers that no thread can join in exit(). ThreadSanitizer also
/// checks for such threads in _exit, but not in _Exit.
class ends_child {
 public:
  ends_child() = default;
  ends_child(ends_child&&) = delete;
  ~ends_child() {
    if (::getpid() != parent_) std::_Exit(7);
  }

 private:
  ::pid_t parent_ = ::getpid();
};

}  // namespace

TEST_CASE("exit() in a sink ends a process with a static bulk transfer",
          "[transfer][bulk][fault:hangs-8]") {
  static std::atomic<bool> is_begun{false};
  static std::atomic<bool> is_exiting{false};
  struct exiting_sink {
    bool writes;
    void write(std::uint64_t, std::span<const std::byte>) const {
      while (!is_begun) std::this_thread::yield();
      // Only one of the calls may exit, because calling exit() twice is undefined behavior.
      if (writes && !is_exiting.exchange(true)) std::exit(7);
    }
    void finish() const { std::exit(7); }
  };
  static const ends_child last;
  static const bytes_type memory = pattern(8 * page);
  static std::optional<ps::bulk_copier<>> copier;
  static std::optional<ps::bulk_transfer<ps::cpu_device>> saving;
  for (const bool writes : {true, false}) {
    INFO("in write " << writes);
    CHECK(test::in_child([&]() -> int {
            const ps::cpu_device device;
            copier.emplace(device, ps::bulk_options{.workers = 3, .piece_bytes = page});
            saving.emplace(copier->download(device.inline_stream(), exiting_sink{writes},
                                            std::span<const std::byte>{memory}));
            is_begun = true;
            for (;;) ::pause();
          }) == 7);
  }
}

TEST_CASE("exit() in a sink or on the stream releases a thread that waits for a bulk transfer",
          "[transfer][bulk][fault:hangs-8]") {
  static std::atomic<long> waiter{0};
  static std::atomic<bool> is_exiting{false};
  static const auto exit_once_it_waits = [] {
    while (waiter == 0) std::this_thread::yield();
    wait_until_asleep(waiter);
    if (!is_exiting.exchange(true)) std::exit(7);
  };
  struct exiting_sink {
    bool exits;
    void write(std::uint64_t, std::span<const std::byte>) const {
      if (exits) exit_once_it_waits();
    }
    void finish() const {}
  };
  static const ends_child last;
  static const bytes_type memory = pattern(8 * page);
  static std::optional<ps::cpu_stream> stream;
  static std::optional<ps::bulk_copier<>> copier;
  static std::optional<ps::bulk_transfer<ps::cpu_device>> saving;
  for (const bool in_sink : {true, false}) {
    INFO("in the sink " << in_sink);
    CHECK(test::in_child([&]() -> int {
            stream.emplace();
            copier.emplace(ps::cpu_device{},
                           ps::bulk_options{.workers = 3, .piece_bytes = page, .pieces = 3});
            if (!in_sink) stream->launch([] { exit_once_it_waits(); });
            saving.emplace(copier->download(*stream, exiting_sink{in_sink},
                                            std::span<const std::byte>{memory}));
            waiter = this_thread_number();
            try {
              saving->wait();
            } catch (const ps::cancelled&) {
              for (;;) ::pause();
            }
            return 1;
          }) == 7);
  }
}

TEST_CASE("a bulk transfer does not begin if moving the sink or source throws",
          "[transfer][bulk][fault:consumers-11]") {
  const gated_device device;
  auto stream = device.make_stream();
  bytes_type here = pattern(page);
  ps::bulk_copier copier{device, {.piece_bytes = page, .snapshot = true}};
  moved_once sink{here};
  moved_once source{here};
  CHECK_THROWS_AS(copier.download(stream, std::move(sink), here), std::domain_error);
  CHECK_THROWS_AS(copier.upload(stream, std::span{here}, std::move(source)), std::domain_error);
  stream.synchronize();
  CHECK(device.copies() == 0);
}

TEST_CASE("bulk transfers reject mismatched sizes", "[transfer][bulk][fault:consumers-11]") {
  const ps::cpu_device device;
  const auto stream = device.inline_stream();
  const bytes_type here(100);
  bytes_type there(101);
  const auto problem = test::error_of<ps::bulk_error>([&] {
    static_cast<void>(ps::upload(device, stream, std::span{there}, ps::memory_source{here}));
  });
  CHECK(test::has(problem.what(), "the source has 100 bytes, but the device memory has 101"));
  CHECK_THROWS_AS(ps::download(device, stream, ps::memory_sink{there}, here), ps::bulk_error);
  const auto rejected = [&](ps::bulk_options options, const char* option) {
    const auto found = test::error_of<ps::option_error>(
        [&] { static_cast<void>(ps::bulk_copier{device, std::move(options)}); });
    CHECK(found.option() == option);
  };
  rejected({.workers = 0}, "workers");
  rejected({.workers = 1025}, "workers");
  rejected({.pieces = 0}, "pieces");
  rejected({.piece_bytes = 0}, "piece_bytes");
  rejected({.piece_bytes = 4097}, "piece_bytes");
  // The options are rejected even though a small transfer would need less memory than they specify.
  for (const ps::bulk_options& wrong : {ps::bulk_options{.piece_bytes = 5},
                                        {.piece_bytes = std::size_t{2} << 30},
                                        {.pieces = 5000}}) {
    CHECK_THROWS_AS(ps::download(device, stream, ps::memory_sink{there}, there, wrong),
                    ps::option_error);
  }
}

TEST_CASE("pieces of bulk transfers stay within a budget",
          "[transfer][bulk][promise:bounded-3][promise:bounded-15]") {
  const gated_device device;
  auto stream = device.make_stream();
  const auto budget = ps::memory_budget::bytes(3 * page);
  const bytes_type here = pattern(10 * page);
  bytes_type there(here.size());
  {
    ps::bulk_copier copier{device, {.workers = 8, .piece_bytes = page, .budget = budget}};
    CHECK(copier.host_bytes() == 3 * page);
    CHECK(budget.used() == 3 * page);
    copier.upload(stream, std::span{there}, ps::memory_source{here}).wait();
    CHECK(there == here);
    const auto problem = test::error_of<ps::pinned_budget_exceeded>([&] {
      static_cast<void>(ps::bulk_copier{device, {.piece_bytes = page, .budget = budget}});
    });
    CHECK(test::has(problem.what(), "lower piece_bytes, or raise budget"));
  }
  CHECK(budget.used() == 0);
  // A small transfer allocates only what it needs.
  ps::upload(device, stream, std::span{there}.first(100),
             ps::memory_source{std::span{here}.first(100)},
             {.budget = ps::memory_budget::bytes(page)})
      .wait();
}

TEST_CASE("a bulk transfer may follow a step in the loop body", "[transfer][bulk]") {
  const ps::cpu_device device;
  std::vector<float> weights(5000);
  const std::vector<float> values(5000, 0.5F);
  auto loading =
      ps::upload(device, device.inline_stream(), std::as_writable_bytes(std::span{weights}),
                 ps::memory_source{std::as_bytes(std::span{values})});
  loading.wait(device.inline_stream());
  CHECK(weights == values);
}
