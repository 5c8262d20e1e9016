// SPDX-License-Identifier: BSL-1.0
#pragma once

// Random clients of a batcher. Some threads submit requests in every possible way, and some of
// their writes throw. Other threads consume batches, directly or through feeds that are left and
// created again, and share them. The batcher ends at a random time. Each request is served once,
// returned once, or rejected.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <penstock/penstock.hpp>
#include <penstock_ext/interop/shared_batch.hpp>
#include <penstock_ext/serve/batcher.hpp>

namespace soak {

namespace ps = penstock;

using request = ps::record<ps::field<"number", std::uint64_t>, ps::field<"values", float, 3>>;

/// Counts the events of a run and prints them at its end.
class came_to {
 public:
  void add(const std::string& what, std::uint64_t times = 1) {
    const std::lock_guard lock{mutex_};
    counts_[what] += times;
  }
  void print() const {
    for (const auto& [what, times] : counts_) {
      std::printf("  %s: %llu\n", what.c_str(), static_cast<unsigned long long>(times));
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::uint64_t> counts_;
};
inline came_to counted;

struct clients_config {
  std::uint64_t clients = 1;
  std::uint64_t requests = 0;  // requests per client
  std::uint64_t takers = 1;
  bool by_feed = false;
  bool on_stream = false;  // true if the feed has a stream
  // One in `throws_in` writes throws and is then repeated; 0 means none.
  std::uint64_t throws_in = 0;
  std::uint64_t leaves_after = 0;  // number of batches after which a consumer leaves; 0 means never
  int end = 0;                     // action during submission: 0 none, 1 close, 2 abandon, 3 stop
  ps::batcher_options options;
  ps::transfer_options transfer;
};

class clients {
 public:
  explicit clients(const clients_config& how, std::uint64_t seed)
      : how_(how), seed_(seed), served_(all()), returned_(all()), rejected_(all()) {}

  void run() {
    {
      auto options = how_.options;
      options.stop = stop_.get_token();
      options.on_unserved = [this](std::span<const std::uint64_t> tags, ps::unserved) {
        for (const auto tag : tags) ++returned_[tag];
      };
      const ps::cpu_device device;
      ps::batcher<request> requests{device, options};
      {
        std::vector<std::jthread> takers;
        takers_left_ = how_.takers;
        for (std::uint64_t i = 0; i < how_.takers; ++i) {
          takers.emplace_back([&, i] { take(requests, device, seed_ * 64 + i); });
        }
        {
          std::vector<std::jthread> submitters;
          for (std::uint64_t i = 0; i < how_.clients; ++i) {
            submitters.emplace_back([&, i] { submit(requests, i * how_.requests); });
          }
          std::mt19937_64 random{seed_};
          wait_a_bit(random, 300);
          if (how_.end == 1) requests.close();
          if (how_.end == 2) requests.abandon();
          if (how_.end == 3) stop_.request_stop();
        }
        requests.close();
      }
      const auto stats = requests.stats();
      require(stats.accepted == stats.handed_out + stats.returned + stats.waiting,
              "the batcher counts otherwise than it does");
      require(stats.accepted + sum(rejected_) == all(), "another number was accepted");
    }
    counted.add("requests served", sum(served_));
    counted.add("requests that came back", sum(returned_));
    counted.add("requests rejected", sum(rejected_));
    require(wrong_ == 0, "a request is not as it was written");
    for (std::size_t tag = 0; tag < all(); ++tag) {
      if (served_[tag] + returned_[tag] + rejected_[tag] == 1) continue;
      throw std::runtime_error("request " + std::to_string(tag) + " was served " +
                               std::to_string(served_[tag]) + " times, came back " +
                               std::to_string(returned_[tag]) + " times and was rejected " +
                               std::to_string(rejected_[tag]) + " times");
    }
  }

 private:
  using counts = std::vector<std::atomic<std::uint8_t>>;

  [[nodiscard]] std::size_t all() const { return how_.clients * how_.requests; }
  [[nodiscard]] static std::uint64_t sum(const counts& of) {
    std::uint64_t count = 0;
    for (const auto& one : of) count += one;
    return count;
  }
  static void require(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
  }
  static void wait_a_bit(std::mt19937_64& random, std::uint64_t max) {
    for (auto turns = random() % max; turns != 0; --turns) std::this_thread::yield();
  }

  static void write(std::uint64_t tag, ps::sample<request> out) {
    ps::get<"number">(out) = tag;
    if (tag % 5 == 0) std::this_thread::yield();
    for (float& value : ps::get<"values">(out).flat()) value = static_cast<float>(tag);
  }
  void submit(ps::batcher<request>& requests, std::uint64_t first) {
    std::mt19937_64 random{seed_ + first};
    for (std::uint64_t tag = first; tag != first + how_.requests; ++tag) {
      const auto writes = [tag](ps::sample<request> out) { write(tag, out); };
      const ps::request_info what{
          tag, {}, random() % 3 == 0 ? ps::request_priority::high : ps::request_priority::normal};
      try {
        if (how_.throws_in != 0 && random() % how_.throws_in == 0) {
          try {
            requests.submit(what, [&](ps::sample<request> out) {
              write(~tag, out);
              throw std::domain_error("a write that was asked to throw");
            });
          } catch (const std::domain_error&) {
          }
        }
        switch (random() % 4) {
          case 0:
            requests.submit(what, writes);
            break;
          case 1:
            while (!requests.submit_for(std::chrono::microseconds{random() % 50}, what, writes)) {
            }
            break;
          case 2:
            while (!requests.submit_until(std::chrono::steady_clock::now(), what, writes)) {
              std::this_thread::yield();
            }
            break;
          default:
            while (!requests.try_submit(what, writes)) std::this_thread::yield();
        }
      } catch (const ps::batcher_closed&) {
        ++rejected_[tag];
      }
    }
  }

  template <class Batch, class Tags>
  void look(const Batch& batch, const Tags& tags) {
    const auto numbers = ps::get<"number">(batch.view());
    const auto values = ps::get<"values">(batch.view());
    const auto& sizes = how_.options.allowed_batch_sizes;
    bool is_right = tags.size() == batch.valid() && batch.size() <= how_.options.max_batch_size &&
                    (sizes.empty() ? batch.size() == tags.size()
                                   : batch.size() == *std::ranges::lower_bound(sizes, tags.size()));
    for (std::size_t i = 0; is_right && i < batch.size(); ++i) {
      const std::uint64_t tag = i < tags.size() ? tags[i] : 0;  // padding consists of zeros
      is_right = numbers(i) == tag;
      for (std::size_t k = 0; k < 3; ++k) {
        is_right = is_right && values(i, k) == static_cast<float>(tag);
      }
    }
    if (!is_right) ++wrong_;
  }
  /// Counts the requests of a batch as served and checks the batch. May share the lease with
  /// another thread, which then releases the batch.
  template <class Batch>
  void serve(Batch&& batch, std::mt19937_64& random, std::vector<std::jthread>& others) {
    const std::vector<std::uint64_t> tags{batch.tags().begin(), batch.tags().end()};
    for (const auto tag : tags) ++served_[tag];
    if (others.size() == 3 || random() % 4 != 0) return look(batch, tags);
    auto shared = ps::share(std::forward<Batch>(batch));
    others.emplace_back([this, copy = shared, tags, turns = random() % 100]() mutable {
      for (auto left = turns; left != 0; --left) std::this_thread::yield();
      look(copy, tags);
    });
    if (random() % 2 == 0) look(shared, tags);
  }

  void take(ps::batcher<request>& requests, const ps::cpu_device& device, std::uint64_t seed) {
    std::mt19937_64 random{seed};
    std::vector<std::jthread> others;
    std::uint64_t left = how_.leaves_after == 0 ? ~std::uint64_t{0} : how_.leaves_after;
    if (how_.by_feed) {
      take_by_feeds(requests, device, left, random);
    } else {
      while (left != 0) {
        auto batch = random() % 3 != 0 ? requests.next() : requests.try_next();
        if (!batch && requests.at_end()) break;
        if (!batch) {
          std::this_thread::yield();
          continue;
        }
        --left;
        wait_a_bit(random, 20);
        serve(std::move(batch), random, others);
      }
    }
    // The last consumer ends the batcher, because submitters would otherwise wait for room forever.
    if (takers_left_.fetch_sub(1) == 1) random() % 2 == 0 ? requests.abandon() : requests.close();
  }
  void take_by_feeds(ps::batcher<request>& requests, const ps::cpu_device& device,
                     std::uint64_t& left, std::mt19937_64& random) {
    while (left != 0 && !requests.at_end()) {
      const auto stream = how_.on_stream ? std::optional{device.make_stream()} : std::nullopt;
      {
        std::vector<std::jthread> own;  // the leases of these threads must end before the stream
        const auto loop = [&](auto feed) {
          std::uint64_t of_this = 1 + random() % 8;
          for (auto& batch : feed.epoch(0)) {
            if (how_.on_stream) batch.stream().synchronize();
            serve(std::move(batch), random, own);
            if (--left == 0 || --of_this == 0) break;
          }
        };
        if (how_.on_stream) {
          loop(ps::transfer{requests, *stream, how_.transfer});
        } else {
          loop(ps::transfer{requests, how_.transfer});
        }
      }
      wait_a_bit(random, 20);
    }
  }

  const clients_config& how_;
  std::stop_source stop_;
  std::uint64_t seed_;
  counts served_;
  counts returned_;
  counts rejected_;
  std::atomic<std::uint64_t> wrong_{0};
  std::atomic<std::uint64_t> takers_left_{0};
};

inline clients_config draw_clients(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t end) { return random() % end; };
  clients_config how;
  how.clients = 1 + below(4);
  how.requests = below(60);
  how.takers = 1 + below(3);
  how.by_feed = below(2) == 0;
  how.on_stream = below(2) == 0;
  how.throws_in = below(2) == 0 ? 0 : 1 + below(6);
  how.leaves_after = below(3) == 0 ? 1 + below(10) : 0;
  how.end = below(2) == 0 ? 0 : static_cast<int>(below(4));
  constexpr std::array fills{0, 20, 500};
  how.options = {.max_batch_size = 1 + below(9),
                 .fill = std::chrono::microseconds{fills.at(below(3))},
                 .spin = std::chrono::microseconds{below(3) == 0 ? 30 : 0},
                 .depth = 1 + below(5)};
  how.options.reserved_slots = below(2) == 0 ? 0 : below(how.options.depth);
  if (const std::size_t max = how.options.max_batch_size; below(2) == 0) {
    how.options.allowed_batch_sizes = {max};
    if (max > 2) how.options.allowed_batch_sizes = {1 + below(max - 1), max};
  }
  how.transfer = {.depth = 1 + below(4), .on_slots_exhausted = ps::exhausted_action::wait};
  if (below(4) == 0) how.transfer.depth = ps::automatic;
  return how;
}

inline std::string describe(const clients_config& how) {
  return std::to_string(how.clients) + " clients of " + std::to_string(how.requests) +
         " requests, " + std::to_string(how.takers) + (how.by_feed ? " feeds" : " takers") +
         (how.on_stream ? " on streams" : "") + ", throws_in " + std::to_string(how.throws_in) +
         ", leaves_after " + std::to_string(how.leaves_after) + ", end " + std::to_string(how.end) +
         ", max_batch_size " + std::to_string(how.options.max_batch_size) + ", depth " +
         std::to_string(how.options.depth) + ", reserved_slots " +
         std::to_string(how.options.reserved_slots) + ", sizes " +
         std::to_string(how.options.allowed_batch_sizes.size()) + ", fill " +
         std::to_string(how.options.fill.count()) + " ns";
}

}  // namespace soak
