// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/signals/support/signals_blocked.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/detail/root_folder.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// A file read from its request to its completion. The caller owns the descriptor and the memory.
struct file_read {
  int file = -1;
  std::uint64_t offset = 0;
  std::byte* out = nullptr;
  std::size_t size = 0;
  std::size_t enough = 0;  ///< Minimum number of bytes to read. The file may end after them.
  std::size_t done = 0;    ///< Number of bytes read so far.
  int error = 0;           ///< Errno value of a failure, or 0. At the end of the file, also 0.

  /// Returns true if all required bytes have been read.
  [[nodiscard]] bool is_whole() const noexcept { return done >= enough; }
};

/// Reads the remaining bytes of `read`. Blocks until they are read, unless the preadv2 `flags`
/// specify otherwise. If the file ends or an error occurs, `read` stays incomplete.
inline void read_rest(file_read& read, int flags = 0) noexcept {
  read.error = 0;
  while (!read.is_whole()) {
    const ::iovec to{read.out + read.done, read.size - read.done};
    const ssize_t count =
        ::preadv2(read.file, &to, 1, static_cast<off_t>(read.offset + read.done), flags);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) read.error = errno;
    if (count <= 0) return;
    read.done += static_cast<std::size_t>(count);
  }
}

/// Reads the leading bytes of `read` that are in the page cache, without blocking. On file systems
/// with RWF_NOWAIT, a single call checks and reads. On other file systems, reads nothing.
inline void read_cached(file_read& read) noexcept { read_rest(read, RWF_NOWAIT); }

/// System calls of io_uring, as used by `read_ring`. Tests replace them. A negative result is a
/// negated errno value.
struct ring_calls {
  /// Creates a ring and returns its descriptor.
  [[nodiscard]] int set_up(unsigned entries, ::io_uring_params& params) const noexcept {
    return result(::syscall(SYS_io_uring_setup, entries, &params));
  }
  /// Submits up to `queued` reads, and waits until `min` results are available. Returns the number
  /// of reads submitted.
  [[nodiscard]] int enter(int ring, unsigned queued, unsigned min) const noexcept {
    const unsigned flags = min > 0 ? IORING_ENTER_GETEVENTS : 0;
    return result(::syscall(SYS_io_uring_enter, ring, queued, min, flags, nullptr, 0));
  }
  /// Maps the shared memory of the ring at `offset`. Returns null on failure.
  [[nodiscard]] void* map(int ring, std::size_t bytes, std::uint64_t offset) const noexcept {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                            static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : at;
  }
  /// Unmaps memory that `map` returned.
  void unmap(void* at, std::size_t bytes) const noexcept { ::munmap(at, bytes); }
  /// Waits for a result. Used after `enter` has failed.
  void wait(int ring) const noexcept {
    ::pollfd one{ring, POLLIN, 0};
    static_cast<void>(::poll(&one, 1, -1));
  }
  /// Closes the ring.
  void close(int ring) const noexcept { ::close(ring); }

 private:
  [[nodiscard]] static int result(long value) noexcept {
    return value < 0 ? -errno : static_cast<int>(value);
  }
};

/// An open file of a `local_store`.
struct open_file_pair {
  descriptor cached;  ///< descriptor for reads through the page cache
  /// Descriptor for reads that bypass the page cache; negative if disabled or unsupported.
  descriptor direct;
  file_stamp stamp;  ///< file state when the store first opened it

  /// Returns the file size in bytes.
  [[nodiscard]] std::uint64_t size() const noexcept { return stamp.size; }
};

/// The files of a `local_store`. A limited number of most recently used files stay open, and so do
/// files that a call is reading. Remembers each file ever opened, to detect a change when the file
/// is opened again. Each remembered file occupies 150 bytes plus its name. Thread-safe.
class open_files {
 public:
  using file = std::shared_ptr<const open_file_pair>;

  /// Opens files below `root` and keeps up to `max` files open. `max` must be at least 1.
  open_files(root_folder root, std::size_t max, bool direct)
      : root_(std::move(root)), max_(max), direct_(direct) {}
  open_files(open_files&&) = delete;

  /// Returns the root folder.
  [[nodiscard]] const root_folder& root() const noexcept { return root_; }
  /// Returns the number of times a file was opened.
  [[nodiscard]] std::uint64_t opened() const noexcept {
    return opened_.load(std::memory_order_relaxed);
  }
  /// Returns the number of times a file was opened on a file system without direct I/O.
  [[nodiscard]] std::uint64_t direct_io_fallbacks() const noexcept {
    return direct_io_fallbacks_.load(std::memory_order_relaxed);
  }

  /// Returns the file `name`, which stays open while the result exists. Throws the same errors as
  /// `root_folder::open`, and `file_changed` if the file has changed since it was first opened.
  [[nodiscard]] file open(std::string_view name) {
    {
      const std::lock_guard lock{mutex_};
      const auto known = entries_.find(name);
      if (known != entries_.end() && known->second.opened) return use(known->second);
    }
    // Opens the file without the lock, so that a slow file system does not block access to open
    // files.
    auto opened = std::make_shared<open_file_pair>(open_pair(name));
    std::list<entry*> place(1);  // allocated before any modification
    const std::lock_guard lock{mutex_};
    const auto [known, is_new] = entries_.try_emplace(std::string{name});
    entry& one = known->second;
    if (is_new) one.stamp = opened->stamp;
    if (one.stamp != opened->stamp) {
      reject(name, one.stamp, opened->stamp);
    }
    if (one.opened) return use(one);  // another thread opened the file first
    if (last_used_.size() >= max_) {
      last_used_.back()->opened.reset();
      last_used_.pop_back();
    }
    one.opened = std::move(opened);
    place.front() = &one;
    last_used_.splice(last_used_.begin(), place);
    one.place = last_used_.begin();
    return one.opened;
  }

  /// Throws `file_changed` if `one`, the file `name`, has changed since it was first opened.
  void require_unchanged(std::string_view name, const open_file_pair& one) const {
    const file_stamp now = stamp_of(name, one.cached);
    if (now != one.stamp) reject(name, one.stamp, now);
  }

 private:
  struct entry {
    file_stamp stamp = {};
    file opened = nullptr;                   // null if closed
    std::list<entry*>::iterator place = {};  // position in `last_used_` if the file is open
  };

  [[noreturn]] void reject(std::string_view name, const file_stamp& was,
                           const file_stamp& now) const {
    const bool is_same = now.device == was.device && now.inode == was.inode;
    throw file_changed(
        root_.path_of(name), 0, "the file as it was when the store first opened it",
        std::string{is_same ? "a file that was written to since" : "another file of this name"} +
            ": make a new store when all files are complete");
  }

  [[nodiscard]] file_stamp stamp_of(std::string_view name, const descriptor& of) const {
    struct ::stat status {};
    if (::fstat(of.get(), &status) != 0) {
      throw file_unreadable(root_.path_of(name), 0, "a readable file", system_reason());
    }
    return file_stamp_of(status);
  }

  [[nodiscard]] const file& use(entry& one) {
    last_used_.splice(last_used_.begin(), last_used_, one.place);
    return one.opened;
  }

  [[nodiscard]] open_file_pair open_pair(std::string_view name) {
    open_file_pair pair{root_.open(name), descriptor{-1}, {}};
    pair.stamp = stamp_of(name, pair.cached);
    // Relaxed ordering suffices here and below, because these are only counters.
    opened_.fetch_add(1, std::memory_order_relaxed);
    if (!direct_) return pair;
    // EINVAL means that the file system does not support direct I/O.
    pair.direct = root_.open(name, O_DIRECT, EINVAL);
    if (pair.direct.get() < 0) {
      direct_io_fallbacks_.fetch_add(1, std::memory_order_relaxed);
      return pair;
    }
    const file_stamp now = stamp_of(name, pair.direct);
    // The file was replaced between the two calls.
    if (now != pair.stamp) reject(name, pair.stamp, now);
    return pair;
  }

  const root_folder root_;
  const std::size_t max_;
  const bool direct_;
  std::atomic<std::uint64_t> opened_{0};
  std::atomic<std::uint64_t> direct_io_fallbacks_{0};
  std::mutex mutex_;  // guards the members below; held during no system call except close
  std::unordered_map<std::string, entry, name_hash, std::equal_to<>> entries_;
  std::list<entry*> last_used_;  // the open files, most recently used first
};

/// A pool of threads that read files together with the calling threads. The threads start when
/// first needed, with the program's signals blocked. Thread-safe, even in a child created by
/// fork(), which starts its own threads.
class read_threads {
 public:
  /// Uses up to `max` threads.
  explicit read_threads(std::size_t max) : max_(max) {}
  read_threads(read_threads&&) = delete;
  ~read_threads() {
    pool* const last = pool_.load(std::memory_order_acquire);
    if (last != nullptr && last->process == ::getpid()) delete last;
  }

  /// Reads all `reads`, and returns when the last read has finished. A failed read stays
  /// incomplete.
  void read(std::span<file_read> reads) {
    if (!reads.empty()) pool_of_process().read(reads, max_);
  }

 private:
  struct job {
    std::span<file_read> reads;
    std::size_t next = 0;
    std::size_t under_way = 0;
    std::condition_variable ended = {};
  };

  // Invariant while the mutex is not held: a job is in `jobs` as long as it has unclaimed reads. A
  // caller returns only after all its reads have finished. Therefore no thread can find a job whose
  // caller has returned.
  struct pool {
    const ::pid_t process = ::getpid();
    std::mutex mutex = {};  // guards the members below; not held during reads
    std::condition_variable wanted = {};
    std::vector<job*> jobs = {};
    std::vector<std::thread> threads = {};
    bool rejected = false;
    bool ends = false;

    ~pool() {
      {
        const std::lock_guard lock{mutex};
        ends = true;
      }
      wanted.notify_all();
      for (std::thread& one : threads) one.join();
    }

    void read(std::span<file_read> reads, std::size_t max) {
      std::unique_lock lock{mutex};
      start((std::min)(max, reads.size() - 1));
      job mine{reads};
      jobs.push_back(&mine);
      wanted.notify_all();
      while (mine.next < reads.size()) read_one(lock, mine);
      mine.ended.wait(lock, [&] { return mine.under_way == 0; });
    }

    void start(std::size_t count) {
      if (rejected || threads.size() >= count) return;
      const signals_blocked while_they_start;
      try {
        while (threads.size() < count) threads.emplace_back([this] { work(); });
      } catch (const std::system_error&) {
        rejected = true;  // the existing threads do all the work
      }
    }

    void read_one(std::unique_lock<std::mutex>& lock, job& from) {
      file_read& read = from.reads[from.next];
      ++from.next;
      ++from.under_way;
      if (from.next == from.reads.size()) std::erase(jobs, &from);
      lock.unlock();
      read_rest(read);
      lock.lock();
      --from.under_way;
      // Notifies under the lock, because the caller may return and destroy the job as soon as it
      // has the lock.
      if (from.under_way == 0 && from.next == from.reads.size()) from.ended.notify_all();
    }

    void work() {
      std::unique_lock lock{mutex};
      while (true) {
        wanted.wait(lock, [&] { return ends || !jobs.empty(); });
        if (ends) return;
        read_one(lock, *jobs.front());
      }
    }
  };

  // After fork(), the parent's pool has no threads in this process, and its mutex may be locked
  // forever. The child therefore abandons the pool and leaks its memory.
  pool& pool_of_process() {
    pool* found = pool_.load(std::memory_order_acquire);
    if (found != nullptr && found->process == ::getpid()) return *found;
    auto made = std::make_unique<pool>();
    if (!pool_.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
      return *found;  // another thread of this process was first
    }
    return *made.release();
  }

  const std::size_t max_;
  // Invariant: null, the pool of this process, or the pool of a parent process. The pool of this
  // process exists until the destructor. A parent's pool is replaced on the next use.
  std::atomic<pool*> pool_{nullptr};
};

/// An io_uring (Axboe, 2019) for file reads. Many reads are in flight while one thread waits for
/// the next result. Not thread-safe.
///
/// The submission ring and the result ring are in memory shared with the kernel. User space
/// advances the submission tail and the result head, and the kernel advances the other two indices.
/// Each index is stored with release and loaded with acquire by the other side. Therefore an entry
/// is written before the tail passes it, and read before the head passes it.
///
/// Invariant: the number of reads queued and in flight never exceeds the size of the submission
/// ring. The result ring is at least as large, so no result is dropped.
template <class Calls = ring_calls>
class read_ring {
 public:
  /// Creates a ring for `depth` reads, rounded up to a power of two. If the kernel does not support
  /// or permit io_uring, `problem()` returns the reason.
  read_ring(unsigned depth, Calls calls) : calls_(std::move(calls)) {
    ::io_uring_params params{};
    params.flags = IORING_SETUP_CLAMP;
    ring_ = calls_.set_up(depth, params);
    if (ring_ < 0) {
      problem_ = -ring_;
      return;
    }
    // Before Linux 5.4, the two rings are mapped separately, which this class does not support.
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
    const auto shared_words = [this](const auto& offsets) {
      return ring_words{word(offsets.head), word(offsets.tail), *word(offsets.ring_mask)};
    };
    submitted_ = shared_words(params.sq_off);
    submitted_places_ = word(params.sq_off.array);
    ended_ = shared_words(params.cq_off);
    results_ = reinterpret_cast<const ::io_uring_cqe*>(static_cast<const char*>(rings_) +
                                                       params.cq_off.cqes);
  }
  read_ring(read_ring&&) = delete;
  ~read_ring() {
    if (submissions_ != nullptr) calls_.unmap(submissions_, entries_ * sizeof(::io_uring_sqe));
    if (rings_ != nullptr) calls_.unmap(rings_, rings_bytes_);
    if (ring_ >= 0) calls_.close(ring_);
  }

  /// Returns the errno value if the ring is unusable, otherwise 0.
  [[nodiscard]] int problem() const noexcept { return problem_; }
  /// Returns true if this process created the ring. After fork(), the ring belongs to the parent.
  [[nodiscard]] bool is_ours() const noexcept { return process_ == ::getpid(); }

  /// Reads all `reads`, and returns when the last read has finished. A failed read stays
  /// incomplete, and the caller may retry it in another way.
  void read(std::span<file_read> reads) noexcept {
    std::size_t next = 0;
    while (true) {
      while (problem_ == 0 && next < reads.size() && queued_ + under_way_ < entries_) {
        if (!reads[next].is_whole()) queue(reads[next]);
        ++next;
      }
      const unsigned all = queued_ + under_way_;
      if (all == 0) return;
      // Wakes up when a quarter of the reads is complete, and once for the last reads.
      submit(next < reads.size() ? (std::max)(all / 4, 1U) : all);
      reap();
    }
  }

 private:
  using shared = std::atomic_ref<unsigned>;

  // Head and tail of a ring, in shared memory.
  struct ring_words {
    unsigned* head = nullptr;
    unsigned* tail = nullptr;
    unsigned mask = 0;
  };

  [[nodiscard]] unsigned* word(unsigned offset) const noexcept {
    return reinterpret_cast<unsigned*>(static_cast<char*>(rings_) + offset);
  }

  void queue(file_read& read) noexcept {
    // A result is an int, so longer reads are split.
    constexpr std::size_t max = std::size_t{1} << 30;
    // Only this thread writes the tail.
    const unsigned tail = *submitted_.tail;
    const unsigned at = tail & submitted_.mask;
    ::io_uring_sqe& entry = submissions_[at];
    entry = {};
    entry.opcode = IORING_OP_READ;
    entry.fd = read.file;
    entry.off = read.offset + read.done;
    entry.addr = reinterpret_cast<std::uintptr_t>(read.out + read.done);
    entry.len = static_cast<unsigned>((std::min)(read.size - read.done, max));
    entry.user_data = reinterpret_cast<std::uintptr_t>(&read);
    submitted_places_[at] = at;
    shared{*submitted_.tail}.store(tail + 1, std::memory_order_release);
    ++queued_;
  }

  // Submits the queued reads and waits for `min` results.
  void submit(unsigned min) noexcept {
    const int entered = calls_.enter(ring_, queued_, min);
    if (entered >= 0) {
      const unsigned count = (std::min)(static_cast<unsigned>(entered), queued_);
      queued_ -= count;
      under_way_ += count;
      return;
    }
    if (entered == -EINTR) return;
    // EAGAIN and EBUSY mean that the kernel temporarily has no memory for more reads. After any
    // other error, the ring is unusable. Submitted reads may still write to the callers' memory, so
    // the ring must wait for them.
    if (entered != -EAGAIN && entered != -EBUSY) problem_ = -entered;
    take_back();
    if (under_way_ > 0) calls_.wait(ring_);
  }

  // Removes the reads from the queue that the kernel has not consumed. The kernel reads the tail
  // only in `enter`, so this is safe.
  void take_back() noexcept {
    const unsigned head = shared{*submitted_.head}.load(std::memory_order_acquire);
    const unsigned taken = queued_ - (*submitted_.tail - head);
    under_way_ += taken;
    queued_ = 0;
    shared{*submitted_.tail}.store(head, std::memory_order_release);
  }

  void reap() noexcept {
    unsigned head = *ended_.head;  // only this thread writes the head
    const unsigned tail = shared{*ended_.tail}.load(std::memory_order_acquire);
    while (head != tail) {
      const ::io_uring_cqe& result = results_[head & ended_.mask];
      const auto handed_in = static_cast<std::uintptr_t>(result.user_data);
      auto& read = *reinterpret_cast<file_read*>(handed_in);  // NOLINT: as `queue` gave it
      const int count = result.res;
      ++head;
      shared{*ended_.head}.store(head, std::memory_order_release);
      --under_way_;
      // 0 means the end of the file. The next engine retries and reports the error.
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
  unsigned queued_ = 0;     // number of reads in the submission ring that were not submitted
  unsigned under_way_ = 0;  // number of submitted reads without a result
  void* rings_ = nullptr;
  std::size_t rings_bytes_ = 0;
  ::io_uring_sqe* submissions_ = nullptr;
  ring_words submitted_;
  unsigned* submitted_places_ = nullptr;  // entry indices, by ring position
  ring_words ended_;
  const ::io_uring_cqe* results_ = nullptr;
};

}  // namespace detail

/// Engines with which a `local_store` reads data that is not in the page cache.
enum class read_engine {
  best,     ///< `uring`, or `threads` if io_uring is not available
  uring,    ///< io_uring, with many reads in flight for the calling thread
  threads,  ///< threads of the store, each of which blocks on one read
  pread,    ///< the calling thread, one read after another
};

/// Options of a `local_store`.
struct local_store_options {
  /// Engine of `read_many` for data that is not in the page cache. `read` always reads on the
  /// calling thread.
  read_engine engine = read_engine::best;
  /// If true, bypasses the page cache (O_DIRECT). If the memory, offset or size of a read is not a
  /// multiple of 4,096 bytes, the store reads through an aligned staging buffer of 2 to 8 MiB for
  /// each call in flight. Intended for files that do not fit into memory and are read once in each
  /// epoch. On a file system without direct I/O, files are read through the page cache and counted
  /// in `stats().direct_io_fallbacks`.
  bool direct = false;
  /// Number of files that stay open, at least 1. With `direct`, each file uses two descriptors. A
  /// call in flight also keeps its files open, even if other files were used more recently.
  /// Therefore n threads keep up to (n + 1) times `max_open` files open.
  std::size_t max_open = 256;
  /// Number of reads that each call keeps in flight with io_uring, from 1 to 4,096.
  std::size_t depth = 64;
  /// Number of threads of the `threads` engine in addition to the calling thread, from 1 to 1,024.
  /// The threads start when a read first needs them. If the system cannot create all of them, the
  /// store uses fewer.
  std::size_t threads = 15;
};

/// Statistics of a `local_store`. Reads are counted in pieces of at most 1 MiB, split at file
/// offsets that are multiples of 1 MiB.
struct local_store_stats {
  std::uint64_t bytes = 0;            ///< Number of bytes delivered.
  std::uint64_t from_page_cache = 0;  ///< Number of pieces found in the page cache.
  std::uint64_t by_uring = 0;         ///< Number of pieces read by io_uring.
  std::uint64_t by_threads = 0;       ///< Number of pieces read by threads of the store.
  /// Number of pieces that the calling thread read or completed with pread.
  std::uint64_t by_pread = 0;
  std::uint64_t opened = 0;               ///< Number of times a file was opened.
  std::uint64_t direct_io_fallbacks = 0;  ///< Number of times a file was opened without direct I/O.
};

namespace detail {

/// A piece of a range, at most 1 MiB, that is read separately.
struct local_piece {
  const open_file_pair* from;
  std::size_t range;  ///< range index
  file_read read;     ///< read through the page cache
};

/// Reads pieces of files. Data in the page cache is copied immediately, and an engine reads the
/// remainder. If the engine leaves a piece incomplete for any reason, the calling thread reads it
/// with pread, whose result is final. Not thread-safe.
template <class Calls>
class piece_reader {
 public:
  /// Creates a reader with `engine`. If the ring is not available and `threads` is null, the reader
  /// uses pread.
  piece_reader(read_engine engine, unsigned depth, Calls calls, read_threads* threads)
      : depth_(depth), calls_(std::move(calls)), threads_(threads) {
    if (engine == read_engine::uring) ring_.emplace(depth_, calls_);
  }

  /// Returns the errno value if the ring is unusable, otherwise 0.
  [[nodiscard]] int ring_problem() const noexcept { return ring_ ? ring_->problem() : 0; }

  /// Reads `pieces`, and returns when the last read has finished. A piece stays incomplete after an
  /// error or if its file ends early. If `is_alone` is true, only the calling thread reads. Returns
  /// the piece counts by origin. The other counters are 0.
  [[nodiscard]] local_store_stats read(std::span<local_piece> pieces, bool is_alone) {
    local_store_stats counts;
    while (!pieces.empty()) pieces = pieces.subspan(read_some(pieces, is_alone, counts));
    return counts;
  }

 private:
  static constexpr std::size_t alignment = direct_memory::alignment;
  // Maximum size in bytes of the reader's staging memory for reads that bypass the page cache.
  static constexpr std::size_t max_room = std::size_t{8} << 20;

  // Reads the first pieces, as many as fit into the staging memory, and returns their number.
  std::size_t read_some(std::span<local_piece> pieces, bool is_alone, local_store_stats& counts) {
    cold_.clear();
    reads_.clear();
    std::size_t room = 0;
    std::size_t at = 0;
    for (; at < pieces.size(); ++at) {
      local_piece& piece = pieces[at];
      if (piece.from->direct.get() >= 0) {
        if (room > 0 && room + wide(piece.read).size > max_room) break;
        cold_.push_back(at);
        room += add_direct(piece);
        continue;
      }
      read_cached(piece.read);
      if (piece.read.is_whole()) {
        ++counts.from_page_cache;
        continue;
      }
      cold_.push_back(at);
      reads_.push_back(piece.read);
    }
    take_room(room);
    read_cold(is_alone, counts);
    for (std::size_t i = 0; i < cold_.size(); ++i) finish(pieces[cold_[i]], reads_[i], counts);
    return at;
  }

  // Extends a read to multiples of the alignment.
  static file_read wide(const file_read& read) noexcept {
    const std::size_t skipped = read.offset % alignment;
    const std::size_t size = (skipped + read.size + alignment - 1) / alignment * alignment;
    return {read.file, read.offset - skipped, nullptr, size, skipped + read.size};
  }

  // Adds a read of the piece that bypasses the page cache. Returns the size of the staging memory
  // that it needs in bytes, or 0 if it is read in place.
  std::size_t add_direct(const local_piece& piece) {
    file_read read = wide(piece.read);
    read.file = piece.from->direct.get();
    const bool is_aligned = read.offset == piece.read.offset && read.size == piece.read.size &&
                            reinterpret_cast<std::uintptr_t>(piece.read.out) % alignment == 0;
    if (is_aligned) read.out = piece.read.out;
    reads_.push_back(read);
    return is_aligned ? 0 : read.size;
  }

  void take_room(std::size_t bytes) {
    std::byte* place = room_.room_for(bytes);
    for (file_read& read : reads_) {
      if (read.out == nullptr) read.out = std::exchange(place, place + read.size);
    }
  }

  void read_cold(bool is_alone, local_store_stats& counts) {
    // A single read cannot overlap with other reads.
    const bool is_single = is_alone || reads_.size() < 2;
    if (!is_single && ring_) {
      if (!ring_->is_ours()) ring_.emplace(depth_, calls_);
      if (ring_->problem() == 0) {
        ring_->read(reads_);
        counts.by_uring += whole();
        return;
      }
    }
    if (!is_single && threads_ != nullptr) {
      threads_->read(reads_);
      counts.by_threads += whole();
    }
  }

  // Returns the number of complete pieces.
  [[nodiscard]] std::uint64_t whole() const noexcept {
    return static_cast<std::uint64_t>(std::ranges::count_if(reads_, &file_read::is_whole));
  }

  // Copies a piece from staging memory into place, and reads its remaining bytes.
  void finish(local_piece& piece, file_read& read, local_store_stats& counts) {
    const bool had_all = read.is_whole();
    if (!had_all && piece.from->direct.get() >= 0) read_rest(read);
    // Number of bytes in the aligned read before the start of the piece.
    const auto skipped = static_cast<std::size_t>(piece.read.offset - read.offset);
    const std::size_t got = read.done - (std::min)(read.done, skipped);
    piece.read.done = (std::min)(got, piece.read.size);
    if (read.out != piece.read.out && piece.read.done > 0) {
      std::memcpy(piece.read.out, read.out + skipped, piece.read.done);
    }
    if (had_all) return;
    ++counts.by_pread;
    // Reads through the page cache, because direct I/O cannot read an unaligned remainder.
    read_rest(piece.read);
  }

  unsigned depth_;
  Calls calls_;
  read_threads* threads_;
  std::optional<read_ring<Calls>> ring_;
  std::vector<std::size_t> cold_;  // indices of pieces that are not in the page cache
  // One read for each index in `cold_`; `out` is null before `take_room`.
  std::vector<file_read> reads_;
  direct_memory room_;
};

}  // namespace detail

/// A `batching_store` of the files below a folder. Object names are paths relative to the folder.
///
///     local_store disk{"/data/train", {.engine = read_engine::best}};
///     disk.read_many(ranges);          // concurrently
///
/// A name that leads outside the folder, through `..` or a link, causes `object_name_error`. Data
/// in the page cache is copied from there. Other data is read by io_uring if available, otherwise
/// by threads. `engine()` returns the engine in use, and `stats()` counts the pieces read by each
/// engine.
///
/// Files must not change after the store first opened them. If a file was modified, or was replaced
/// and is opened again, the store throws `file_changed`. Each file ever read occupies 150 bytes
/// plus its name. Movable, not copyable. Reading is thread-safe. Reading also works in a child
/// created by `fork()` if no other thread was reading at that time.
///
/// `Calls` makes the io_uring system calls and can be replaced in tests.
template <class Calls = detail::ring_calls>
class basic_local_store {
 public:
  /// Opens the folder `root`. Throws `file_unreadable` if the folder cannot be opened. Throws
  /// `option_error` if an option is out of range, or if `engine` is `uring` and io_uring is not
  /// available.
  explicit basic_local_store(std::string root, const local_store_options& options = {},
                             Calls calls = {})
      : state_(std::make_unique<state>(std::move(root), checked(options), std::move(calls))) {}

  /// Returns the size of the file `object` in bytes. Throws `object_name_error`, `file_unreadable`,
  /// `file_changed`.
  [[nodiscard]] std::uint64_t size_of(std::string_view object) const {
    return state_->files.open(object)->size();
  }

  /// Returns the size and version of `object` (see `versioned_store`). The version contains the
  /// inode and the modification time in nanoseconds. Throws the same errors as `size_of`.
  [[nodiscard]] object_state state_of(std::string_view object) const {
    const detail::file_stamp stamp = state_->files.open(object)->stamp;
    return {stamp.size, std::to_string(stamp.seconds) + '.' + std::to_string(stamp.nanoseconds) +
                            ' ' + std::to_string(stamp.inode)};
  }

  /// Reads one range on the calling thread. Throws the same errors as `read_many`.
  void read(const byte_range& range) const { state_->read({&range, 1}, true); }

  /// Reads all `ranges` concurrently. Throws the error of the first range that fails:
  /// `object_name_error`, `file_unreadable`, `file_changed`, or `file_truncated` if the range
  /// extends beyond the end of its file. After an exception, the store no longer writes to any
  /// range.
  void read_many(std::span<const byte_range> ranges) const {
    // Reads in groups of `max_open` files, so that a call never has more files open.
    const std::size_t max = state_->options.max_open;
    for (; !ranges.empty(); ranges = ranges.subspan((std::min)(max, ranges.size()))) {
      state_->read(ranges.first((std::min)(max, ranges.size())), false);
    }
  }

  /// Returns the folder path passed to the constructor.
  [[nodiscard]] const std::string& root() const noexcept { return state_->files.root().path(); }
  /// Returns the engine with which `read_many` reads data that is not in the page cache. Never
  /// returns `best`.
  [[nodiscard]] read_engine engine() const noexcept { return state_->engine; }
  /// Returns the reason why `best` became `threads`, or "".
  [[nodiscard]] const std::string& engine_problem() const noexcept { return state_->problem; }
  /// Returns the current statistics. Any thread may call this.
  [[nodiscard]] local_store_stats stats() const noexcept { return state_->stats(); }

 private:
  using reader = detail::piece_reader<Calls>;

  static const local_store_options& checked(const local_store_options& options) {
    const auto require = [](std::string_view name, std::size_t value, std::size_t max) {
      if (value < 1 || value > max)
        detail::throw_option_error(name, {value, " is not in 1..", max});
    };
    require("max_open", options.max_open, std::size_t{1} << 30);
    require("depth", options.depth, 4096);
    require("threads", options.threads, 1024);
    return options;
  }

  struct state {
    state(std::string root, const local_store_options& requested, Calls with)
        : options(requested),
          calls(std::move(with)),
          files(detail::root_folder{std::move(root)}, options.max_open, options.direct),
          threads(options.threads) {
      engine = options.engine == read_engine::best ? read_engine::uring : options.engine;
      auto first = make();
      if (first->ring_problem() == 0) {
        release(std::move(first));
        return;
      }
      problem =
          "io_uring is not available: " + std::system_category().message(first->ring_problem());
      if (options.engine == read_engine::uring) {
        throw option_error("engine", problem + ": choose read_engine::best");
      }
      engine = read_engine::threads;
    }

    [[nodiscard]] std::unique_ptr<reader> make() {
      return std::make_unique<reader>(engine, static_cast<unsigned>(options.depth), calls,
                                      engine == read_engine::pread ? nullptr : &threads);
    }
    [[nodiscard]] std::unique_ptr<reader> take() {
      {
        const std::lock_guard lock{mutex};
        if (!readers.empty()) {
          auto one = std::move(readers.back());
          readers.pop_back();
          return one;
        }
      }
      return make();
    }
    void release(std::unique_ptr<reader> one) {
      const std::lock_guard lock{mutex};
      readers.push_back(std::move(one));
    }

    void read(std::span<const byte_range> ranges, bool is_alone) {
      std::vector<detail::open_files::file> opened;
      std::vector<detail::local_piece> pieces;
      std::uint64_t bytes = 0;
      std::size_t sound = 0;     // number of ranges before the first unreadable range
      std::exception_ptr wrong;  // the error of the first unreadable range
      try {
        for (; sound < ranges.size(); ++sound) {
          const byte_range& range = ranges[sound];
          const bool is_same = sound > 0 && range.object == ranges[sound - 1].object;
          opened.push_back(is_same ? opened.back() : files.open(range.object));
          detail::require_inside(range, opened.back()->size(),
                                 [&] { return files.root().path_of(range.object); });
          cut(range, sound, *opened.back(), pieces);
          bytes += range.out.size();
        }
      } catch (...) {
        wrong = std::current_exception();
      }
      auto with = take();
      add(with->read(pieces, is_alone), bytes);
      release(std::move(with));
      for (std::size_t i = 0, piece = 0; i < sound; ++i) {
        for (; piece < pieces.size() && pieces[piece].range == i; ++piece) {
          if (!pieces[piece].read.is_whole()) fail(ranges[i].object, pieces[piece]);
        }
        const bool is_same = i > 0 && opened[i] == opened[i - 1];
        if (!is_same) files.require_unchanged(ranges[i].object, *opened[i]);
      }
      if (wrong) std::rethrow_exception(wrong);
    }

    // Splits a range at file offsets that are multiples of `max`, so that direct reads do not
    // overlap.
    static void cut(const byte_range& range, std::size_t number, const detail::open_file_pair& file,
                    std::vector<detail::local_piece>& pieces) {
      constexpr std::uint64_t max = std::uint64_t{1} << 20;
      std::span<std::byte> left = range.out;
      for (std::uint64_t at = range.offset; !left.empty();) {
        const auto size =
            static_cast<std::size_t>(std::min<std::uint64_t>(max - at % max, left.size()));
        pieces.push_back({&file, number, {file.cached.get(), at, left.data(), size, size}});
        left = left.subspan(size);
        at += size;
      }
    }

    [[noreturn]] void fail(std::string_view object, const detail::local_piece& piece) const {
      const std::uint64_t at = piece.read.offset + piece.read.done;
      const std::string path = files.root().path_of(object);
      if (piece.read.error != 0) {
        throw file_unreadable(path, at, "a readable file",
                              std::system_category().message(piece.read.error));
      }
      throw file_changed(path, at,
                         "a file of " + std::to_string(piece.from->size()) +
                             " bytes, as when the store first opened it",
                         "a file that ends here: make a new store when all files are complete");
    }

    void add(const local_store_stats& counts, std::uint64_t more) noexcept {
      const std::lock_guard lock{mutex};
      sum.bytes += more;
      sum.from_page_cache += counts.from_page_cache;
      sum.by_uring += counts.by_uring;
      sum.by_threads += counts.by_threads;
      sum.by_pread += counts.by_pread;
    }
    [[nodiscard]] local_store_stats stats() noexcept {
      const std::lock_guard lock{mutex};
      local_store_stats now = sum;
      now.opened = files.opened();
      now.direct_io_fallbacks = files.direct_io_fallbacks();
      return now;
    }

    const local_store_options options;
    const Calls calls;
    detail::open_files files;
    detail::read_threads threads;
    read_engine engine = read_engine::pread;
    std::string problem;
    std::mutex mutex;  // guards the members below; held during no system call
    std::vector<std::unique_ptr<reader>> readers;  // idle readers
    local_store_stats sum;
  };

  std::unique_ptr<state> state_;
};

/// A store of the files below a folder (see `basic_local_store`).
using local_store = basic_local_store<>;

static_assert(batching_store<local_store>);

}  // namespace PENSTOCK_ABI
}  // namespace penstock
