// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <penstock/load/tuning_history.hpp>

namespace test {

/// The parameters of a simulated loop and its machine. Times are in microseconds.
struct loop_model {
  double step = 100;       // consumer time per batch
  double read = 100;       // reader time per batch
  double noise = 0.05;     // relative deviation of both times
  double slow_chance = 0;  // probability that a batch has a slow sample
  double slow = 0;         // extra time of a slow sample
  double cores = 16;
  bool computes = true;  // true if a reader keeps a core busy
  std::size_t max = 16;  // maximum number of readers
};

/// Simulates readers that share each batch, a ring of slots, and a consumer that receives batches
/// in order. The simulation does not use threads or a clock. The same seed gives the same results.
class modelled_loop {
 public:
  modelled_loop(const loop_model& model, std::uint64_t seed,
                const penstock::tuning_setting& setting)
      : model_(model), random_(seed), free_at_(model.max), settings_{{0.0, setting}} {}

  /// Changes the parameters for all later batches.
  void become(const loop_model& other) { model_ = other; }
  /// Changes the setting for all later batches.
  void use(const penstock::tuning_setting& setting) {
    if (setting != settings_.back().second) settings_.emplace_back(now(), setting);
  }

  /// Delivers the next batch to the consumer.
  void take() {
    const std::size_t ahead = settings_.back().second.prefetch;
    const std::size_t batch = taken_at_.size();
    const double slot_at = batch > ahead ? taken_at_[batch - ahead - 1] : 0.0;
    // Threads share the cores if more threads compute than there are cores.
    const double crowd = model_.computes ? (std::max)(1.0, (busy_share_ + 1) / model_.cores) : 1.0;
    const double busy_before = busy_;
    double complete_at = 0;
    for (int run = 0; run < runs; ++run) {
      double time = model_.read / runs * varied() * crowd;
      if (chance_(random_) < model_.slow_chance / runs) time += model_.slow;
      std::size_t first = 0;
      double begins = std::numeric_limits<double>::infinity();
      for (std::size_t worker = 0; worker < model_.max; ++worker) {
        const double can = open_from(worker, (std::max)(free_at_[worker], slot_at));
        if (can < begins) begins = can, first = worker;
      }
      free_at_[first] = begins + time;
      busy_ += time;
      complete_at = (std::max)(complete_at, begins + time);
    }
    const double before = now();
    const double taken = (std::max)(asks_at_, complete_at);
    waited_ += taken - asks_at_;
    taken_at_.push_back(taken);
    asks_at_ = taken + model_.step * varied() * crowd;
    const auto open = static_cast<double>(settings_.back().second.workers);
    const double share = (busy_ - busy_before) / (std::max)(1.0, taken - before);
    busy_share_ = 0.8 * busy_share_ + 0.2 * (std::min)(share, open);
  }

  /// Returns the time when the last batch was delivered.
  [[nodiscard]] double now() const { return taken_at_.empty() ? 0.0 : taken_at_.back(); }
  [[nodiscard]] double taken_at(std::size_t batch) const { return taken_at_[batch]; }
  /// Returns the consumer's total waiting time.
  [[nodiscard]] double waited() const { return waited_; }
  /// Returns the readers' total working time.
  [[nodiscard]] double busy() const { return busy_; }

 private:
  static constexpr int runs = 16;

  double varied() { return std::exp(model_.noise * normal_(random_)); }
  /// Returns the earliest time at or after `from` at which this worker is active.
  [[nodiscard]] double open_from(std::size_t worker, double from) const {
    std::size_t at = settings_.size() - 1;
    while (at > 0 && settings_[at].first > from) --at;
    if (worker < settings_[at].second.workers) return from;
    for (++at; at < settings_.size(); ++at) {
      if (worker < settings_[at].second.workers) return settings_[at].first;
    }
    return std::numeric_limits<double>::infinity();
  }

  loop_model model_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> chance_{0, 1};
  std::vector<double> free_at_;  // time when each worker becomes free
  std::vector<std::pair<double, penstock::tuning_setting>> settings_;
  std::vector<double> taken_at_;  // delivery time of each batch
  double asks_at_ = 0;
  double waited_ = 0;
  double busy_ = 0;
  double busy_share_ = 0;
};

}  // namespace test
