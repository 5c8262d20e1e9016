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

/// Performs random operations on a sequence of worlds. A world is a loader and its feeds. A machine
/// runs only once, on one thread.
class machine {
 public:
  explicit machine(std::uint64_t seed) : seed_(seed), random_(seed) {}
  machine(machine&&) = delete;

  /// Performs `steps` operations. Throws `mismatch`.
  void run(std::uint64_t steps);

  /// Destroys all loaders, feeds, ranges and leases.
  void clear();

  /// Returns the number of occurrences of each event.
  [[nodiscard]] const std::map<std::string_view, std::uint64_t>& counts() const { return counts_; }

 private:
  static constexpr std::size_t max_leases = 12;
  static constexpr std::size_t max_away = 4;

  struct held_lease {
    any_lease lease;
    std::shared_ptr<const expected> must;
    std::uint64_t of;  // identifies its loader or feed
  };
  struct away_lease {  // a lease that another thread will drop
    std::future<void> end;
    std::uint64_t of;
  };
  struct saved_state {
    identity who;
    ps::batch_position at;
    ps::loader_state state;
  };

  // ---- random choices

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[below(all.size())];
  }
  void count(std::string_view what) { ++counts_[what]; }

  // ---- machine/act.hpp: performs the operations

  struct operation {
    std::string_view name;
    int weight;
    void (machine::*act)();
  };

  void act();
  [[nodiscard]] std::string describe() const;

  // ---- machine/world.hpp: creates and destroys loaders and feeds

  void make_world();
  /// Creates a feed that borrows or owns the loader.
  void make_feed();
  void drop_feed();
  void drop_world();
  /// Destroys all walks, or only those whose loader or feed is gone.
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

  [[nodiscard]] std::size_t leases_of(std::uint64_t number) const;
  /// Returns the maximum number of leases in use, including leases that another thread will drop.
  [[nodiscard]] std::size_t max_held_of(std::uint64_t number) const;
  /// Waits for the stream's work. Throws any mismatch that the work found.
  void await_stream();
  /// Returns `at`, but normalizes the end of an epoch to the start of the next epoch.
  [[nodiscard]] ps::batch_position normal(const ps::batch_position& at) const;
  /// Records that a range has begun.
  void plan(const walk& one);
  void record_next(bool is_feed, const ps::batch_position& next);
  [[nodiscard]] bool has_no_order(const ps::batch_position& at) const;
  [[nodiscard]] bool is_resized() const;
  [[nodiscard]] bool is_bad(const ps::batch_position& at) const;
  /// Returns true if the feed may hold an error that it has not reported yet. The loader is then
  /// idle again.
  [[nodiscard]] bool may_have_failed() const;
  [[nodiscard]] bool is_exhausted(bool is_feed) const;
  [[nodiscard]] bool may_be_exhausted(bool is_feed) const;
  [[nodiscard]] std::optional<ps::failure> failure_of(bool is_feed) const;

  // ---- machine/notes.hpp: compares results with the model

  /// Records the delivery of a batch. The batch must be the next expected batch, or any of the
  /// expected batches if delivery is unordered.
  expected on_batch(bool is_feed, const ps::batch_info& info);
  void on_end();
  void record_exhausted(bool is_feed);
  void record_cancelled(bool is_feed);
  void record_bad(bool is_feed, const bad_sample& error);
  void record_no_order(bool is_feed, bool is_resize);

  // ---- machine/ranges.hpp: ranges used through their iterators

  /// Runs `step`, which begins or advances `one`, and checks its result.
  template <class Step>
  void settle(walk& one, Step step);
  /// Checks the current batch after its copy has finished.
  void look(walk& one);
  /// Creates a range over an existing loader or feed. The range may be empty or invalid.
  std::unique_ptr<walk> make_walk();
  void begin();
  void start(std::unique_ptr<walk> one);
  template <class Error>
  void reject(std::unique_ptr<walk> one, const char* what);
  void advance();
  void begin_again();
  void leave();
  void move_range();
  void begin_idle();
  void destroy_idle();
  std::unique_ptr<walk> take_idle();

  // ---- machine/loop.hpp: ranges used in loops

  /// Runs a loop as user code would. The loop runs to its end, or leaves early by a break or an
  /// exception.
  void loop();
  template <class Feed>
  void loop_over(Feed& feed, std::uint64_t first, std::uint64_t last, bool is_feed);
  /// Queues work on the batch's stream, as a training step does. The work runs later and checks
  /// that the batch is unchanged.
  void check_in_loop(const device_lease& batch, const expected& must);
  void check_in_loop(const host_lease& batch, const expected& must);

  // ---- machine/leases.hpp: leases that outlive their loop body

  void keep();
  /// Removes a retained lease from the list and returns it.
  std::optional<held_lease> pick();
  void drop();
  void drop_elsewhere();
  /// Makes another thread check and drop a lease, concurrently with later operations. The model
  /// does not know when the lease is dropped.
  void drop_meanwhile();
  /// Moves a lease into work on the stream, which drops the lease later. The lease may be the last
  /// lease of its loader.
  void drop_on_stream();
  /// Joins the thread with the oldest lease. Throws any mismatch that the thread found.
  void end_away();
  void move_leases();
  void look_at_leases();

  // ---- machine/disturbances.hpp: changes that a loader does not expect

  /// Selects the epoch for which the sampler throws, or no epoch.
  void change_order();
  /// Makes the sampler block temporarily during later operations.
  void hold_order();
  /// Changes the size of the dataset, or restores the size that the loader was constructed with.
  void resize();
  /// Requests a stop. Afterwards, only batches that are on the device or being copied to it may be
  /// delivered.
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
  std::vector<held_lease> leases_;        // may outlive their loader or feed
  std::vector<away_lease> away_;          // may outlive their loader or feed too
  std::vector<std::uint64_t> on_stream_;  // owner of each lease on the stream
  setup how_;
  std::shared_ptr<std::atomic<std::uint64_t>> bad_epoch_;
  std::shared_ptr<moody::gate> gate_;
  std::jthread opener_;  // opens `gate_`
  std::optional<loader_type> loader_;
  std::optional<feed_type> feed_;    // used by `loader_`, or
  std::optional<owner_type> owner_;  // by `owner_`, which owns the loader
  std::unique_ptr<walk> live_;       // has begun and is not at its end
  std::vector<std::unique_ptr<walk>> idle_;

  std::uint64_t numbers_ = 0;
  std::uint64_t loader_number_ = 0;  // 0 if the loader is destroyed
  std::uint64_t feed_number_ = 0;
  std::size_t slots_ = 0;
  std::stop_source stop_;
  bool is_cancelled_ = false;
  bool is_of_none_ = false;               // true if the last range is empty
  std::size_t late_ = 0;                  // batches that may be delivered after a stop
  std::shared_ptr<const expected> must_;  // expected contents of the current batch, or null
  std::vector<ps::batch_position> left_;  // remaining batches of the live range
  std::optional<ps::batch_position> loader_next_;
  std::optional<ps::batch_position> feed_next_;
  std::optional<saved_state> saved_;
};

}  // namespace stress
