// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "fused.hpp"
#include "host_backend.hpp"
#include "mlp/run_on_host.hpp"

namespace test {

/// The host context with the fused kernels, run thread by thread.
class fused_context : public mlp::host_context {
 public:
  explicit fused_context(bool upwards = true) : upwards_(upwards) {}

  template <class Kernel>
  void run(const Kernel& kernel) const {
    run_on_host(kernel, upwards_);
  }
  template <class Pixel>
  void train_fused(const mlp::network_view& net, const Pixel* images, const std::uint8_t* labels,
                   std::size_t count) const {
    mlp::fused::train(*this, net, images, labels, count);
  }

 private:
  bool upwards_;
};

/// A backend that computes on the host, and records and replays steps like CUDA graphs. All later
/// steps for a pair of slot and size use the addresses, sizes and values of the first step.
template <class Context = mlp::host_context>
class replaying_backend : public mlp::host_backend {
 public:
  template <class Work>
  void enqueue(stream_ref, const Work& work) const {
    if (state_->capturing) {
      state_->captured.push_back([work] { work(Context{}); });
    } else {
      work(Context{});
    }
  }

  template <class Work>
  void replay(std::size_t slot, std::size_t size, stream_ref stream, const Work& work) const {
    auto known = state_->graphs.find({slot, size});
    if (known == state_->graphs.end()) {
      state_->capturing = true;
      work(stream);
      state_->capturing = false;
      known = state_->graphs.emplace(std::pair{slot, size}, std::move(state_->captured)).first;
      state_->captured.clear();
    }
    for (const auto& operation : known->second) operation();
    ++state_->replays;
  }
  [[nodiscard]] static bool rehearses() { return true; }
  void forget() const { state_->graphs.clear(); }

  /// Returns the number of recorded pairs of slot and size.
  [[nodiscard]] std::size_t graphs() const { return state_->graphs.size(); }
  [[nodiscard]] std::size_t replays() const { return state_->replays; }

 private:
  struct state {
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::function<void()>>> graphs;
    std::vector<std::function<void()>> captured;
    bool capturing = false;
    std::size_t replays = 0;
  };
  std::shared_ptr<state> state_ = std::make_shared<state>();
};

}  // namespace test
