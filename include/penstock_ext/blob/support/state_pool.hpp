// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A pool of objects that are expensive to create. A thread borrows an object for a chunk of
/// samples. The pool grows to the maximum number of concurrent readers. Thread-safe. All leases
/// must end before the pool is destroyed.
template <class State>
class state_pool {
 public:
  /// Creates an empty pool, whose objects will be copies of `first`.
  explicit state_pool(State first = {}) : first_(std::move(first)) {}
  state_pool(const state_pool&) = delete;
  state_pool& operator=(const state_pool&) = delete;

  /// Returns a state to the pool.
  struct release {
    void operator()(State* state) const noexcept {
      const std::lock_guard lock{states->mutex_};
      states->free_.emplace_back(state);
    }
    state_pool* states;
  };
  /// A borrowed object. The destructor returns it to the pool.
  using lease = std::unique_ptr<State, release>;

  /// Returns an idle object, or creates an object.
  [[nodiscard]] lease take() {
    {
      const std::lock_guard lock{mutex_};
      if (!free_.empty()) {
        lease state{free_.back().release(), {this}};
        free_.pop_back();
        return state;
      }
    }
    auto state = std::make_unique<State>(first_);
    const std::lock_guard lock{mutex_};
    // Reserves space for all objects, so that returning an object never allocates.
    free_.reserve(made_ + 1);
    ++made_;
    return {state.release(), {this}};
  }

 private:
  const State first_;
  std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<State>> free_;
  std::size_t made_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
