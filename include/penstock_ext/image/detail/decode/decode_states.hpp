// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Objects that one thread uses at a time and that are worth keeping: taken for a run of samples,
/// and given back. There are as many as readers have ever been at work at once. From any thread; a
/// lease must end before the pool does.
template <class State>
class decode_states {
 public:
  /// Makes no state yet; each will be a copy of `first`.
  explicit decode_states(State first) : first_(std::move(first)) {}
  decode_states(const decode_states&) = delete;
  decode_states& operator=(const decode_states&) = delete;

  /// A state for one thread, given back at the end of the scope.
  class lease {
   public:
    /// Takes one from `states`, or makes one.
    explicit lease(decode_states& states) : states_(states), state_(states.take()) {}
    lease(const lease&) = delete;
    lease& operator=(const lease&) = delete;
    ~lease() { states_.give_back(std::move(state_)); }

    [[nodiscard]] State& operator*() const noexcept { return *state_; }

   private:
    decode_states& states_;
    std::unique_ptr<State> state_;
  };

 private:
  std::unique_ptr<State> take() {
    {
      const std::lock_guard lock{mutex_};
      if (!free_.empty()) {
        auto state = std::move(free_.back());
        free_.pop_back();
        return state;
      }
    }
    auto state = std::make_unique<State>(first_);
    const std::lock_guard lock{mutex_};
    // Room for all that exist, so that giving back never allocates.
    free_.reserve(made_ + 1);
    ++made_;
    return state;
  }

  void give_back(std::unique_ptr<State> state) noexcept {
    const std::lock_guard lock{mutex_};
    free_.push_back(std::move(state));
  }

  const State first_;
  std::mutex mutex_;  // guards the next two
  std::vector<std::unique_ptr<State>> free_;
  std::size_t made_ = 0;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
