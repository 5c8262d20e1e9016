// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <linux/io_uring.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace test {

/// The scripted behavior of a fake io_uring, and its observations.
struct ring_script {
  int set_up = 0;                           ///< setup fails if negative
  bool has_single_map = true;               ///< true simulates kernel 5.4 or newer
  bool maps = true;                         ///< false makes mapping the ring memory fail
  std::function<int(unsigned)> enter = {};  ///< returns the result of call k if negative
  std::function<int(unsigned)> read = {};   ///< returns the result of read k if negative
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();  ///< maximum bytes per read
  unsigned max_taken = ~0U;  ///< maximum submissions per call

  unsigned entered = 0;               ///< number of `enter` calls
  unsigned reads = 0;                 ///< number of completed reads
  std::vector<std::uint64_t> places;  ///< destination addresses of completed reads
  unsigned max_under_way = 0;
  unsigned under_way = 0;      ///< reads in flight, in all rings
  unsigned open = 0;           ///< number of open rings
  unsigned made = 0;           ///< number of rings ever created
  bool lost_a_result = false;  ///< true if the completion queue overflowed
  bool left_queued = false;    ///< true if a ring was destroyed with pending submissions
};

/// A fake io_uring that makes no system calls. The ring completes submissions late and in reverse
/// order, as its script specifies. Any thread may call it.
class scripted_ring {
 public:
  explicit scripted_ring(std::shared_ptr<ring_script> script) : script_(std::move(script)) {}

  int set_up(unsigned entries, ::io_uring_params& params) {
    const std::lock_guard lock{shared_->mutex};
    if (script_->set_up < 0) return script_->set_up;
    unsigned rounded = 1;
    while (rounded < entries) rounded *= 2;
    auto made = std::make_unique<ring>();
    made->entries = rounded;
    made->words.resize(8 + rounded + 2 * rounded * sizeof(::io_uring_cqe) / sizeof(unsigned) + 8);
    made->submissions.resize(rounded);
    const auto at = [](unsigned word) { return static_cast<unsigned>(word * sizeof(unsigned)); };
    params.sq_entries = rounded;
    params.cq_entries = 2 * rounded;
    params.features = script_->has_single_map ? IORING_FEAT_SINGLE_MMAP : 0;
    params.sq_off = {};
    params.sq_off.head = at(0);
    params.sq_off.tail = at(1);
    params.sq_off.ring_mask = at(2);
    params.sq_off.array = at(6);
    params.cq_off = {};
    params.cq_off.head = at(3);
    params.cq_off.tail = at(4);
    params.cq_off.ring_mask = at(5);
    made->first_result = (6 + rounded + 3) / 4 * 4;
    params.cq_off.cqes = at(made->first_result);
    made->words[2] = rounded - 1;
    made->words[5] = 2 * rounded - 1;
    const int number = shared_->next++;
    shared_->rings[number] = std::move(made);
    ++script_->open;
    ++script_->made;
    return number;
  }

  int enter(int number, unsigned queued, unsigned min) {
    const std::lock_guard lock{shared_->mutex};
    ring& one = *shared_->rings.at(number);
    const unsigned call = script_->entered++;
    if (script_->enter) {
      const int result = script_->enter(call);
      if (result < 0) return result;
    }
    unsigned taken = 0;
    while (taken < (std::min)(queued, script_->max_taken) && one.words[0] != one.words[1]) {
      const unsigned at = one.words[6 + (one.words[0] & one.words[2])];
      one.under_way.push_back(one.submissions[at]);
      one.submissions[at] = {};  // the caller may now overwrite the entry
      ++one.words[0];
      ++taken;
      ++script_->under_way;
    }
    script_->max_under_way = (std::max)(script_->max_under_way, script_->under_way);
    while (min > one.words[4] - one.words[3] && !one.under_way.empty()) end_one(one);
    return static_cast<int>(taken);
  }

  void* map(int number, std::size_t, std::uint64_t offset) {
    const std::lock_guard lock{shared_->mutex};
    if (!script_->maps) return nullptr;
    ring& one = *shared_->rings.at(number);
    return offset == IORING_OFF_SQES ? static_cast<void*>(one.submissions.data())
                                     : static_cast<void*>(one.words.data());
  }
  void unmap(void*, std::size_t) {}
  void wait(int number) {
    const std::lock_guard lock{shared_->mutex};
    ring& one = *shared_->rings.at(number);
    if (!one.under_way.empty()) end_one(one);
  }
  void close(int number) {
    const std::lock_guard lock{shared_->mutex};
    const ring& one = *shared_->rings.at(number);
    if (one.words[0] != one.words[1]) script_->left_queued = true;
    shared_->rings.erase(number);
    --script_->open;
  }

 private:
  struct ring {
    unsigned entries = 0;
    unsigned first_result = 0;
    // Submission queue (head, tail, mask), completion queue (same), and both rings.
    std::vector<unsigned> words;
    std::vector<::io_uring_sqe> submissions;
    std::vector<::io_uring_sqe> under_way;
  };
  struct rings {
    std::mutex mutex;
    std::map<int, std::unique_ptr<ring>> rings;
    int next = 1'000'000;
  };

  void end_one(ring& one) {
    const ::io_uring_sqe entry = one.under_way.back();
    one.under_way.pop_back();
    --script_->under_way;
    int result = script_->read ? script_->read(script_->reads) : 0;
    ++script_->reads;
    script_->places.push_back(entry.addr);
    if (result == 0) {
      const std::size_t bytes = std::min<std::size_t>(entry.len, script_->max_bytes);
      const auto count = ::pread(entry.fd, reinterpret_cast<void*>(entry.addr), bytes,
                                 static_cast<off_t>(entry.off));
      result = count < 0 ? -errno : static_cast<int>(count);
    }
    if (one.words[4] - one.words[3] >= 2 * one.entries) script_->lost_a_result = true;
    const unsigned at = one.words[4] & one.words[5];
    constexpr std::size_t words = sizeof(::io_uring_cqe) / sizeof(unsigned);
    unsigned* const place = one.words.data() + one.first_result + at * words;
    std::memcpy(place, &entry.user_data, sizeof entry.user_data);
    std::memcpy(place + 2, &result, sizeof result);
    ++one.words[4];
  }

  std::shared_ptr<ring_script> script_;
  std::shared_ptr<rings> shared_ = std::make_shared<rings>();
};

}  // namespace test
