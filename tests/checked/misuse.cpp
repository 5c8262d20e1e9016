// SPDX-License-Identifier: BSL-1.0
// misuse <name>: runs one misuse in a child process, which must abort, and must name the mistake
// and the batch on stderr. Without a name, all misuses run.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <penstock_ext/results/results.hpp>

#include <penstock_ext/serve/batcher.hpp>

#include <penstock_ext/interop/shared_batch.hpp>

#include "child.hpp"
#include "ramps.hpp"
#include "support/sanitized.hpp"

static_assert(PENSTOCK_CHECKED);

namespace {

using namespace checked_tests;
using record = ramps::record_type;
using host_lease = ps::host_batch<record, ps::cpu_device>;
using device_lease = ps::device_batch<record, ps::cpu_device>;

volatile float seen = 0;

#if defined(PENSTOCK_TEST_SANITIZED) && !defined(PENSTOCK_TEST_THREADS_SANITIZED)
constexpr bool address_sanitized = true;
#else
constexpr bool address_sanitized = false;
#endif

/// Returns the result of `take` for the first batch, after the loop has advanced to a later batch.
template <class Feed, class F>
auto of_first_batch(Feed& feed, F take) {
  std::optional<decltype(take(*feed.epoch(0).begin()))> taken;
  for (auto& batch : feed.epoch(0)) {
    if (!taken) taken = take(batch);
    if (batch.number() == 2) break;
  }
  return *taken;
}

/// Returns the result of `take` for the last batch of a loop. No later batch uses the slot.
template <class Feed, class F>
auto of_last_batch(Feed& feed, F take) {
  std::optional<decltype(take(*feed.epoch(0).begin()))> taken;
  for (auto& batch : feed.epoch(0)) taken = take(batch);
  return *taken;
}

void view_kept_in_a_loop() {
  auto loader = make_loader(2);
  std::optional<ps::tensor_view<float, ps::dyn, 4, 4>> kept;
  for (auto& batch : loader.epochs(3, 4)) {
    if (batch.number() == 1) kept = ps::get<"x">(batch);
    if (batch.number() == 2) seen = kept->flat()[0];
  }
}

void element_of_a_dead_view() {
  auto loader = make_loader(0);
  const auto x = of_first_batch(loader, [](auto& batch) { return ps::get<"x">(batch); });
  seen = x(0, 1, 2);
}

void row_of_a_dead_view() {
  auto loader = make_loader(0);
  const auto x = of_first_batch(loader, [](auto& batch) { return ps::get<"x">(batch)[1]; });
  seen = x[2][3];
}

void dead_view_to_read() {
  auto loader = make_loader(0);
  const ps::tensor_view<const float, ps::dyn, 4, 4> x =
      of_first_batch(loader, [](auto& batch) -> ps::tensor_view<const float, ps::dyn, 4, 4> {
        return ps::get<"x">(batch);
      });
  seen = *x.data();
}

void dead_batch_view() {
  auto loader = make_loader(0);
  const auto all = of_first_batch(loader, [](auto& batch) { return batch.view().subchunk(1, 2); });
  seen = ps::get<"x">(all)(0, 0, 0);
}

void dead_sample() {
  auto loader = make_loader(0);
  const auto sample = of_first_batch(loader, [](auto& batch) { return batch.view()[3]; });
  seen = static_cast<float>(ps::get<"label">(sample));
}

void view_beyond_the_loader() {
  std::optional<ps::tensor_view<float, ps::dyn, 4, 4>> kept;
  {
    auto loader = make_loader(1);
    for (auto& batch : loader.epoch(0)) kept = ps::get<"x">(batch);
  }
  seen = (*kept)(0, 0, 0);
}

void view_behind_release_after() {
  auto loader = make_loader(0);
  const ps::cpu_device device;
  auto range = loader.epoch(0);
  const auto it = range.begin();
  const auto x = ps::get<"x">(*it);
  it->release_after(device.inline_stream());
  seen = x(0, 0, 0);
}

void view_overwritten_lease() {
  auto loader = make_loader(0);
  host_lease kept;
  std::optional<ps::tensor_view<float, ps::dyn, 4, 4>> x;
  for (auto& batch : loader.epoch(0)) {
    kept = std::move(batch);
    if (kept.number() == 4) x = ps::get<"x">(kept);
    if (kept.number() == 5) seen = (*x)(0, 0, 0);
  }
}

void address_read_in_host_memory() {
  auto loader = make_loader(0);
  const auto* const x =
      of_last_batch(loader, [](auto& batch) { return ps::get<"x">(batch).data(); });
  seen = *x;
}

void address_written_in_host_memory() {
  auto loader = make_loader(2);
  const auto x = of_last_batch(loader, [](auto& batch) { return ps::get<"x">(batch).flat(); });
  x[5] = 1;
}

/// A dataset of bytes. Released memory cannot be marked, because every byte value is valid.
struct images {
  using record_type =
      ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::uint8_t>>;
  [[nodiscard]] static std::uint64_t size() { return 40; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    for (auto& x : ps::get<"image">(out).flat()) x = static_cast<std::uint8_t>(index);
    ps::get<"label">(out) = static_cast<std::uint8_t>(index);
  }
};

auto load_images() {
  return ps::loader{images{}, ps::sequential{}, ps::cpu_device{}, {.batch_size = 4}};
}

void bytes_read_many_batches_later() {
  auto loader = load_images();
  std::span<std::uint8_t> image;
  for (auto& batch : loader.epochs(2, 30)) {
    if (batch.epoch() == 2 && batch.number() == 7) image = ps::get<"image">(batch).flat();
  }
  seen = image[783];
}

void bytes_written_in_a_device_batch() {
  auto loader = load_images();
  ps::transfer feed{loader};
  auto* const label =
      of_last_batch(feed, [](auto& batch) { return ps::get<"label">(batch).data(); });
  label[3] = 1;
}

/// Keeps spans over batch data, like a program that keeps tensors from torch::from_blob.
void bytes_read_in_a_device_batch() {
  auto loader = load_images();
  ps::transfer feed{loader};
  std::vector<std::span<const std::uint8_t>> kept;
  for (auto& batch : feed.epochs(0, 20)) kept.push_back(ps::get<"image">(batch).flat());
  seen = kept[13][0];
}

void work_on_a_stream_that_the_feed_has_not() {
  auto loader = make_loader(0);
  ps::transfer feed{loader};
  auto stream = ps::cpu_device{}.make_stream();
  ps::detail::waitable_counter gate{0};
  stream.launch([&] { gate.wait([](std::uint32_t open) { return open != 0; }); });
  for (auto& batch : feed.epoch(0)) {
    stream.launch([x = ps::get<"x">(batch)] { seen = x.flat()[0]; });
  }
  gate.store(1);
  stream.synchronize();
}

void address_on_a_stream_behind_its_lease() {
  auto [device, loader, stream, feed] = streamed{0};
  const float* x = nullptr;
  for (auto& batch : feed.epoch(0)) {
    x = ps::get<"x">(batch.used_on(stream)).data();
    // The access is permitted, because the work was queued before the lease ended.
    stream.launch([x] { seen = *x; });
  }
  stream.launch([x] { seen = *x; });
  device.synchronize(stream);
}

void address_read_in_a_batch_of_requests() {
  ps::batcher<images::record_type> requests{ps::cpu_device{}, {.max_batch_size = 1, .depth = 1}};
  requests.submit(0, [](auto out) { ps::get<"label">(out) = 1; });
  const auto* const image = ps::get<"image">(requests.next()).data();
  seen = *image;
}

void address_read_of_results() {
  const float* kept = nullptr;
  ps::results<record> out{ps::cpu_device{}, 4,
                          [&](auto& done) { kept = ps::get<"x">(done).data(); }};
  out.acquire(ps::batch_info{.epoch = 0, .batch = 0, .size = 4, .valid_size = 4}).send();
  out.finish();
  seen = *kept;
}

void device_view_on_the_host() {
  auto [device, loader, stream, feed] = streamed{0};
  const auto x = of_first_batch(feed, [](auto& batch) { return ps::get<"x">(batch); });
  seen = x(0, 0, 0);
}

void host_view_behind_its_lease() {
  auto loader = make_loader(1);
  ps::transfer feed{loader, {.keep_host = true}};
  const auto x = of_first_batch(feed, [](auto& batch) { return ps::get<"x">(batch.host()); });
  seen = x(0, 0, 0);
}

void device_view_behind_its_lease_on_a_stream() {
  auto [device, loader, stream, feed] = streamed{0};
  const auto x = of_first_batch(feed, [](auto& batch) { return ps::get<"x">(batch); });
  stream.launch([x] { seen = x(0, 0, 0); });
  device.synchronize(stream);
}

void address_read_in_device_memory_behind_two_streams() {
  auto [device, loader, stream, feed] = streamed{0};
  auto other = device.make_stream();
  device_lease last;
  for (auto& batch : feed.epoch(0)) last = std::move(batch);
  last.also_used_on(other);
  const auto* const x = ps::get<"x">(last).data();
  last = {};
  device.synchronize(stream);
  device.synchronize(other);
  seen = *x;
}

void two_threads_on_one_lease() {
  auto loader = make_loader(0);
  for (auto& batch : loader.epochs(1, 2)) {
    seen = ps::get<"x">(batch)(0, 0, 0);
    std::thread{[&batch] { seen = ps::get<"x">(std::as_const(batch))(0, 0, 0); }}.join();
  }
}

void two_threads_on_one_device_lease() {
  auto loader = make_loader(0);
  ps::transfer feed{loader, ps::cpu_device{}.inline_stream()};
  for (auto& batch : feed.epoch(0)) {
    seen = ps::get<"x">(batch)(0, 0, 0);
    std::thread{[&batch] { seen = ps::get<"x">(batch)(0, 0, 0); }}.join();
  }
}

void lease_moved_from() {
  auto loader = make_loader(0);
  for (auto& batch : loader.epoch(0)) {
    const host_lease kept = std::move(batch);
    seen = ps::get<"x">(batch)(0, 0, 0);  // NOLINT: the mistake
  }
}

/// Captures a batch by reference in work that runs after the loop.
void lease_captured_by_reference() {
  auto [device, loader, stream, feed] = streamed{0};
  std::promise<void> loop_is_over;
  stream.launch([over = loop_is_over.get_future().share()] { over.wait(); });
  for (auto& batch : feed.epoch(0)) {
    stream.launch([&batch] { seen = ps::get<"x">(batch)(0, 0, 0); });  // NOLINT: the mistake
    break;
  }
  loop_is_over.set_value();
  device.synchronize(stream);
}

/// A dataset that sets `reached` when the read of sample 4 begins. The read never returns.
struct hangs {
  using record_type = ramps::record_type;
  std::promise<void>* reached;
  [[nodiscard]] static std::uint64_t size() { return 40; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    if (index == 4) {
      reached->set_value();
      for (;;) ::pause();
    }
    ramps{}.read(index, out);
  }
};

void two_threads_advance_one_loop() {
  std::promise<void> reached;
  ps::loader loader{
      hangs{&reached}, ps::sequential{}, ps::cpu_device{}, {.batch_size = 4, .workers = 0}};
  auto range = loader.epoch(0);
  auto it = range.begin();
  std::thread{[it]() mutable { ++it; }}.detach();
  reached.get_future().wait();
  ++it;
}

void used_on_a_stream_that_nothing_orders() {
  auto [device, loader, stream, feed] = streamed{0};
  auto other = device.make_stream();
  for (auto& batch : feed.epoch(0)) {
    if (batch.number() == 2) seen = *ps::get<"x">(batch.used_on(other)).data();
  }
}

void shared_and_used_on_a_stream_that_nothing_orders() {
  auto [device, loader, stream, feed] = streamed{0};
  auto other = device.make_stream();
  for (auto& batch : feed.epoch(0)) {
    const bool is_third = batch.number() == 2;
    const auto own = ps::share(std::move(batch));
    if (is_third) seen = *ps::get<"x">(own.used_on(other)).data();
  }
}

void used_on_a_stream_of_the_batch_before() {
  auto [device, loader, stream, feed] = streamed{0, {.depth = 1}};
  auto other = device.make_stream();
  for (auto& batch : feed.epoch(0)) {
    if (batch.number() == 0) batch.also_used_on(other);
    batch.used_on(other);
  }
}

/// A device whose copies take minutes. A read that does not wait for the copy is always too early,
/// even on a delayed thread.
const ps::cpu_device stuck_bus{{.copy_bytes_per_second = 1}};
/// A device whose copies take a quarter of a second, for misuses that finally wait for the copies.
const ps::cpu_device slow_bus{{.copy_bytes_per_second = 1000}};

/// The program in the README, but with its step in the loop body instead of on the stream.
void body_looks_before_the_copy() {
  auto [device, loader, stream, feed] = streamed{0, {}, stuck_bus};
  for (auto& batch : feed.epoch(0)) seen = ps::get<"x">(batch)(0, 0, 0);
}

void body_takes_a_pointer_before_the_copy() {
  auto [device, loader, stream, feed] = streamed{0, {}, slow_bus};
  for (auto& batch : feed.epoch(0)) {
    for (const float x : ps::get<"x">(batch).flat()) seen = x;
  }
}

void other_stream_looks_before_the_copy() {
  auto [device, loader, stream, feed] = streamed{0, {}, stuck_bus};
  auto other = device.make_stream();
  for (auto& batch : feed.epoch(0)) {
    other.launch([x = ps::get<"x">(batch)] { seen = x(0, 0, 0); });
    device.synchronize(other);
  }
}

/// Runs `body` on a feed whose copies have happened to finish before the body.
template <class Body>
void copies_are_there(Body body) {
  auto loader = make_loader(0);
  ps::cpu_device device;
  auto stream = device.make_stream();
  std::optional<ps::cpu_stream_ref> copies;
  ps::transfer feed{
      loader, stream, ps::on_stream<record>([&](auto in, auto out, ps::cpu_stream_ref on) {
        copies = on;
        on.launch(
            [from = ps::get<"x">(in), to = ps::get<"x">(out)] { to(0, 0, 0) = from(0, 0, 0); });
      })};
  for (auto& batch : feed.epoch(0)) {
    device.synchronize(*copies);
    body(batch);
  }
}

void body_looks_at_what_a_stream_was_given() {
  copies_are_there([](auto& batch) { seen = ps::get<"x">(batch)(0, 0, 0); });
}

void a_thread_looks_at_what_a_stream_was_given() {
  copies_are_there(
      [](auto& batch) { std::thread{[x = ps::get<"x">(batch)] { seen = x(0, 0, 0); }}.join(); });
}

struct misuse {
  const char* name;
  void (*run)();
  const char* expected;
};

#define MISUSE(name, expected) \
  misuse { #name, name, expected }
#define ADDRESS(name) \
  misuse { #name, name, used_after_poison }

constexpr const char* used_after_poison = "AddressSanitizer: use-after-poison";

constexpr const char* dead = ": a view was used after its lease had ended.";
constexpr const char* shared = ": two threads use its lease.";
constexpr const char* early = "batch 0 of epoch 0: a view was read before the batch's copy was";
constexpr const char* unused_stream =
    "batch 0 of epoch 0: a thread read its data, but the feed has a stream";
constexpr const char* unordered = ": its release does not wait for the stream that uses it.";
// promise: race-free-12: view_kept_in_a_loop dead_sample view_beyond_the_loader
// promise: race-free-12: view_overwritten_lease two_threads_on_one_lease
// promise: race-free-12: used_on_a_stream_that_nothing_orders body_looks_before_the_copy
// promise: race-free-12: body_takes_a_pointer_before_the_copy body_looks_at_what_a_stream_was_given
// promise: race-free-12: address_read_in_host_memory address_written_in_host_memory
// promise: race-free-12: bytes_read_many_batches_later bytes_written_in_a_device_batch
// promise: race-free-12: bytes_read_in_a_device_batch address_on_a_stream_behind_its_lease
// promise: race-free-12: address_read_in_device_memory_behind_two_streams
// promise: race-free-12: address_read_in_a_batch_of_requests address_read_of_results
// promise: race-free-12: view_kept_in_a_loop view_overwritten_lease two_threads_on_one_lease
// promise: race-free-12: lease_moved_from address_read_in_host_memory bytes_read_in_a_device_batch
// promise: race-free-12: two_threads_advance_one_loop body_looks_before_the_copy
// promise: race-free-12: body_takes_a_pointer_before_the_copy other_stream_looks_before_the_copy
// promise: race-free-12: body_looks_at_what_a_stream_was_given
// promise: race-free-12: work_on_a_stream_that_the_feed_has_not
// promise: race-free-12: a_thread_looks_at_what_a_stream_was_given
constexpr auto foreign_work =
    "batch 0 of epoch 0: a view was used after its lease had ended. Work on a stream used the "
    "view, and the end of the lease did not wait for that work, because the feed has no stream "
    "or a different one. Pass this stream to the feed (transfer feed{loader, stream}),";
const std::array misuses = {
    MISUSE(view_kept_in_a_loop,
           "batch 1 of epoch 3: a view was used after its lease had ended. Keep the lease as long "
           "as its views are used (move it out of the loop), or copy the data out\n"),
    MISUSE(element_of_a_dead_view, dead),
    MISUSE(row_of_a_dead_view, dead),
    MISUSE(dead_view_to_read, dead),
    MISUSE(dead_batch_view, dead),
    MISUSE(dead_sample, dead),
    MISUSE(view_beyond_the_loader, "batch 9 of epoch 0: a view"),
    MISUSE(view_behind_release_after, dead),
    MISUSE(view_overwritten_lease, "batch 4 of epoch 0: a view"),
    ADDRESS(address_read_in_host_memory),
    ADDRESS(address_written_in_host_memory),
    ADDRESS(bytes_read_many_batches_later),
    ADDRESS(bytes_written_in_a_device_batch),
    ADDRESS(bytes_read_in_a_device_batch),
    MISUSE(work_on_a_stream_that_the_feed_has_not, foreign_work),
    ADDRESS(address_on_a_stream_behind_its_lease),
    ADDRESS(address_read_in_a_batch_of_requests),
    ADDRESS(address_read_of_results),
    MISUSE(device_view_on_the_host, dead),
    MISUSE(host_view_behind_its_lease, dead),
    MISUSE(device_view_behind_its_lease_on_a_stream, dead),
    ADDRESS(address_read_in_device_memory_behind_two_streams),
    MISUSE(two_threads_on_one_lease,
           "batch 0 of epoch 1: two threads use its lease. In work on a stream, capture the view,"),
    MISUSE(two_threads_on_one_device_lease, shared),
    MISUSE(lease_moved_from, "a lease was used that holds no batch"),
    MISUSE(lease_captured_by_reference,
           "after the loop body. Capture the view, `x = ps::get<\"x\">(batch)`\n"),
    MISUSE(two_threads_advance_one_loop, "two threads advanced one loop at the same time."),
    MISUSE(used_on_a_stream_that_nothing_orders, "batch 2 of epoch 0: its release does not wait"),
    MISUSE(shared_and_used_on_a_stream_that_nothing_orders, unordered),
    MISUSE(used_on_a_stream_of_the_batch_before, unordered),
    MISUSE(body_looks_before_the_copy, early),
    MISUSE(body_takes_a_pointer_before_the_copy, unused_stream),
    MISUSE(other_stream_looks_before_the_copy, early),
    MISUSE(body_looks_at_what_a_stream_was_given, unused_stream),
    MISUSE(a_thread_looks_at_what_a_stream_was_given, unused_stream),
};

/// Returns true if the misuse terminated the process as expected.
bool is_caught(const misuse& wrong) {
  const auto [status, said] = end_of_child(wrong.run);
  // AddressSanitizer ends a process with exit() or abort(), depending on its options.
  const bool ended = wrong.expected == used_after_poison
                         ? status != 0
                         : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  const bool caught = ended && said.find(wrong.expected) != std::string::npos;
  std::printf("%s: %s\n%s", wrong.name, caught ? "caught" : "NOT CAUGHT", said.c_str());
  return caught;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  bool any = false;
  bool all_caught = true;
  for (const misuse& wrong : misuses) {
    if (!wanted.empty() && wanted != wrong.name) continue;
    if (!address_sanitized && wrong.expected == used_after_poison) continue;
    any = true;
    std::fflush(stdout);
    all_caught = is_caught(wrong) && all_caught;
  }
  return any && all_caught ? 0 : 1;
}
