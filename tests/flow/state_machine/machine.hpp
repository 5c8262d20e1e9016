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

/// Takes one world after the other through random operations. Single-use; one thread.
class machine {
 public:
  explicit machine(std::uint64_t seed) : seed_(seed), random_(seed) {}
  machine(machine&&) = delete;

  /// Does `steps` operations; throws `mismatch`.
  void run(std::uint64_t steps);

  /// Ends all that is live: what is left is the machine itself.
  void clear();

  /// How often each thing has happened.
  [[nodiscard]] const std::map<std::string_view, std::uint64_t>& counts() const { return counts_; }

 private:
  static constexpr std::size_t most_kept = 12;
  static constexpr std::size_t most_away = 4;

  struct kept_lease {
    any_lease lease;
    std::shared_ptr<const expected> must;
    std::uint64_t of;  // the number of its loader or feed
  };
  struct away_lease {  // on a thread that is about to drop it
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

  // ---- machine/act.hpp: one operation after the other

  struct operation {
    std::string_view name;
    int weight;
    void (machine::*act)();
  };

  void act();
  [[nodiscard]] std::string describe() const;

  // ---- machine/world.hpp: what there is

  void make_world();
  /// A feed over the loader, or one that takes it.
  void make_feed();
  void drop_feed();
  void drop_world();
  /// Destroys the walks that may not be used any more, or all.
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

  // ---- machine/model.hpp: what must come next

  [[nodiscard]] std::size_t kept_of(std::uint64_t number) const;
  /// How many leases may be held, those counted that another thread is about to drop.
  [[nodiscard]] std::size_t most_held_of(std::uint64_t number) const;
  /// Waits for the stream's work; throws what a check there has found.
  void await_stream();
  /// A place, as the start of the next epoch where it is an epoch's end.
  [[nodiscard]] ps::batch_position normal(const ps::batch_position& at) const;
  /// A range has begun.
  void plan(const walk& one);
  void note_next(bool is_feed, const ps::batch_position& next);
  [[nodiscard]] bool has_no_order(const ps::batch_position& at) const;
  [[nodiscard]] bool is_resized() const;
  [[nodiscard]] bool is_bad(const ps::batch_position& at) const;
  /// Whether an error may wait in the feed for its turn: the loader is free again then.
  [[nodiscard]] bool may_have_failed() const;
  [[nodiscard]] bool is_exhausted(bool is_feed) const;
  [[nodiscard]] bool may_be_exhausted(bool is_feed) const;
  [[nodiscard]] std::optional<ps::failure> failure_of(bool is_feed) const;

  // ---- machine/notes.hpp: what has come, against the model

  /// A batch has come: it is the next one, or one of the next where they come in any order.
  expected note_batch(bool is_feed, const ps::batch_info& info);
  void note_end();
  void note_exhausted(bool is_feed);
  void note_cancelled(bool is_feed);
  void note_bad(bool is_feed, const bad_sample& error);
  void note_no_order(bool is_feed, bool is_resize);

  // ---- machine/ranges.hpp: ranges by their iterators

  /// Does `step`, which begins or advances `one`, and compares.
  template <class Step>
  void settle(walk& one, Step step);
  /// Looks at the batch in hand, once its copy is there.
  void look(walk& one);
  /// A range over something that is there; also one of no batch, or of none that there is.
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

  // ---- machine/loop.hpp: ranges in loops

  /// A loop as users write it: to its end, or left by a break or an exception.
  void loop();
  template <class Feed>
  void loop_over(Feed& feed, std::uint64_t first, std::uint64_t last, bool is_feed);
  /// Work on the batch's stream, as a training step is: it runs when it likes, and the batch is
  /// still what it was.
  void check_in_loop(const device_lease& batch, const expected& must);
  void check_in_loop(const host_lease& batch, const expected& must);

  // ---- machine/leases.hpp: batches that are kept

  void keep();
  /// Takes a kept lease out of the list.
  std::optional<kept_lease> pick();
  void drop();
  void drop_elsewhere();
  /// Another thread looks at a lease and drops it, while whatever is done here goes on. The model
  /// does not know when that has happened.
  void drop_meanwhile();
  /// Work of the stream owns a lease and ends it, whenever that is: maybe as the last of its
  /// loader.
  void drop_on_stream();
  /// Waits for the first of them, and throws what it has found.
  void end_away();
  void move_leases();
  void look_at_leases();

  // ---- machine/disturbances.hpp: what changes under a loader

  /// Another epoch has no order, or all have.
  void change_order();
  /// The sampler hangs for a while, whatever is done meanwhile.
  void hold_order();
  /// The dataset has another size than when its loader was made, or that one again.
  void resize();
  /// From here on at most what is on the device, or on its way there, comes.
  void cancel();

  // ---- machine/state.hpp: states, saved and resumed

  void check_state();
  void require_at(const ps::loader_state& state, const ps::batch_position& at);

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::uint64_t step_ = 0;
  std::string_view doing_;
  std::map<std::string_view, std::uint64_t> counts_;

  ps::cpu_device device_;
  ps::cpu_stream stream_ = device_.make_stream();
  std::vector<kept_lease> kept_;          // outlive what they are of
  std::vector<away_lease> away_;          // so do these
  std::vector<std::uint64_t> on_stream_;  // of what the stream's work owns leases
  setup how_;
  std::shared_ptr<std::atomic<std::uint64_t>> bad_epoch_;
  std::shared_ptr<moody::gate> gate_;
  std::jthread opener_;  // of the gate
  std::optional<loader_type> loader_;
  std::optional<feed_type> feed_;    // over loader_, or
  std::optional<owner_type> owner_;  // with what was loader_
  std::unique_ptr<walk> live_;       // begun, and not yet at its end
  std::vector<std::unique_ptr<walk>> idle_;

  std::uint64_t numbers_ = 0;
  std::uint64_t loader_number_ = 0;  // 0: gone
  std::uint64_t feed_number_ = 0;
  std::size_t slots_ = 0;
  std::stop_source stop_;
  bool is_cancelled_ = false;
  bool is_of_none_ = false;               // the range that began last
  std::size_t late_ = 0;                  // batches that may still come
  std::shared_ptr<const expected> must_;  // of the batch in hand; null where there is none
  std::vector<ps::batch_position> left_;  // of the live range
  std::optional<ps::batch_position> loader_next_;
  std::optional<ps::batch_position> feed_next_;
  std::optional<saved_state> saved_;
};

}  // namespace stress
