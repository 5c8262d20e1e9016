// SPDX-License-Identifier: BSL-1.0
#pragma once

// A loader and the feeds over it, taken through random operations in every state that they can be
// in, beside a plain model of what must come next. What differs is thrown as `mismatch`, with the
// seed and the step that lead there. For the stress test and the soak.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <penstock/penstock.hpp>

namespace stress {

namespace ps = penstock;

/// The library did something else than the model.
class mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw mismatch(what);
}

/// What a sample throws that can't be read.
class bad_sample : public std::runtime_error {
 public:
  explicit bad_sample(std::uint64_t which)
      : std::runtime_error("sample " + std::to_string(which) + " is bad"), index(which) {}
  std::uint64_t index;
};

/// What a sampler throws that has no order.
class no_order : public std::runtime_error {
 public:
  no_order() : std::runtime_error("no order today") {}
};

/// What a consumer's loop throws.
struct consumer_error {};

/// Takes about half a microsecond a turn. It does not yield: beside processes that compute, a yield
/// costs a time slice, and a soak makes a million of them.
inline void take_a_while(std::uint64_t turns) {
  std::atomic<std::uint64_t> spent = 0;
  for (std::uint64_t i = 0; i < 100 * turns; ++i) spent.fetch_add(1, std::memory_order_relaxed);
}

/// A dataset in which some samples can't be read, and some not at once. A sample is its index and
/// the first of its random bits.
struct chaotic {
  using record_type =
      ps::record<ps::field<"label", std::uint64_t>, ps::field<"bits", std::uint32_t, 3>>;

  std::uint64_t count = 1;
  std::uint64_t key = 0;
  std::uint64_t bad_in = 0;      // one of so many can't be read; 0: none
  std::uint64_t flaky_in = 0;    // one of so many can't be read at once
  std::size_t flaky_fails = 0;   // how often
  std::uint64_t yields_in = 64;  // one of so many lets other threads run
  // What `size` says, where it does not say `count`.
  std::shared_ptr<std::atomic<std::uint64_t>> other_size =
      std::make_shared<std::atomic<std::uint64_t>>(0);

  [[nodiscard]] std::uint64_t size() const {
    const std::uint64_t other = *other_size;
    return other != 0 ? other : count;
  }
  [[nodiscard]] bool is_bad(std::uint64_t index) const { return is_one(index, 1, bad_in); }
  void read(std::uint64_t index, ps::sample<record_type> out, ps::sample_generator& rng) const {
    if (is_one(index, 3, yields_in)) std::this_thread::yield();
    ps::get<"label">(out) = ~index;  // must not show where the read fails
    if (is_bad(index)) throw bad_sample(index);
    if (is_one(index, 2, flaky_in) && fails_again(index)) throw bad_sample(index);
    ps::get<"label">(out) = index;
    for (std::uint32_t& bits : ps::get<"bits">(out).flat()) bits = rng();
  }

 private:
  [[nodiscard]] bool is_one(std::uint64_t index, std::uint64_t of, std::uint64_t in) const {
    return in != 0 && ps::sample_generator{{.seed = key, .epoch = of}, index}() % in == 0;
  }
  // Counted by thread: one thread reads a sample and its retries, and no other one interferes.
  bool fails_again(std::uint64_t index) const {
    thread_local std::array<std::size_t, 64> fails{};
    std::size_t& so_far = fails.at(index);
    const bool again = so_far < flaky_fails;
    so_far = again ? so_far + 1 : 0;
    return again;
  }
};

/// A shuffled order that one epoch has none of, and that may take its time. A fingerprint asks for
/// the epochs 0 and 1 alone.
struct moody {
  /// While it is shut, whoever asks for an order waits.
  struct gate {
    std::atomic<bool> is_shut = false;
    std::atomic<std::uint64_t> waits = 0;
  };

  static constexpr std::uint64_t never = ~std::uint64_t{0};
  ps::shuffled inner;
  std::shared_ptr<std::atomic<std::uint64_t>> bad_epoch =
      std::make_shared<std::atomic<std::uint64_t>>(never);
  std::shared_ptr<gate> before = std::make_shared<gate>();

  [[nodiscard]] std::uint64_t size(std::uint64_t n) const { return inner.size(n); }
  [[nodiscard]] ps::detail::permutation order(std::uint64_t n, std::uint64_t epoch) const {
    if (before->is_shut) ++before->waits;
    before->is_shut.wait(true);
    if (epoch == *bad_epoch) throw no_order{};
    return inner.order(n, epoch);
  }
};

/// What the order of batches depends on.
struct identity {
  std::uint64_t samples = 1;
  std::size_t batch_size = 1;
  std::uint64_t seed = 0;
  std::uint64_t order_seed = 0;
  ps::partial_batch last = ps::partial_batch::keep;
  bool operator==(const identity&) const = default;

  [[nodiscard]] std::uint64_t batches() const {
    const bool has_rest = samples % batch_size != 0 && last != ps::partial_batch::drop;
    return samples / batch_size + (has_rest ? 1 : 0);
  }
};

/// Everything about a loader and its feed.
struct setup {
  identity who;
  chaotic data;
  ps::loader_options options;
  std::size_t depth = 3;
};

/// What a batch must hold, or which sample keeps it from coming.
struct expected {
  ps::batch_position at;
  std::size_t valid = 0;
  std::size_t skipped = 0;
  std::vector<std::uint64_t> labels;
  std::vector<std::uint32_t> bits;
  std::optional<std::uint64_t> bad;  // its place in the batch
  std::uint64_t bad_sample = 0;
};

/// The sample that stands for a bad one: the first of eight draws that can be read.
inline std::optional<std::uint64_t> substitute_of(const setup& how, std::uint64_t epoch,
                                                  std::uint64_t sample) {
  if (how.who.samples < 2) return std::nullopt;
  ps::sample_generator draws{
      {.seed = how.who.seed, .epoch = epoch, .stage = ps::detail::substitute_stage}, sample};
  for (int draw = 0; draw < 8; ++draw) {
    auto other = ps::uniform(draws, std::uint64_t{0}, how.who.samples - 2);
    other += other >= sample ? 1 : 0;
    if (!how.data.is_bad(other)) return other;
  }
  return std::nullopt;
}

/// What `how` must give at a place: out of the sampler's order and the rules, one sample at a time.
inline expected expect(const setup& how, const ps::batch_position& at) {
  expected batch;
  batch.at = at;
  const auto order = ps::shuffled{.seed = how.who.order_seed}.order(how.who.samples, at.epoch);
  const std::uint64_t begin = at.batch * how.who.batch_size;
  const std::uint64_t full = begin + how.who.batch_size;
  const std::uint64_t end =
      how.who.last == ps::partial_batch::pad ? full : (std::min)(full, how.who.samples);
  for (std::uint64_t k = begin; k < end; ++k) {
    std::uint64_t sample = 0;
    order.fill(k % how.who.samples, std::span{&sample, 1});
    const bool fills_up = k >= how.who.samples;
    if (how.data.is_bad(sample)) {
      const auto then = how.options.on_error.action;
      if (then == ps::error_action::skip) {
        ++batch.skipped;
        continue;
      }
      std::optional<std::uint64_t> other;
      if (then == ps::error_action::substitute) other = substitute_of(how, at.epoch, sample);
      if (!other) {
        batch.bad = k - begin;
        batch.bad_sample = sample;
        return batch;
      }
      sample = *other;
    }
    batch.valid += fills_up ? 0 : 1;
    batch.labels.push_back(sample);
    ps::sample_generator rng{{.seed = how.who.seed, .epoch = at.epoch}, sample};
    for (int i = 0; i < 3; ++i) batch.bits.push_back(rng());
  }
  return batch;
}

/// Compares what a batch holds with what it must, bit by bit.
template <class Batch>
void look_at(const Batch& batch, const expected& must) {
  require(batch.epoch() == must.at.epoch && batch.number() == must.at.batch, "another batch");
  require(batch.size() == must.labels.size(), "a batch of another size");
  require(batch.valid() == must.valid, "another number of valid samples");
  require(batch.info().skipped == must.skipped, "another number of skipped samples");
  const auto labels = ps::get<"label">(batch).flat();
  const auto bits = ps::get<"bits">(batch).flat();
  require(std::equal(labels.begin(), labels.end(), must.labels.begin(), must.labels.end()),
          "other samples");
  require(std::equal(bits.begin(), bits.end(), must.bits.begin(), must.bits.end()), "other bits");
}

using loader_type = ps::loader<chaotic, moody>;
using feed_type = ps::transfer<loader_type&>;
using owner_type = ps::transfer<loader_type>;
using host_lease = loader_type::batch_type;
using device_lease = feed_type::batch_type;
using any_lease = std::variant<host_lease, device_lease>;

/// A range with its iterator, of a loader or a feed.
class walk {
 public:
  /// `of`: the number of the loader or feed.
  walk(std::uint64_t of, ps::batch_position from, std::uint64_t last_epoch, bool is_feed)
      : of_(of), from_(from), last_epoch_(last_epoch), is_feed_(is_feed) {}
  walk(walk&&) = delete;
  virtual ~walk() = default;
  virtual bool begin() = 0;
  virtual bool advance() = 0;
  virtual void relocate() = 0;
  virtual void look(const expected& must) = 0;
  virtual const ps::batch_info& info() = 0;
  virtual any_lease take() = 0;

  [[nodiscard]] std::uint64_t of() const { return of_; }
  [[nodiscard]] const ps::batch_position& from() const { return from_; }
  [[nodiscard]] std::uint64_t last_epoch() const { return last_epoch_; }
  [[nodiscard]] bool is_feed() const { return is_feed_; }

 private:
  std::uint64_t of_;
  ps::batch_position from_;
  std::uint64_t last_epoch_;
  bool is_feed_;
};

template <class Range>
class range_walk final : public walk {
 public:
  range_walk(Range range, std::uint64_t of, ps::batch_position from, std::uint64_t last_epoch,
             bool is_feed)
      : walk(of, from, last_epoch, is_feed), range_(std::in_place, std::move(range)) {}
  bool begin() override {
    at_ = range_->begin();
    return at_ != range_->end();
  }
  bool advance() override {
    ++at_;
    return at_ != range_->end();
  }
  void relocate() override {
    Range elsewhere{std::move(*range_)};
    range_.emplace(std::move(elsewhere));
  }
  void look(const expected& must) override { look_at(*at_, must); }
  const ps::batch_info& info() override { return at_->info(); }
  any_lease take() override { return std::move(*at_); }

 private:
  std::optional<Range> range_;
  typename Range::iterator at_;
};

/// A range over the members that make a loader a source.
class source_walk final : public walk {
 public:
  source_walk(std::optional<loader_type>& source, std::uint64_t of, ps::batch_position from,
              std::uint64_t last_epoch)
      : walk(of, from, last_epoch, false), source_(source) {}
  ~source_walk() override {
    held_ = {};
    if (is_begun_ && source_) source_->stop();
  }
  bool begin() override {
    held_ = {};
    if (is_begun_) source_->stop();
    is_begun_ = false;
    source_->start(from(), last_epoch());
    is_begun_ = true;
    return advance();
  }
  bool advance() override {
    held_ = {};
    try {
      held_ = source_->try_next();
      if (!held_) held_ = source_->next();
    } catch (...) {
      is_begun_ = false;
      throw;
    }
    is_begun_ = static_cast<bool>(held_);
    return is_begun_;
  }
  void relocate() override {}
  void look(const expected& must) override { look_at(held_, must); }
  const ps::batch_info& info() override { return held_.info(); }
  any_lease take() override { return std::move(held_); }

 private:
  std::optional<loader_type>& source_;
  host_lease held_;
  bool is_begun_ = false;
};

/// Takes one world after the other through random operations. Single-use; one thread.
class machine {
 public:
  explicit machine(std::uint64_t seed) : seed_(seed), random_(seed) {}
  machine(machine&&) = delete;

  /// Does `steps` operations; throws `mismatch`.
  void run(std::uint64_t steps) {
    for (const std::uint64_t end = step_ + steps; step_ < end; ++step_) {
      try {
        if (step_ == 0) make_world();
        act();
      } catch (const std::exception& error) {
        throw mismatch("seed " + std::to_string(seed_) + ", step " + std::to_string(step_) + ", " +
                       std::string{doing_} + ": " + error.what() + "\n  " + describe());
      }
    }
  }

  /// Ends all that is live: what is left is the machine itself.
  void clear() {
    drop_world();
    kept_.clear();
    while (!away_.empty()) end_away();
    await_stream();
    saved_.reset();
  }

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

  // ---- the world

  void make_world() {
    drop_world();
    count("world");
    setup& how = how_;
    stop_ = std::stop_source{};
    is_cancelled_ = false;
    // Sometimes a known identity, so that states come back under other workers and depths.
    if (!saved_ || one_in(2)) {
      how.who.samples = one_in(6) ? 1 + below(3) : 1 + below(60);
      how.who.batch_size = 1 + below(one_in(4) ? how.who.samples : 9);
      how.who.seed = below(3);
      how.who.order_seed = below(3);
      how.who.last = one_of<ps::partial_batch>(
          {ps::partial_batch::keep, ps::partial_batch::drop, ps::partial_batch::pad});
      if (how.who.batches() == 0) how.who.last = ps::partial_batch::keep;
    } else {
      how.who = saved_->who;
    }
    how.options = {.batch_size = how.who.batch_size,
                   .workers = below(5),
                   .prefetch = below(6),
                   .seed = how.who.seed,
                   .last_batch = how.who.last,
                   .in_order = !one_in(4),
                   .pinned = !one_in(3),
                   .run = one_of<std::size_t>({0, 0, 1, 2, 5}),
                   .on_error = {.first_wait = std::chrono::milliseconds{0},
                                .most_failures = ~std::uint64_t{0},
                                .largest_share = 1},
                   .stop = stop_.get_token()};
    if (one_in(4)) {
      how.options.workers = ps::automatic;
      how.options.cpus = 1 + below(4);
    }
    if (one_in(6)) how.options.prefetch = ps::automatic;
    how.data = {.count = how.who.samples, .key = below(1000)};
    if (!one_in(3)) {
      auto& policy = how.options.on_error;
      policy.retries = below(3);
      policy.action = one_of(
          {ps::error_action::propagate, ps::error_action::substitute, ps::error_action::skip});
      how.data.bad_in = policy.action == ps::error_action::propagate
                            ? one_of<std::uint64_t>({0, 60, 200})
                            : one_of<std::uint64_t>({0, 2, 10});
      // What fails for a while is foreseeable only where it is retried, as a draw for a substitute
      // is not, and where no batch has a sample twice.
      const bool has_twice =
          how.who.last == ps::partial_batch::pad && how.who.batch_size > how.who.samples;
      if (policy.action != ps::error_action::substitute && !has_twice) {
        how.data.flaky_in = one_of<std::uint64_t>({0, 3, 20});
        how.data.flaky_fails = policy.retries;
      }
    }
    how.data.other_size = std::make_shared<std::atomic<std::uint64_t>>(0);
    moody order{ps::shuffled{.seed = how.who.order_seed}};
    bad_epoch_ = order.bad_epoch;
    gate_ = order.before;
    if (one_in(4)) *bad_epoch_ = 2 + below(3);
    loader_.emplace(how.data, order, device_, how.options);
    loader_number_ = ++numbers_;
    loader_next_ = ps::batch_position{};
    slots_ = loader_->footprint().slot_count;
    if (one_in(3)) make_feed();
  }

  /// A feed over the loader, or one that takes it.
  void make_feed() {
    require(!is_live(), "model: a feed is made between ranges");
    how_.depth = 1 + below(4);
    const ps::cpu_stream_ref stream =
        one_in(3) ? device_.inline_stream() : ps::cpu_stream_ref{stream_};
    const ps::transfer_options options{.depth = how_.depth};
    if (one_in(2)) {
      end_walks();  // those of the source's own members
      owner_.emplace(std::move(*loader_), stream, options);
      loader_.reset();
      count("owning feed");
    } else {
      feed_.emplace(*loader_, stream, options);
      count("feed");
    }
    feed_number_ = ++numbers_;
    feed_next_ = ps::batch_position{};
  }

  void drop_feed() {
    if (!has_feed()) return;
    if (owner_) loader_number_ = 0;
    feed_.reset();
    owner_.reset();
    feed_number_ = 0;
  }

  void drop_world() {
    if (opener_.joinable()) opener_.join();
    if (gate_) counts_["order that hung"] += gate_->waits.exchange(0);
    drop_feed();
    loader_.reset();
    loader_number_ = 0;
    end_walks(one_in(2));
  }

  /// Destroys the walks that may not be used any more, or all.
  void end_walks(bool all = true) {
    if (all) {
      live_.reset();
      idle_.clear();
      return;
    }
    const auto is_source = [](const auto& one) {
      return dynamic_cast<source_walk*>(one.get()) != nullptr;
    };
    if (live_ && is_source(live_)) live_.reset();
    idle_.erase(std::remove_if(idle_.begin(), idle_.end(), is_source), idle_.end());
  }

  [[nodiscard]] bool has_feed() const { return feed_ || owner_; }
  [[nodiscard]] bool is_gone(const walk& one) const {
    return one.of() != (one.is_feed() ? feed_number_ : loader_number_);
  }
  [[nodiscard]] bool is_live() const { return live_ && !is_gone(*live_); }

  // ---- the model

  [[nodiscard]] std::size_t kept_of(std::uint64_t number) const {
    return static_cast<std::size_t>(std::count_if(
        kept_.begin(), kept_.end(), [&](const kept_lease& one) { return one.of == number; }));
  }

  /// How many leases may be held, those counted that another thread is about to drop.
  [[nodiscard]] std::size_t most_held_of(std::uint64_t number) const {
    return kept_of(number) +
           static_cast<std::size_t>(
               std::count_if(away_.begin(), away_.end(),
                             [&](const away_lease& one) { return one.of == number; })) +
           static_cast<std::size_t>(std::count(on_stream_.begin(), on_stream_.end(), number));
  }

  /// Waits for the stream's work; throws what a check there has found.
  void await_stream() {
    stream_.synchronize();
    on_stream_.clear();
  }

  /// A place, as the start of the next epoch where it is an epoch's end.
  [[nodiscard]] ps::batch_position normal(const ps::batch_position& at) const {
    if (at.batch != how_.who.batches()) return at;
    return {at.epoch + 1, 0};
  }

  /// A range has begun.
  void plan(const walk& one) {
    late_ = 0;
    left_.clear();
    for (auto at = normal(one.from()); at.epoch < one.last_epoch(); at = normal(at)) {
      left_.push_back(at);
      ++at.batch;
    }
    is_of_none_ = left_.empty();
    note_next(one.is_feed(), one.from());
    if (one.is_feed()) loader_next_.reset();  // it is ahead of the consumer
  }

  void note_next(bool is_feed, const ps::batch_position& next) {
    (is_feed ? feed_next_ : loader_next_) = next;
  }

  [[nodiscard]] bool has_no_order(const ps::batch_position& at) const {
    return is_resized() || at.epoch == *bad_epoch_;
  }
  [[nodiscard]] bool is_resized() const { return *how_.data.other_size != 0; }

  [[nodiscard]] bool is_bad(const ps::batch_position& at) const {
    if (has_no_order(at)) return true;
    return how_.data.bad_in != 0 && expect(how_, at).bad.has_value();
  }

  /// Whether an error may wait in the feed for its turn: the loader is free again then.
  [[nodiscard]] bool may_have_failed() const {
    if (is_cancelled_) return true;
    return is_live() && live_->is_feed() &&
           std::any_of(left_.begin(), left_.end(), [&](auto& at) { return is_bad(at); });
  }

  [[nodiscard]] bool is_exhausted(bool is_feed) const {
    return kept_of(loader_number_) == slots_ || (is_feed && kept_of(feed_number_) == how_.depth);
  }
  [[nodiscard]] bool may_be_exhausted(bool is_feed) const {
    return most_held_of(loader_number_) >= slots_ ||
           (is_feed && most_held_of(feed_number_) >= how_.depth);
  }

  /// A batch has come: it is the next one, or one of the next where they come in any order.
  expected note_batch(bool is_feed, const ps::batch_info& info) {
    require(!left_.empty(), "a batch after the last");
    require(!is_exhausted(is_feed), "a batch though all slots are held");
    if (is_cancelled_) {
      require(late_ != 0, "a batch that was not on its way when the stop was requested");
      --late_;
    }
    const ps::batch_position at{info.epoch, info.batch};
    const auto found =
        how_.options.in_order ? left_.begin() : std::find(left_.begin(), left_.end(), at);
    require(found != left_.end() && *found == at, "a batch out of its turn");
    left_.erase(found);
    expected must = expect(how_, at);
    require(!must.bad && !has_no_order(at), "a batch that can't be read");
    note_next(is_feed, {at.epoch, at.batch + 1});
    count("batch");
    return must;
  }

  void note_end() {
    require(left_.empty(), "the end before the last batch");
    count("end");
  }

  void note_exhausted(bool is_feed) {
    require(may_be_exhausted(is_feed), "leases_exhausted though a slot is free");
    require(!left_.empty(), "leases_exhausted at the end");
    require(is_feed || !how_.options.in_order || most_held_of(loader_number_) >= slots_ ||
                !is_bad(left_.front()),
            "leases_exhausted before the batch's own error");
    require(!failure_of(is_feed), "leases_exhausted is no batch's");
    count("leases_exhausted");
  }

  void note_cancelled(bool is_feed) {
    require(is_cancelled_, "cancelled without a request");
    // A range of no batches, begun after the request, may end either way.
    require(!left_.empty() || is_of_none_, "cancelled after the last batch");
    require(!failure_of(is_feed), "cancelled is no batch's");
    count("cancelled");
  }

  void note_bad(bool is_feed, const bad_sample& error) {
    const auto where = failure_of(is_feed);
    require(where.has_value() && where->stage == "read" && where->exact,
            "a failure without a place");
    const ps::batch_position at{where->epoch, where->batch};
    const auto found = how_.options.in_order && !left_.empty()
                           ? left_.begin()
                           : std::find(left_.begin(), left_.end(), at);
    require(found != left_.end() && *found == at, "the failure of another batch");
    const expected must = expect(how_, at);
    require(!has_no_order(at), "a sample that was read without an order");
    require(must.bad && *must.bad == where->position && must.bad_sample == where->sample &&
                must.bad_sample == error.index,
            "the failure of another sample");
    count("bad sample");
  }

  void note_no_order(bool is_feed, bool is_resize) {
    const auto where = failure_of(is_feed);
    require(where.has_value() && where->stage == "order", "no order, and no place");
    const ps::batch_position at{where->epoch, where->batch};
    const auto found = how_.options.in_order && !left_.empty()
                           ? left_.begin()
                           : std::find(left_.begin(), left_.end(), at);
    require(found != left_.end() && *found == at, "the missing order of another batch");
    require(is_resize == is_resized() && has_no_order(at), "a missing order that is there");
    count(is_resize ? "size changed" : "no order");
  }

  [[nodiscard]] std::optional<ps::failure> failure_of(bool is_feed) const {
    if (!is_feed) return loader_->last_failure();
    return feed_ ? feed_->last_failure() : owner_->last_failure();
  }

  // ---- operations

  struct operation {
    std::string_view name;
    int weight;
    void (machine::*act)();
  };

  void act() {
    if (is_cancelled_ && one_in(10)) make_world();
    if (is_resized() && one_in(3)) resize();
    static constexpr std::array<operation, 25> all{{
        {"begin", 10, &machine::begin},
        {"advance", 45, &machine::advance},
        {"begin again", 3, &machine::begin_again},
        {"leave", 5, &machine::leave},
        {"loop", 20, &machine::loop},
        {"keep", 10, &machine::keep},
        {"drop", 10, &machine::drop},
        {"drop elsewhere", 2, &machine::drop_elsewhere},
        {"drop meanwhile", 8, &machine::drop_meanwhile},
        {"drop on a stream", 4, &machine::drop_on_stream},
        {"hold the order", 4, &machine::hold_order},
        {"change the order", 3, &machine::change_order},
        {"change the size", 2, &machine::resize},
        {"move leases", 5, &machine::move_leases},
        {"look at leases", 4, &machine::look_at_leases},
        {"move loader or feed", 4, &machine::move_loader},
        {"move range", 4, &machine::move_range},
        {"destroy feed", 2, &machine::destroy_feed},
        {"destroy loader", 1, &machine::destroy_loader},
        {"make feed", 4, &machine::remake_feed},
        {"new world", 2, &machine::make_world},
        {"cancel", 1, &machine::cancel},
        {"state", 8, &machine::check_state},
        {"begin an idle range", 5, &machine::begin_idle},
        {"destroy an idle range", 4, &machine::destroy_idle},
    }};
    static const int sum = [] {
      int weights = 0;
      for (const operation& one : all) weights += one.weight;
      return weights;
    }();
    auto at = static_cast<int>(below(static_cast<std::uint64_t>(sum)));
    const operation* one = all.data();
    for (; at >= one->weight; ++one) at -= one->weight;
    doing_ = one->name;
    (this->*one->act)();
  }

  /// Does `step`, which begins or advances `one`, and compares.
  template <class Step>
  void settle(walk& one, Step step) {
    try {
      if (step()) {
        must_ = std::make_shared<const expected>(note_batch(one.is_feed(), one.info()));
        look(one);
        return;
      }
      note_end();
    } catch (const bad_sample& error) {
      note_bad(one.is_feed(), error);
    } catch (const no_order&) {
      note_no_order(one.is_feed(), false);
    } catch (const ps::dataset_changed&) {
      note_no_order(one.is_feed(), true);
    } catch (const ps::leases_exhausted&) {
      note_exhausted(one.is_feed());
    } catch (const ps::cancelled&) {
      note_cancelled(one.is_feed());
    }
    must_.reset();
    idle_.push_back(std::move(live_));
  }

  /// Looks at the batch in hand, once its copy is there.
  void look(walk& one) {
    if (one.is_feed()) await_stream();
    one.look(*must_);
  }

  /// A range over something that is there; also one of no batch, or of none that there is.
  std::unique_ptr<walk> make_walk() {
    const std::uint64_t far = (std::uint64_t{1} << 32) - 4;
    ps::batch_position from{one_in(8) ? far : below(3), 0};
    std::uint64_t last = from.epoch + below(4);
    const bool is_resumed = saved_ && saved_->who == how_.who && how_.options.in_order && one_in(2);
    if (is_resumed) {
      from = saved_->at;
      last = from.epoch + 1 + below(2);
      if (last > far + 4) last = far + 4;
    } else if (one_in(2)) {
      from.batch = below(how_.who.batches() + 1);
    }
    const auto of = [&](auto& face, std::uint64_t number, bool is_feed) -> std::unique_ptr<walk> {
      using range = typename std::remove_reference_t<decltype(face)>::range_type;
      const auto made = [&](range&& it) {
        return std::make_unique<range_walk<range>>(std::move(it), number, from, last, is_feed);
      };
      if (is_resumed) {
        count("resume");
        return made(face.resume(saved_->state, last));
      }
      if (from.batch != 0) return made(face.batches(from, last));
      return last == from.epoch + 1 ? made(face.epoch(from.epoch))
                                    : made(face.epochs(from.epoch, last));
    };
    if (owner_) return of(*owner_, feed_number_, true);
    if (feed_ && !one_in(4)) return of(*feed_, feed_number_, true);
    if (one_in(3)) return std::make_unique<source_walk>(loader_, loader_number_, from, last);
    return of(*loader_, loader_number_, false);
  }

  [[nodiscard]] bool has_source() const { return loader_ || owner_; }

  void begin() {
    if (!has_source()) return make_world();
    auto one = make_walk();
    if (one_in(6)) {  // to be begun later
      idle_.push_back(std::move(one));
      return;
    }
    start(std::move(one));
  }

  void start(std::unique_ptr<walk> one) {
    if (is_gone(*one)) {
      refuse<std::logic_error>(std::move(one), "a range of what is gone has begun");
      return;
    }
    if (is_live()) {
      if (!one->is_feed() && may_have_failed()) return idle_.push_back(std::move(one));
      count("second range");
      refuse<std::logic_error>(std::move(one), "a second range has begun");
      return;
    }
    if (live_) idle_.push_back(std::move(live_));
    const ps::batch_position from = normal(one->from());
    if (from.epoch > one->last_epoch() || (from.epoch == one->last_epoch() && from.batch != 0) ||
        one->last_epoch() > std::uint64_t{1} << 32) {
      count("no such range");
      refuse<ps::option_error>(std::move(one), "a range of no batches has begun");
      return;
    }
    live_ = std::move(one);
    plan(*live_);
    walk& it = *live_;
    settle(it, [&] { return it.begin(); });
  }

  template <class Error>
  void refuse(std::unique_ptr<walk> one, const char* what) {
    try {
      (void)one->begin();
    } catch (const Error&) {
      count("refused");
      idle_.push_back(std::move(one));
      return;
    }
    throw mismatch(what);
  }

  void advance() {
    if (!live_) return begin();
    walk& one = *live_;
    if (is_gone(one)) {
      require(!one.advance(), "a batch of what is gone");
      count("end of what is gone");
      idle_.push_back(std::move(live_));
      return;
    }
    settle(one, [&] { return one.advance(); });
  }

  void begin_again() {
    if (!is_live()) return;
    count("begun again");
    plan(*live_);
    walk& one = *live_;
    settle(one, [&] { return one.begin(); });
  }

  void leave() {
    if (live_) count(must_ ? "left" : "left without a batch");
    must_.reset();
    live_.reset();
  }

  /// A loop as users write it: to its end, or left by a break or an exception.
  void loop() {
    if (!has_source() || is_live()) return;
    live_.reset();
    must_.reset();
    const std::uint64_t first = below(3);
    const std::uint64_t last = first + below(3);
    if (owner_) {
      loop_over(*owner_, first, last, true);
    } else if (feed_) {
      loop_over(*feed_, first, last, true);
    } else {
      loop_over(*loader_, first, last, false);
    }
  }

  template <class Feed>
  void loop_over(Feed& feed, std::uint64_t first, std::uint64_t last, bool is_feed) {
    const std::uint64_t leave_at = one_in(2) ? below(5) : ~std::uint64_t{0};
    const bool throws = one_in(2);
    left_.clear();
    for (std::uint64_t epoch = first; epoch < last; ++epoch) {
      for (std::uint64_t i = 0; i < how_.who.batches(); ++i) left_.push_back({epoch, i});
    }
    is_of_none_ = left_.empty();
    note_next(is_feed, {first, 0});
    if (is_feed) loader_next_.reset();
    late_ = 0;
    std::uint64_t seen = 0;
    // Sometimes another thread ends it, at any moment.
    std::optional<std::jthread> canceller;
    if (one_in(40)) {
      canceller.emplace([stop = stop_, turns = below(200)]() mutable {
        take_a_while(turns);
        stop.request_stop();
      });
      count("loop to be cancelled");
    }
    const auto body = [&](auto& batch) {
      const expected must = note_batch(is_feed, batch.info());
      check_in_loop(batch, must);
      if (one_in(8) && kept_.size() < most_kept) {
        kept_.push_back({std::move(batch), std::make_shared<const expected>(must),
                         is_feed ? feed_number_ : loader_number_});
      }
      if (seen++ < leave_at) return true;
      if (throws) throw consumer_error{};
      return false;
    };
    try {
      bool is_left = false;
      for (auto& batch : feed.epochs(first, last)) {
        is_left = !body(batch);
        if (is_left) break;
      }
      if (!is_left) note_end();
      if (is_left) count("break");
    } catch (const consumer_error&) {
      count("exception in the loop");
    } catch (const bad_sample& error) {
      note_bad(is_feed, error);
    } catch (const no_order&) {
      note_no_order(is_feed, false);
    } catch (const ps::dataset_changed&) {
      note_no_order(is_feed, true);
    } catch (const ps::leases_exhausted&) {
      note_exhausted(is_feed);
    } catch (const ps::cancelled&) {
      if (canceller) is_cancelled_ = true;
      note_cancelled(is_feed);
    }
    if (canceller) {
      canceller->join();
      is_cancelled_ = true;
    }
    await_stream();
  }

  /// Work on the batch's stream, as a training step is: it runs when it likes, and the batch is
  /// still what it was.
  void check_in_loop(const device_lease& batch, const expected& must) {
    const auto labels = ps::get<"label">(batch).flat();
    batch.stream().launch([labels, wanted = must.labels] {
      require(std::equal(labels.begin(), labels.end(), wanted.begin(), wanted.end()),
              "other samples under the work of a stream");
    });
  }

  void check_in_loop(const host_lease& batch, const expected& must) { look_at(batch, must); }

  void keep() {
    if (!is_live() || !must_ || kept_.size() >= most_kept) return;
    count("kept");
    kept_.push_back({live_->take(), std::exchange(must_, nullptr), live_->of()});
  }

  /// Takes a kept lease out of the list.
  std::optional<kept_lease> pick() {
    if (kept_.empty()) return std::nullopt;
    std::swap(kept_[below(kept_.size())], kept_.back());
    std::optional<kept_lease> one{std::move(kept_.back())};
    kept_.pop_back();
    return one;
  }

  void drop() {
    if (pick()) count("dropped");
  }

  void drop_elsewhere() {
    auto one = pick();
    if (!one) return;
    count("dropped elsewhere");
    std::thread{[lease = std::move(one->lease)]() mutable { lease = {}; }}.join();
  }

  /// Another thread looks at a lease and drops it, while whatever is done here goes on. The model
  /// does not know when that has happened.
  void drop_meanwhile() {
    if (away_.size() == most_away) end_away();
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

  /// Work of the stream owns a lease and ends it, whenever that is: maybe as the last of its
  /// loader.
  void drop_on_stream() {
    auto one = pick();
    if (!one) return;
    count("dropped on a stream");
    on_stream_.push_back(one->of);
    stream_.launch([own = std::make_shared<kept_lease>(std::move(*one))] {
      if (const auto* lease = std::get_if<host_lease>(&own->lease)) look_at(*lease, *own->must);
      own->lease = {};
    });
  }

  /// Waits for the first of them, and throws what it has found.
  void end_away() {
    auto end = std::move(away_.front().end);
    away_.erase(away_.begin());
    end.get();
  }

  /// Another epoch has no order, or all have.
  void change_order() {
    if (is_live()) return;  // what is read ahead may have asked already
    *bad_epoch_ = one_in(2) ? moody::never : 2 + below(3);
  }

  /// The sampler hangs for a while, whatever is done meanwhile.
  void hold_order() {
    if (!has_source() || gate_->is_shut) return;
    if (opener_.joinable()) opener_.join();
    gate_->is_shut = true;
    opener_ = std::jthread{[gate = gate_, turns = below(200)] {
      take_a_while(turns);
      gate->is_shut = false;
      gate->is_shut.notify_all();
    }};
  }

  /// The dataset has another size than when its loader was made, or that one again.
  void resize() {
    if (is_live()) return;
    *how_.data.other_size = is_resized() ? 0 : how_.who.samples + 1;
  }

  void move_leases() {
    if (kept_.size() < 2) return;
    count("moved leases");
    kept_lease& a = kept_[below(kept_.size())];
    kept_lease& b = kept_.back();
    if (&a == &b) {
      a.lease = std::move(b.lease);  // itself
    } else if (one_in(2)) {
      std::swap(a, b);
    } else {
      a = std::move(b);  // releases what was there
      kept_.pop_back();
    }
  }

  void look_at_leases() {
    await_stream();
    for (const kept_lease& one : kept_) {
      std::visit([&](const auto& lease) { look_at(lease, *one.must); }, one.lease);
    }
  }

  void move_loader() {
    if (owner_) {
      owner_type elsewhere{std::move(*owner_)};
      owner_.emplace(std::move(elsewhere));
      count("moved feed");
    } else if (loader_ && !feed_) {
      loader_type elsewhere{std::move(*loader_)};
      if (one_in(2)) {
        loader_.emplace(std::move(elsewhere));
      } else {
        *loader_ = std::move(elsewhere);
      }
      count("moved loader");
    }
  }

  void move_range() {
    if (live_) live_->relocate();
  }

  void destroy_feed() {
    if (!has_feed()) return;
    count(is_live() ? "feed destroyed under a range" : "feed destroyed");
    if (is_live() && live_->is_feed()) must_.reset();
    drop_feed();
  }

  void destroy_loader() {
    if (!loader_) return;
    destroy_feed();
    count(is_live() ? "loader destroyed under a range" : "loader destroyed");
    if (is_live()) must_.reset();
    end_walks(false);
    loader_.reset();
    loader_number_ = 0;
  }

  /// From here on at most what is on the device, or on its way there, comes.
  void cancel() {
    if (is_cancelled_) return make_world();
    if (!has_source()) return;
    count("stop requested");
    stop_.request_stop();
    is_cancelled_ = true;
    late_ = is_live() && live_->is_feed() ? how_.depth : 0;
  }

  void remake_feed() {
    if (!loader_ || is_live()) return;
    drop_feed();
    make_feed();
  }

  void check_state() {
    if (!has_source()) return;
    if (!how_.options.in_order) {
      const auto ask = [&] { return owner_ ? owner_->state() : loader_->state(); };
      try {
        (void)ask();
      } catch (const ps::option_error&) {
        return count("no state out of order");
      }
      throw mismatch("a state of batches out of order");
    }
    if (loader_ && loader_next_) require_at(loader_->state(), *loader_next_);
    if (has_feed()) require_at(feed_ ? feed_->state() : owner_->state(), *feed_next_);
    if (!saved_) return;
    identity other = saved_->who;
    if (how_.who.samples < 16) other.order_seed = how_.who.order_seed;  // a few have few orders
    if (other != how_.who) {
      try {
        (void)(owner_ ? owner_->resume(saved_->state, 9).begin() == std::default_sentinel
                      : loader_->resume(saved_->state, 9).begin() == std::default_sentinel);
      } catch (const ps::state_mismatch&) {
        return count("state refused");
      }
      throw mismatch("a state of other batches was taken");
    }
  }

  void require_at(const ps::loader_state& state, const ps::batch_position& at) {
    require(state.epoch == at.epoch && state.batch == at.batch, "a state of another place");
    count("state");
    if (one_in(3)) {
      saved_ = {how_.who, at,
                ps::from_text<ps::loader_state>(one_in(2) ? to_text(state) : to_json(state))};
    }
  }

  void begin_idle() {
    if (idle_.empty()) return;
    auto one = take_idle();
    const bool is_source = dynamic_cast<source_walk*>(one.get()) != nullptr;
    if (is_source && is_gone(*one)) return;  // has no loader to refuse it
    start(std::move(one));
  }

  void destroy_idle() {
    if (!idle_.empty()) (void)take_idle();
  }

  std::unique_ptr<walk> take_idle() {
    std::swap(idle_[below(idle_.size())], idle_.back());
    auto one = std::move(idle_.back());
    idle_.pop_back();
    return one;
  }

  [[nodiscard]] std::string describe() const {
    const auto number = [](auto value) { return std::to_string(value); };
    const auto& o = how_.options;
    return "samples " + number(how_.who.samples) + ", batch_size " + number(o.batch_size) +
           ", workers " + number(o.workers) + ", prefetch " + number(o.prefetch) + ", run " +
           number(o.run) + (o.in_order ? "" : ", out of order") + ", last " +
           number(static_cast<int>(o.last_batch)) + ", then " +
           number(static_cast<int>(o.on_error.action)) + ", retries " + number(o.on_error.retries) +
           ", bad_in " + number(how_.data.bad_in) + ", flaky_in " + number(how_.data.flaky_in) +
           ", depth " + number(how_.depth) +
           (feed_    ? ", a feed"
            : owner_ ? ", an owning feed"
                     : ", no feed") +
           ", kept " + number(kept_.size()) + ", away " + number(away_.size()) + ", on a stream " +
           number(on_stream_.size()) + (is_resized() ? ", resized" : "") +
           (*bad_epoch_ == moody::never ? "" : ", no epoch " + number(bad_epoch_->load())) +
           ", left " + number(left_.size());
  }

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
