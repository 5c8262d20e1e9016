// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <penstock/core/batch_info.hpp>
#include <penstock/core/checked.hpp>
#include <penstock/core/layout.hpp>
#include <penstock/device/cpu_device.hpp>

#if PENSTOCK_CHECKED
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/record.hpp>

#if defined(__SANITIZE_THREAD__)  // GCC
#define PENSTOCK_THREAD_SANITIZER
#elif defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define PENSTOCK_THREAD_SANITIZER
#endif
#endif
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// Of slots that stay where they are: a GPU's, and all of an unchecked build. The names of
/// `fresh_addresses`, without anything in them.
struct fixed_addresses {
  struct left_place {
    constexpr void close() const noexcept {}
  };
  [[nodiscard]] constexpr bool take(std::size_t, std::size_t, bool) const noexcept { return false; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return false; }
  [[nodiscard]] constexpr bool is_locked() const noexcept { return false; }
  [[nodiscard]] constexpr std::byte* data(std::size_t) const noexcept { return nullptr; }
  template <record_type Record>
  constexpr void name_fields(const batch_layout<Record>&) const noexcept {}
  constexpr void name_fields_as(const fixed_addresses&) const noexcept {}
  constexpr void name_batch(std::size_t, const batch_info&) const noexcept {}
  constexpr void renew(std::size_t) const noexcept {}

  struct one {
    constexpr one() = default;
    constexpr one(const fixed_addresses&, std::size_t) noexcept {}
    constexpr void name_batch(const batch_info&) const noexcept {}
    [[nodiscard]] constexpr left_place move(std::byte*&) const noexcept { return {}; }
  };
};

#if PENSTOCK_CHECKED

/// A stretch of addresses, cut into places of one size, which the slots of a ring use one after
/// another: one batch a place. Only places that are open take memory and may be touched; one that
/// is closed again is open anew after all others. Never freed, so that a signal handler may look
/// at it: the addresses and the names stay.
class address_lane {
 public:
  /// What lay at an address.
  struct finding {
    std::uint64_t epoch;
    std::uint64_t batch;
    const name* field;  // null: not known
  };

  /// `count` places of `stride` bytes, whole pages; null where the system has no such stretch.
  /// Throws `std::bad_alloc`.
  [[nodiscard]] static std::unique_ptr<address_lane> reserve(std::size_t stride,
                                                             std::size_t count) {
    auto places = std::make_unique<place[]>(count);
    void* const begin = ::mmap(nullptr, stride * count, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return nullptr;
    return std::unique_ptr<address_lane>{
        new address_lane{static_cast<std::byte*>(begin), stride, count, std::move(places)}};
  }
  address_lane(address_lane&&) = delete;
  /// Only of one that nobody knows yet.
  ~address_lane() { ::munmap(begin_, stride_ * count_); }

  /// The bytes of a place.
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }

  /// Opens the next place, whose memory is zero; null where the system refuses. From any threads;
  /// fewer than half of the places may be open.
  [[nodiscard]] std::byte* open() noexcept {
    for (;;) {
      const std::size_t next = next_.fetch_add(1, std::memory_order_relaxed) % count_;
      place& to = places_[next];
      if (to.is_open.exchange(true, std::memory_order_acquire)) continue;
      to.is_named.store(false, std::memory_order_relaxed);
      std::byte* const data = begin_ + next * stride_;
      if (::mprotect(data, stride_, PROT_READ | PROT_WRITE) == 0) return data;
      to.is_open.store(false, std::memory_order_release);
      return nullptr;
    }
  }

  /// Closes the place at `data`, and frees its memory: touching it faults. Neighbours that are
  /// closed are one mapping, so that their number counts for nothing.
  void close(std::byte* data) noexcept {
    [[maybe_unused]] const void* const closed = ::mmap(
        data, stride_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    of(data).is_open.store(false, std::memory_order_release);
  }

  /// A lease of this batch begins, which lies at `data`.
  void name_batch(const std::byte* data, const batch_info& batch) noexcept {
    place& at = of(data);
    at.epoch.store(batch.epoch, std::memory_order_relaxed);
    at.batch.store(batch.batch, std::memory_order_relaxed);
    at.is_named.store(true, std::memory_order_release);
  }

  /// The batches are laid out like this. Before there is one; may throw `std::bad_alloc`.
  template <record_type Record>
  void name_fields(const batch_layout<Record>& layout) {
    [&]<std::size_t... Is>(std::index_sequence<Is...>) {
      (name_field<Is>(layout), ...);
    }(std::make_index_sequence<Record::size>{});
  }

  /// They are laid out as those of `other`, which knows its fields. Before there is one; may throw
  /// `std::bad_alloc`.
  void name_fields_as(const address_lane& other) { fields_ = other.fields_; }

  /// Which batch lay at `address`, and is over. Safe in a signal handler.
  [[nodiscard]] std::optional<finding> find(const std::byte* address) const noexcept {
    // As numbers: the address may be any.
    const auto offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(begin_);
    if (offset >= stride_ * count_) return std::nullopt;
    const place& at = places_[offset / stride_];
    if (!at.is_named.load(std::memory_order_acquire)) return std::nullopt;
    finding found{at.epoch.load(std::memory_order_relaxed),
                  at.batch.load(std::memory_order_relaxed), nullptr};
    std::size_t nearest = 0;
    for (const auto& [begin, key] : fields_) {
      if (begin > offset % stride_ || begin < nearest) continue;
      nearest = begin;
      found.field = key;
    }
    return found;
  }

 private:
  struct place {
    // Invariant: the thread that has set it opens, uses and closes the place.
    std::atomic<bool> is_open{false};
    std::atomic<bool> is_named{false};  // the next two are of a batch that lies there, or lay
    std::atomic<std::uint64_t> epoch{0};
    std::atomic<std::uint64_t> batch{0};
  };

  address_lane(std::byte* begin, std::size_t stride, std::size_t count,
               std::unique_ptr<place[]> places) noexcept
      : begin_(begin), stride_(stride), count_(count), places_(std::move(places)) {}

  [[nodiscard]] place& of(const std::byte* data) const noexcept {
    return places_[static_cast<std::size_t>(data - begin_) / stride_];
  }

  template <std::size_t Index, record_type Record>
  void name_field(const batch_layout<Record>& layout) {
    using field = typename Record::template field_at<Index>;
    fields_.emplace_back(layout.template offset<Index>(), &field::key);
    if constexpr (field::is_ragged) {
      fields_.emplace_back(layout.template offsets_at<Index>(), &field::key);
    }
  }

  std::byte* begin_;
  std::size_t stride_;
  std::size_t count_;
  std::unique_ptr<place[]> places_;
  std::vector<std::pair<std::size_t, const name*>> fields_;  // where each begins in a place
  std::atomic<std::size_t> next_{0};
};

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
    const char* const end = std::to_chars(digits.begin(), digits.end(), number).ptr;
    return *this << std::string_view{digits.data(), static_cast<std::size_t>(end - digits.data())};
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
    const std::size_t place = count_.fetch_add(1, std::memory_order_relaxed);
    if (place >= most) return false;
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

/// In a checked build, the memory of a CPU device's slots: each batch lies at addresses of its own,
/// so that one that was kept beyond the batch's lease faults, and `stale_addresses` names the
/// batch. Each slot takes whole pages. One thread at a time has to do with a slot.
class fresh_addresses {
 public:
  /// Where a slot lay.
  struct left_place {
    address_lane* lane;
    std::byte* data;  // null: the slot has stayed
    /// Nothing uses it any more: its memory is freed, and touching it faults.
    void close() const noexcept {
      if (data != nullptr) lane->close(data);
    }
  };

  fresh_addresses() = default;
  fresh_addresses(fresh_addresses&& other) noexcept = default;
  fresh_addresses& operator=(fresh_addresses&&) = delete;
  ~fresh_addresses() { close_all(); }

  /// Takes `bytes` bytes of zeros as slots of `slot_bytes`, locked into RAM if asked for and the
  /// process may. False where there are no slots, or the system refuses: then memory is to be taken
  /// as in an unchecked build. May throw `std::bad_alloc`.
  [[nodiscard]] bool take(std::size_t bytes, std::size_t slot_bytes, bool locks) {
    if (is_thread_sanitized || slot_bytes == 0 || bytes > most_bytes) return false;
    const std::size_t count = bytes / slot_bytes;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t stride = (slot_bytes + page - 1) / page * page;
    slots_.reserve(count);
    auto lane = address_lane::reserve(
        stride, (std::max)(8 * count, (std::min)(most_places, lane_bytes / stride)));
    if (lane == nullptr || !stale_addresses::all().add(lane.get())) return refuse();
    lane_ = lane.release();  // known from now on
    is_locked_ = locks;
    while (slots_.size() < count) {
      std::byte* const data = lane_->open();
      if (data == nullptr) return refuse();
      slots_.push_back(data);
      std::memset(data, 0, stride);  // so that no page fault falls into the loop's first batches
      is_locked_ = is_locked_ && ::mlock(data, stride) == 0;
    }
    return true;
  }

  /// Whether the slots are here.
  [[nodiscard]] explicit operator bool() const noexcept { return !slots_.empty(); }
  /// Whether they are locked into RAM.
  [[nodiscard]] bool is_locked() const noexcept { return is_locked_; }
  /// Where a slot lies now.
  [[nodiscard]] std::byte* data(std::size_t slot) const noexcept { return slots_[slot]; }

  /// The batches are laid out like this. May throw `std::bad_alloc`.
  template <record_type Record>
  void name_fields(const batch_layout<Record>& layout) {
    if (*this) lane_->name_fields(layout);
  }
  /// They are laid out as those of `other`. May throw `std::bad_alloc`.
  void name_fields_as(const fresh_addresses& other) {
    if (*this && other) lane_->name_fields_as(*other.lane_);
  }
  /// A lease of this batch begins, in `slot`.
  void name_batch(std::size_t slot, const batch_info& batch) noexcept {
    if (*this) lane_->name_batch(slots_[slot], batch);
  }

  /// Moves a slot that nothing uses, without its contents. It never takes more memory than before.
  void renew(std::size_t slot) noexcept {
    if (!*this) return;
    move(slot).close();
    // Within the limit, which has just got as much back.
    if (is_locked_) ::mlock(slots_[slot], lane_->stride());
  }

  /// One of the slots, for those whose `fresh_addresses` stay where they are.
  class one {
   public:
    one() = default;
    one(fresh_addresses& of, std::size_t slot) noexcept : of_(&of), slot_(slot) {}
    /// As the function of that name.
    void name_batch(const batch_info& batch) const noexcept { of_->name_batch(slot_, batch); }
    /// Moves the slot, without its contents, and writes down where it lies then. Where it lay is to
    /// be closed when nothing uses that any more.
    [[nodiscard]] left_place move(std::byte*& data) const noexcept {
      if (!*of_) return {nullptr, nullptr};
      const left_place left = of_->move(slot_);
      data = of_->slots_[slot_];
      return left;
    }

   private:
    fresh_addresses* of_ = nullptr;
    std::size_t slot_ = 0;
  };

 private:
#if defined(PENSTOCK_THREAD_SANITIZER)
  static constexpr bool is_thread_sanitized = true;  // it has memory for each address ever used
#else
  static constexpr bool is_thread_sanitized = false;
#endif
  // An address comes again after so many batches of its ring, or as many as lie in so many bytes.
  static constexpr std::size_t most_places = 4096;
  static constexpr std::size_t lane_bytes = std::size_t{4} << 30;
  static constexpr std::size_t most_bytes = std::size_t{1} << 40;

  /// Where the system refuses the slot stays, and its addresses serve one more batch.
  left_place move(std::size_t slot) noexcept {
    std::byte* const next = lane_->open();
    return {lane_, next != nullptr ? std::exchange(slots_[slot], next) : nullptr};
  }
  bool refuse() noexcept {
    close_all();
    std::fprintf(stderr,
                 "penstock, checked build: the system has no addresses for batches to have their "
                 "own: an address that is kept beyond its lease is not reported\n");
    return false;
  }
  void close_all() noexcept {
    for (std::byte* const data : slots_) lane_->close(data);
    slots_.clear();
  }

  address_lane* lane_ = nullptr;   // never freed
  std::vector<std::byte*> slots_;  // where each lies
  bool is_locked_ = false;
};

/// The addresses of slots in the memory of `Device`.
template <class Device>
using slot_addresses =
    std::conditional_t<std::same_as<Device, cpu_device>, fresh_addresses, fixed_addresses>;

#else

template <class>
using slot_addresses = fixed_addresses;

#endif

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
