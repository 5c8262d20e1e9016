// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <penstock/core/version.hpp>

#if PENSTOCK_CHECKED

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <penstock/memory/detail/address_lane.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Text that is put together in a signal handler: without memory, locks and streams.
class signal_text {
 public:
  signal_text& operator<<(std::string_view part) noexcept {
    const std::size_t fits = (std::min)(part.size(), text_.size() - used_);
    std::memcpy(text_.data() + used_, part.data(), fits);
    used_ += fits;
    return *this;
  }
  signal_text& operator<<(std::uint64_t number) noexcept {
    std::array<char, 20> digits;
    std::size_t first = digits.size();
    do {
      digits[--first] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << std::string_view{digits.data() + first, digits.size() - first};
  }
  signal_text& operator<<(char one) noexcept { return *this << std::string_view{&one, 1}; }
  void write_to(int file) const noexcept {
    [[maybe_unused]] const auto written = ::write(file, text_.data(), used_);
  }

 private:
  std::array<char, 512> text_;
  std::size_t used_ = 0;
};

/// All lanes of the process, and the handler of SIGSEGV that knows them: it names the batch of an
/// address that is over, and ends the program. What it does not know goes on to the handler that
/// was there before.
class stale_addresses {
 public:
  /// How many lanes may be known, those of memory that has gone among them.
  static constexpr std::size_t most = 1024;

  /// One for all shared libraries of the program, as `this_thread`. Never destroyed.
  [[nodiscard, gnu::visibility("default")]] static stale_addresses& all() noexcept {
    static stale_addresses known;
    return known;
  }

  /// Knows this lane from now on, which is never freed; false where there are too many. Where
  /// `PENSTOCK_CHECKED` is 2 the first one installs the handler: a library must not take a signal
  /// of the process unasked.
  [[nodiscard]] bool add(const address_lane* lane) noexcept {
    if constexpr (PENSTOCK_CHECKED > 1) {
      [[maybe_unused]] static const bool installed = install();
    }
    std::size_t place = count_.load(std::memory_order_relaxed);
    do {
      if (place == most) return false;
    } while (!count_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed));
    lanes_[place].store(lane, std::memory_order_release);
    return true;
  }

 private:
  constexpr stale_addresses() noexcept = default;

  static bool install() noexcept {
    struct ::sigaction ours {};
    ours.sa_sigaction = [](int signal, ::siginfo_t* info, void* context) noexcept {
      if (info->si_code == SEGV_ACCERR) all().report(static_cast<std::byte*>(info->si_addr));
      all().pass_on(signal, info, context);
    };
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    // Read first: a handler that runs at once has to know where to pass on to.
    return ::sigaction(SIGSEGV, nullptr, &all().before_) == 0 &&
           ::sigaction(SIGSEGV, &ours, nullptr) == 0;
  }

  /// Ends the program if a batch lay at `address`.
  void report(const std::byte* address) const noexcept {
    for (const auto& known : lanes_) {
      const address_lane* const lane = known.load(std::memory_order_acquire);
      if (lane == nullptr) continue;
      const auto found = lane->find(address);
      if (!found) continue;
      signal_text line;
      line << "penstock, checked build: batch " << found->batch << " of epoch " << found->epoch
           << ": an address that was taken from a view was used after its lease had ended";
      if (found->field != nullptr) {
        line << " (field \"";
        for (std::size_t i = 0; i < found->field->size(); ++i) line << (*found->field)[i];
        line << "\")";
      }
      line << ". Keep the lease as long as the address is used (move it out of the loop, share it, "
              "or let a tensor own it), or copy the data out\n";
      line.write_to(STDERR_FILENO);
      std::abort();
    }
  }

  void pass_on(int signal, ::siginfo_t* info, void* context) const noexcept {
    if ((before_.sa_flags & SA_SIGINFO) != 0) return before_.sa_sigaction(signal, info, context);
    const bool is_sent = info->si_code <= 0;  // by kill(): no instruction faults again
    if (before_.sa_handler == SIG_IGN && is_sent) return;
    if (before_.sa_handler != SIG_IGN && before_.sa_handler != SIG_DFL) {
      return before_.sa_handler(signal);
    }
    ::signal(SIGSEGV, SIG_DFL);
    if (is_sent) ::raise(signal);
  }

  // Invariant: a lane that is stored is complete, and stays.
  std::array<std::atomic<const address_lane*>, most> lanes_{};
  std::atomic<std::size_t> count_{0};
  struct ::sigaction before_ {};
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock

#endif
