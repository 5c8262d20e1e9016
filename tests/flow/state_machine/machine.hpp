// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <penstock/device/cpu_stream.hpp>
#include <penstock/penstock.hpp>

#include "flow/state_machine/chaotic.hpp"
#include "flow/state_machine/expected.hpp"
#include "flow/state_machine/moody.hpp"
#include "flow/state_machine/setup.hpp"
#include "flow/state_machine/walk.hpp"

namespace stress {

namespace ps = penstock;

/// A machine that runs random operations in a sequence of worlds, each with a loader and feeds. Can
/// be run once, by one thread.
class machine {
 public:
  explicit machine(std::uint64_t seed) : seed_(seed), random_(seed) {}
  machine(machine&&) = delete;

  /// Runs `steps` operations. Throws `mismatch`.
  void run(std::uint64_t steps);

  /// Destroys all loaders, feeds, ranges and leases of the machine.
  void clear();

  /// Returns how often each event has happened.
  [[nodiscard]] const std::map<std::string_view, std::uint64_t>& counts() const { return counts_; }

 private:
  static constexpr std::size_t max_kept = 12;
  static constexpr std::size_t max_away = 4;

  struct kept_lease {
    any_lease lease;
    std::shared_ptr<const expected> must;
    std::uint64_t of;  // number of its loader or feed
  };
  struct away_lease {  // a lease on a thread that will drop it
    std::future<void> end;
    std::uint64_t of;
  };
  struct saved_state {
    identity who;
    ps::batch_position at;
    ps::loader_state state;
  };

  // ---- chance

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[below(all.size())];
  }
  void count(std::string_view what) { ++counts_[what]; }

  // ---- machine/act.hpp: runs the operations

  struct operation {
    std::string_view name;
    int weight;
    void (machine::*act)();
  };

  void act();
  [[nodiscard]] std::string describe() const;

  // ---- machine/world.hpp: creates and destroys loaders and feeds

  void make_world();
  /// Makes a feed over the loader, or a feed that owns the loader.
  void make_feed();
  void drop_feed();
  void drop_world();
  /// Destroys the walks that may no longer be used, or all walks.
  void end_walks(bool all = true);
  void move_loader();
  void destroy_feed();
  void destroy_loader();
  void remake_feed();

  [[nodiscard]] bool has_source() const { return loader_ || owner_; }
  [[nodiscard]] bool has_feed() const { return feed_ || owner_; }
  [[nodiscard]] bool is_gone(const walk& one) const {
    return one.of() != (one.is_feed() ? feed_number_ : loader_number_);
  }
  [[nodiscard]] bool is_live() const { return live_ && !is_gone(*live_); }

  // ---- machine/model.hpp: the expected next batch

  [[nodiscard]] std::size_t kept_of(std::uint64_t number) const;
  /// Returns how many leases may be held, including leases that another thread will drop.
  [[nodiscard]] std::size_t max_held_of(std::uint64_t number) const;
  /// Waits for the work of the stream. Throws the mismatch that a check there has found.
  void await_stream();
  /// Returns `at`, except that the end of an epoch becomes the start of the next epoch.
  [[nodiscard]] ps::batch_position normal(const ps::batch_position& at) const;
  /// Records that a range has begun.
  void plan(const walk& one);
  void record_next(bool is_feed, const ps::batch_position& next);
  [[nodiscard]] bool has_no_order(const ps::batch_position& at) const;
  [[nodiscard]] bool is_resized() const;
  [[nodiscard]] bool is_bad(const ps::batch_position& at) const;
  /// Returns true if an error may wait in the feed for its turn. The loader is then free again.
  [[nodiscard]] bool may_have_failed() const;
  [[nodiscard]] bool is_exhausted(bool is_feed) const;
  [[nodiscard]] bool may_be_exhausted(bool is_feed) const;
  [[nodiscard]] std::optional<ps::failure> failure_of(bool is_feed) const;

  // ---- machine/notes.hpp: compares results with the model

  /// Records that a batch was delivered. It must be the next batch, or any of the next batches if
  /// the order is free.
  expected on_batch(bool is_feed, const ps::batch_info& info);
  void on_end();
  void record_exhausted(bool is_feed);
  void record_cancelled(bool is_feed);
  void record_bad(bool is_feed, const bad_sample& error);
  void record_no_order(bool is_feed, bool is_resize);

  // ---- machine/ranges.hpp: ranges used through their iterators

  /// Runs `step`, which begins or advances `one`, and compares the result.
  template <class Step>
  void settle(walk& one, Step step);
  /// Checks the current batch, after its copy has finished.
  void look(walk& one);
  /// Makes a range over an existing loader or feed. The range may be empty or invalid.
  std::unique_ptr<walk> make_walk();
  void begin();
  void start(std::unique_ptr<walk> one);
  template <class Error>
  void refuse(std::unique_ptr<walk> one, const char* what);
  void advance();
  void begin_again();
  void leave();
  void move_range();
  void begin_idle();
  void destroy_idle();
  std::unique_ptr<walk> take_idle();

  // ---- machine/loop.hpp: ranges used in loops

  /// Runs a loop as a user would write it. The loop runs to its end, or is left by a break or an
  /// exception.
  void loop();
  template <class Feed>
  void loop_over(Feed& feed, std::uint64_t first, std::uint64_t last, bool is_feed);
  /// Queues work on the batch's stream, as a training step does. The work runs at any later time,
  /// and checks that the batch is unchanged.
  void check_in_loop(const device_lease& batch, const expected& must);
  void check_in_loop(const host_lease& batch, const expected& must);

  // ---- machine/leases.hpp: leases that are kept

  void keep();
  /// Removes a kept lease from the list and returns it.
  std::optional<kept_lease> pick();
  void drop();
  void drop_elsewhere();
  /// Makes another thread check a lease and drop it, concurrently with later operations. The model
  /// does not know when that happens.
  void drop_meanwhile();
  /// Moves a lease into work of the stream, which drops it at any later time, possibly as the last
  /// lease of its loader.
  void drop_on_stream();
  /// Waits for the first lease on another thread. Throws the mismatch that the thread has found.
  void end_away();
  void move_leases();
  void look_at_leases();

  // ---- machine/disturbances.hpp: changes behind a loader

  /// Selects the epoch whose order throws, or none.
  void change_order();
  /// Makes the sampler hang for a while, during later operations.
  void hold_order();
  /// Changes the size of the dataset, or restores the size from when its loader was made.
  void resize();
  /// Requests a stop. After it, only batches on the device, or on the way to it, may be delivered.
  void cancel();

  // ---- machine/state.hpp: saves and resumes states

  void check_state();
  void require_at(const ps::loader_state& state, const ps::batch_position& at);

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::uint64_t step_ = 0;
  std::string_view doing_;
  std::map<std::string_view, std::uint64_t> counts_;

  ps::cpu_device device_;
  ps::cpu_stream stream_ = device_.make_stream();
  std::vector<kept_lease> kept_;          // may outlive their loader or feed
  std::vector<away_lease> away_;          // may outlive them too
  std::vector<std::uint64_t> on_stream_;  // owners of the leases on the stream
  setup how_;
  std::shared_ptr<std::atomic<std::uint64_t>> bad_epoch_;
  std::shared_ptr<moody::gate> gate_;
  std::jthread opener_;  // opens `gate_`
  std::optional<loader_type> loader_;
  std::optional<feed_type> feed_;    // uses `loader_`, or
  std::optional<owner_type> owner_;  // owns what was `loader_`
  std::unique_ptr<walk> live_;       // begun, not yet at its end
  std::vector<std::unique_ptr<walk>> idle_;

  std::uint64_t numbers_ = 0;
  std::uint64_t loader_number_ = 0;  // 0: destroyed
  std::uint64_t feed_number_ = 0;
  std::size_t slots_ = 0;
  std::stop_source stop_;
  bool is_cancelled_ = false;
  bool is_of_none_ = false;               // the last range is empty
  std::size_t late_ = 0;                  // batches that may still be delivered
  std::shared_ptr<const expected> must_;  // expected content of the current batch, or null
  std::vector<ps::batch_position> left_;  // batches of the live range
  std::optional<ps::batch_position> loader_next_;
  std::optional<ps::batch_position> feed_next_;
  std::optional<saved_state> saved_;
};

}  // namespace stress
