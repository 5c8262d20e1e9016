// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "flow/state_machine/expected.hpp"
#include "flow/state_machine/machine.hpp"
#include "flow/state_machine/take_a_while.hpp"
#include "flow/state_machine/walk.hpp"

namespace stress {

inline void machine::keep() {
  if (!is_live() || !must_ || leases_.size() >= max_leases) return;
  count("kept");
  leases_.push_back({live_->take(), std::exchange(must_, nullptr), live_->of()});
}

inline std::optional<machine::held_lease> machine::pick() {
  if (leases_.empty()) return std::nullopt;
  std::swap(leases_[below(leases_.size())], leases_.back());
  std::optional<held_lease> one{std::move(leases_.back())};
  leases_.pop_back();
  return one;
}

inline void machine::drop() {
  if (pick()) count("dropped");
}

inline void machine::drop_elsewhere() {
  auto one = pick();
  if (!one) return;
  count("dropped elsewhere");
  std::thread{[lease = std::move(one->lease)]() mutable { lease = {}; }}.join();
}

inline void machine::drop_meanwhile() {
  if (away_.size() == max_away) end_away();
  auto one = pick();
  if (!one) return;
  count("dropped meanwhile");
  const std::uint64_t of = one->of;
  away_.push_back({std::async(std::launch::async,
                              [own = std::move(*one), turns = below(50)]() mutable {
                                take_a_while(turns);
                                if (const auto* lease = std::get_if<host_lease>(&own.lease)) {
                                  look_at(*lease, *own.must);
                                }
                                own.lease = {};
                              }),
                   of});
}

inline void machine::drop_on_stream() {
  auto one = pick();
  if (!one) return;
  count("dropped on a stream");
  on_stream_.push_back(one->of);
  stream_.launch([own = std::make_shared<held_lease>(std::move(*one))] {
    if (const auto* lease = std::get_if<host_lease>(&own->lease)) look_at(*lease, *own->must);
    own->lease = {};
  });
}

inline void machine::end_away() {
  auto end = std::move(away_.front().end);
  away_.erase(away_.begin());
  end.get();
}

inline void machine::move_leases() {
  if (leases_.size() < 2) return;
  count("moved leases");
  held_lease& a = leases_[below(leases_.size())];
  held_lease& b = leases_.back();
  if (&a == &b) {
    a.lease = std::move(b.lease);  // tests self-assignment
  } else if (one_in(2)) {
    std::swap(a, b);
  } else {
    a = std::move(b);  // releases the previous lease
    leases_.pop_back();
  }
}

inline void machine::look_at_leases() {
  await_stream();
  for (const held_lease& one : leases_) {
    std::visit([&](const auto& lease) { look_at(lease, *one.must); }, one.lease);
  }
}

}  // namespace stress
