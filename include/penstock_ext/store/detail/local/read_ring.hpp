// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <linux/io_uring.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/detail/local/file_read.hpp>
#include <penstock_ext/store/detail/local/ring_calls.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An io_uring (Axboe, 2019) that reads files: many reads are under way while its thread waits for
/// the next one to end. One thread at a time.
///
/// Two rings of numbers lie in memory that is shared with the kernel. This side moves the tail of
/// the submissions and the head of the results, and the kernel the other two. A release on the one
/// side and an acquire on the other order what lies between head and tail: entries are written
/// before the tail passes them, and read before the head does.
///
/// Invariant: never more reads are queued and under way than the submissions have places. The
/// results have at least as many, so none is ever dropped.
template <class Calls = ring_calls>
class read_ring {
 public:
  /// A ring for `depth` reads, up to a power of two. `problem()` says whether the system refuses.
  read_ring(unsigned depth, Calls calls) : calls_(std::move(calls)) {
    ::io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP;
    ring_ = calls_.set_up(depth, params);
    if (ring_ < 0) {
      problem_ = -ring_;
      return;
    }
    // Before 5.4 the two rings are mapped apart; there is no use in such an old one.
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) {
      problem_ = ENOSYS;
      return;
    }
    entries_ = params.sq_entries;
    rings_bytes_ =
        std::max<std::size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                              params.cq_off.cqes + params.cq_entries * sizeof(::io_uring_cqe));
    rings_ = calls_.map(ring_, rings_bytes_, IORING_OFF_SQ_RING);
    submissions_ = static_cast<::io_uring_sqe*>(
        calls_.map(ring_, entries_ * sizeof(::io_uring_sqe), IORING_OFF_SQES));
    if (rings_ == nullptr || submissions_ == nullptr) {
      problem_ = ENOMEM;
      return;
    }
    submitted_head_ = word(params.sq_off.head);
    submitted_tail_ = word(params.sq_off.tail);
    submitted_mask_ = *word(params.sq_off.ring_mask);
    submitted_ = word(params.sq_off.array);
    ended_head_ = word(params.cq_off.head);
    ended_tail_ = word(params.cq_off.tail);
    ended_mask_ = *word(params.cq_off.ring_mask);
    ended_ = reinterpret_cast<const ::io_uring_cqe*>(static_cast<const char*>(rings_) +
                                                     params.cq_off.cqes);
  }
  read_ring(const read_ring&) = delete;
  read_ring& operator=(const read_ring&) = delete;
  ~read_ring() {
    if (submissions_ != nullptr) calls_.unmap(submissions_, entries_ * sizeof(::io_uring_sqe));
    if (rings_ != nullptr) calls_.unmap(rings_, rings_bytes_);
    if (ring_ >= 0) calls_.close(ring_);
  }

  /// Why the system refuses it: its number; 0 where it does not.
  [[nodiscard]] int problem() const noexcept { return problem_; }
  /// Whether it was made by this process: a ring that came along by fork() is the parent's.
  [[nodiscard]] bool is_ours() const noexcept { return process_ == ::getpid(); }

  /// Reads all of `reads`, and returns when none is under way any more. Those that could not be
  /// read, for whatever reason, are not whole then, and may be tried otherwise.
  void read(std::span<file_read> reads) noexcept {
    std::size_t next = 0;
    while (true) {
      while (problem_ == 0 && next < reads.size() && queued_ + under_way_ < entries_) {
        if (!reads[next].is_whole()) queue(reads[next]);
        ++next;
      }
      const unsigned all = queued_ + under_way_;
      if (all == 0) return;
      // Woken for a quarter of them at a time, and once for the last ones.
      submit(next < reads.size() ? (std::max)(all / 4, 1U) : all);
      reap();
    }
  }

 private:
  using shared = std::atomic_ref<unsigned>;

  [[nodiscard]] unsigned* word(unsigned offset) const noexcept {
    return reinterpret_cast<unsigned*>(static_cast<char*>(rings_) + offset);
  }

  void queue(file_read& read) noexcept {
    // A result is an int; a read of more than that comes in parts.
    constexpr std::size_t most = std::size_t{1} << 30;
    // Only this side writes the tail.
    const unsigned tail = *submitted_tail_;
    const unsigned at = tail & submitted_mask_;
    ::io_uring_sqe& entry = submissions_[at];
    entry = {};
    entry.opcode = IORING_OP_READ;
    entry.fd = read.file;
    entry.off = read.offset + read.done;
    entry.addr = reinterpret_cast<std::uintptr_t>(read.out + read.done);
    entry.len = static_cast<unsigned>((std::min)(read.size - read.done, most));
    entry.user_data = reinterpret_cast<std::uintptr_t>(&read);
    submitted_[at] = at;
    shared{*submitted_tail_}.store(tail + 1, std::memory_order_release);
    ++queued_;
  }

  // Hands over what is queued, and waits for so many results.
  void submit(unsigned least) noexcept {
    const int entered = calls_.enter(ring_, queued_, least);
    if (entered >= 0) {
      const unsigned count = (std::min)(static_cast<unsigned>(entered), queued_);
      queued_ -= count;
      under_way_ += count;
      return;
    }
    if (entered == -EINTR) return;
    // EAGAIN and EBUSY: no memory for more at the moment. Else the ring is of no more use. What
    // has been handed over writes into the callers' memory, so its end has to be waited for.
    if (entered != -EAGAIN && entered != -EBUSY) problem_ = -entered;
    take_back();
    if (under_way_ > 0) calls_.wait(ring_);
  }

  // What the kernel has not taken is not queued any more: it looks at the tail in `enter` only.
  void take_back() noexcept {
    const unsigned head = shared{*submitted_head_}.load(std::memory_order_acquire);
    const unsigned taken = queued_ - (*submitted_tail_ - head);
    under_way_ += taken;
    queued_ = 0;
    shared{*submitted_tail_}.store(head, std::memory_order_release);
  }

  void reap() noexcept {
    unsigned head = *ended_head_;  // only this side writes it
    const unsigned tail = shared{*ended_tail_}.load(std::memory_order_acquire);
    while (head != tail) {
      const ::io_uring_cqe& result = ended_[head & ended_mask_];
      const auto handed_in = static_cast<std::uintptr_t>(result.user_data);
      auto& read = *reinterpret_cast<file_read*>(handed_in);  // NOLINT: as `queue` gave it
      const int count = result.res;
      ++head;
      shared{*ended_head_}.store(head, std::memory_order_release);
      --under_way_;
      // 0 is the end of the file; what an error means, the next engine finds out.
      if (count <= 0) continue;
      read.done += static_cast<std::size_t>(count);
      if (!read.is_whole() && problem_ == 0) queue(read);
    }
  }

  Calls calls_;
  int ring_ = -1;
  int problem_ = 0;
  ::pid_t process_ = ::getpid();
  unsigned entries_ = 0;
  unsigned queued_ = 0;     // written to the submissions, and not handed over
  unsigned under_way_ = 0;  // handed over, and without a result
  void* rings_ = nullptr;
  std::size_t rings_bytes_ = 0;
  ::io_uring_sqe* submissions_ = nullptr;
  unsigned* submitted_head_ = nullptr;
  unsigned* submitted_tail_ = nullptr;
  unsigned submitted_mask_ = 0;
  unsigned* submitted_ = nullptr;
  unsigned* ended_head_ = nullptr;
  unsigned* ended_tail_ = nullptr;
  unsigned ended_mask_ = 0;
  const ::io_uring_cqe* ended_ = nullptr;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
