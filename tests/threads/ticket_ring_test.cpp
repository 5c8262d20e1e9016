// SPDX-License-Identifier: BSL-1.0
#include <penstock/threads/support/ticket_ring.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/catch.hpp"
#include "support/parking_atomics.hpp"
#include "support/sanitized.hpp"

namespace ps = penstock;

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Advances an idle ring as if `tickets` tickets had passed through it.
struct ticket_ring_access {
  template <class Ring>
  static void pass(Ring& ring, std::uint64_t tickets) {
    // Advances by whole laps, so that cell indices stay the same.
    REQUIRE((tickets & ring.mask_) == 0);
    const auto move = [tickets](auto& word) {
      word.store(word.load(std::memory_order_relaxed) + tickets, std::memory_order_relaxed);
    };
    const std::uint64_t head = ring.head_.value.load(std::memory_order_relaxed);
    for (auto& entry : ring.entries_) move(entry.word);
    for (auto& cell : ring.free_from_) {  // skips a cell that a parked push occupies
      const std::uint64_t from = cell.load(std::memory_order_relaxed);
      if (static_cast<std::int64_t>(from - head) < std::int64_t{1} << 60) move(cell);
    }
    move(ring.head_.value);
    move(ring.tail_.value.position);
    move(ring.tail_.value.known_head);
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

namespace {

static_assert(!std::is_move_constructible_v<ps::detail::ticket_ring<int>>);
static_assert(alignof(ps::detail::ticket_ring<int>) == ps::detail::cache_line);

using ring = ps::detail::ticket_ring<std::uint64_t, parking_atomics>;

template <class T>
struct sized {
  std::array<T, 64 / sizeof(T)> all;
};

// Returns a ticket of type T whose bytes are all equal.
template <class T>
T made_of(std::uint64_t number) {
  T made{};
  std::array<unsigned char, sizeof(T)> bytes{};
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<unsigned char>(number);
  std::memcpy(&made, bytes.data(), sizeof(T));
  return made;
}
template <class T>
std::optional<unsigned> number_of(const T& ticket) {
  std::array<unsigned char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &ticket, sizeof(T));
  for (const unsigned char byte : bytes) {
    if (byte != bytes[0]) return std::nullopt;
  }
  return bytes[0];
}

struct three_words {
  std::array<std::uint32_t, 5> all;
};

// Returns the first position: 0, just below 2^32, or just below 2^64.
std::uint64_t first_position() {
  return GENERATE(std::uint64_t{0}, (std::uint64_t{1} << 32) - 70, ~std::uint64_t{0} - 70);
}

// Checks the tickets from a ring in which a thread is parked. Tickets of the test must arrive in
// order, without loss or duplication. The ticket of the parked thread arrives at most once.
class bookkeeping {
 public:
  static constexpr std::uint64_t of_parked = ~std::uint64_t{0};

  explicit bookkeeping(ring& of) : ring_(of) {}

  bool push() {
    const bool is_in = ring_.try_push(pushed_);
    pushed_ += is_in;
    return is_in;
  }
  bool pop() {
    std::uint64_t got = 0;
    const bool is_out = ring_.try_pop(got);
    if (is_out) note(got);
    return is_out;
  }
  void note(std::uint64_t got) {
    if (got == of_parked) {
      ++parked_;
    } else if (got == next_) {
      ++next_;
    } else if (!skipped_ && got == next_ + 1) {
      skipped_ = next_;  // a parked pop may hold the missing ticket
      next_ += 2;
    } else if (skipped_ == got) {
      skipped_.reset();
    } else {
      ++wrong_;
    }
  }

  [[nodiscard]] bool is_complete() const { return wrong_ == 0 && !skipped_ && next_ == pushed_; }
  [[nodiscard]] int parked() const { return parked_; }

 private:
  ring& ring_;
  std::uint64_t pushed_ = 0;
  std::uint64_t next_ = 0;
  std::optional<std::uint64_t> skipped_;
  int wrong_ = 0;
  int parked_ = 0;
};

constexpr std::size_t small = 5;

// Uses a ring while a thread is parked in one of its calls, and checks that the ring holds exactly
// its capacity. `turns` tickets pass through the ring, a multiple of the range of a 16, 32 or 48
// bit counter.
void use(ring& of, bookkeeping& book, std::uint64_t turns) {
  bool all = true;
  constexpr std::uint64_t max_by_hand = 3 * 65'536;
  const bool is_by_hand = turns <= max_by_hand;
  while (book.pop()) {
  }
  if (!is_by_hand) ps::detail::ticket_ring_access::pass(of, turns);
  for (std::uint64_t i = 0; i < (is_by_hand ? turns : 1'000); ++i) {
    all = all && book.push() && book.pop();
  }
  CHECK(all);
  while (book.push()) {
  }
  std::size_t held = 0;
  while (book.pop()) ++held;
  CHECK(held == small);
  CHECK(of.was_empty());
}

std::uint64_t some_turns() {
  return GENERATE(std::uint64_t{0}, std::uint64_t{128}, std::uint64_t{65'536},
                  std::uint64_t{3 * 65'536}, std::uint64_t{1} << 32, std::uint64_t{1} << 48);
}

}  // namespace

TEST_CASE("a ring holds exactly its capacity, in order, wherever its positions begin", "[load]") {
  const auto capacity = GENERATE(std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{64},
                                 std::size_t{65}, std::size_t{1000});
  const auto first = first_position();
  ps::detail::ticket_ring<std::uint32_t> tickets{capacity, first};
  std::uint32_t got = 0;
  bool all = true;
  for (std::uint32_t round = 0; round < 300; ++round) {
    for (std::uint32_t i = 0; i < capacity; ++i) all = all && tickets.try_push(round + i);
    all = all && !tickets.try_push(9) && !tickets.was_empty();
    for (std::uint32_t i = 0; i < capacity; ++i) {
      all = all && tickets.try_pop(got) && got == round + i;
    }
    all = all && !tickets.try_pop(got) && tickets.was_empty();
  }
  CHECK(all);
}

TEMPLATE_TEST_CASE("tickets of any size leave a ring unchanged", "[load]", unsigned char,
                   std::uint16_t, std::uint64_t, three_words, sized<std::uint64_t>) {
  constexpr std::uint64_t each = test::sanitized ? 10'000 : 100'000;
  ps::detail::ticket_ring<TestType> tickets{3};
  std::atomic<std::uint64_t> torn{0};
  std::atomic<std::uint64_t> taken{0};
  std::atomic<std::uint64_t> sum{0};
  std::vector<std::thread> threads;
  for (int producer = 0; producer < 2; ++producer) {
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < each; ++i) {
        while (!tickets.try_push(made_of<TestType>(i))) std::this_thread::yield();
      }
    });
  }
  for (int consumer = 0; consumer < 2; ++consumer) {
    threads.emplace_back([&] {
      TestType got{};
      while (taken < 2 * each) {
        if (!tickets.try_pop(got)) {
          std::this_thread::yield();
          continue;
        }
        ++taken;
        const auto number = number_of(got);
        torn += !number;
        sum += number.value_or(0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < each; ++i) expected += 2 * (i % 256);
  CHECK(torn == 0);
  CHECK(sum == expected);
}

TEST_CASE("a thread parked inside a push blocks no other thread, and its ticket arrives once",
          "[load][promise:race-free-6]") {
  const auto first = first_position();
  const auto turns = some_turns();
  CAPTURE(first, turns);
  std::uint64_t step = 1;
  for (bool has_stopped = true; has_stopped; ++step) {
    CAPTURE(step);
    ring tickets{small, first};
    bookkeeping book{tickets};
    for (int i = 0; i < 2; ++i) CHECK(book.push());
    bool is_in = false;
    parked_thread pushing{step, [&] { is_in = tickets.try_push(bookkeeping::of_parked); }};
    has_stopped = pushing.has_stopped();
    use(tickets, book, turns);
    pushing.finish();
    while (book.pop()) {
    }
    CHECK(is_in);
    CHECK(book.parked() == 1);
    CHECK(book.is_complete());
    use(tickets, book, 1);
    CHECK(book.is_complete());
  }
  CHECK(step > 8);  // parked the push at many different steps
}

TEST_CASE("a thread parked inside a pop blocks no other thread and gets its own ticket",
          "[load][promise:race-free-6]") {
  const auto first = first_position();
  const auto turns = some_turns();
  CAPTURE(first, turns);
  std::uint64_t step = 1;
  for (bool has_stopped = true; has_stopped; ++step) {
    CAPTURE(step);
    ring tickets{small, first};
    bookkeeping book{tickets};
    for (int i = 0; i < 2; ++i) CHECK(book.push());
    std::uint64_t got = 0;
    bool is_out = false;
    parked_thread popping{step, [&] { is_out = tickets.try_pop(got); }};
    has_stopped = popping.has_stopped();
    use(tickets, book, turns);
    CHECK(book.push());  // provides a ticket if the pop has none yet
    popping.finish();
    if (is_out) book.note(got);
    while (book.pop()) {
    }
    CHECK(is_out);
    CHECK(book.is_complete());
    use(tickets, book, 1);
    CHECK(book.is_complete());
  }
  CHECK(step > 4);
}

TEST_CASE("with as many producers parked in a push as there are spare cells, no place is lost",
          "[load]") {
  // With a capacity of 64 the ring has exactly the required number of cells; with 127 it has more.
  static_assert(ring::spare == 64);
  const auto capacity = GENERATE(std::size_t{64}, std::size_t{127});
  const std::size_t cells = std::bit_ceil(capacity + ring::spare);
  constexpr std::uint64_t before_filling = 7;  // the step at which a push occupies a cell
  const std::size_t standing = GENERATE(std::size_t{ring::spare}, std::size_t{ring::spare + 1});
  ring tickets{capacity};
  std::vector<std::unique_ptr<parked_thread>> producers;
  for (std::size_t i = 0; i < standing; ++i) {
    const auto push = [&tickets] { tickets.try_push(1); };
    // Each further producer first checks the cells that the earlier producers occupy.
    producers.push_back(std::make_unique<parked_thread>(before_filling + i, push));
    REQUIRE(producers.back()->has_stopped());
  }
  std::size_t held = 0;
  while (tickets.try_push(2)) ++held;
  CHECK(held == std::min(capacity, cells - standing));
  std::uint64_t got = 0;
  for (std::size_t i = 0; i < held; ++i) CHECK((tickets.try_pop(got) && got == 2));
  producers.clear();
  std::size_t late = 0;
  while (tickets.try_pop(got)) late += got == 1;
  CHECK(late == std::min(standing, capacity));
  for (held = 0; tickets.try_push(3); ++held) {
  }
  CHECK(held == capacity);
}
